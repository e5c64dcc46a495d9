"""``python -m mdt`` and the script ``mdt``."""

from __future__ import annotations

from mdt.cli import app


def main() -> None:
    """Run the command line; see :mod:`mdt.commands` for its exit codes."""
    app()


if __name__ == "__main__":
    main()

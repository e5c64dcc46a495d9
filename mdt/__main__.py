"""``python -m mdt`` and the script ``mdt``."""

from __future__ import annotations

from mdt.cli.main import app


def main() -> None:
    """Run the command line; see :mod:`mdt.cli.commands` for its exit codes."""
    app()


if __name__ == "__main__":
    main()

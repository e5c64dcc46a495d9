"""Entry point of ``python -m mdt`` and of the script ``mdt``."""

from __future__ import annotations

from mdt.cli.main import app


def main() -> None:
    """Run the command line. :mod:`mdt.cli.commands` documents the exit codes."""
    app()


if __name__ == "__main__":
    main()

"""Entry point of ``python -m mdt`` and of the script ``mdt``."""

from __future__ import annotations

from mdt.cli.main import app
from mdt.cli.terminal import prepare_streams


def main() -> None:
    """Run the command line. :mod:`mdt.cli.commands` documents the exit codes."""
    prepare_streams()
    app()


if __name__ == "__main__":
    main()

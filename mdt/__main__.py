"""``python -m mdt`` and the script ``mdt``."""

from __future__ import annotations

from mdt.cli import app


def main() -> None:
    """Run the command line; exits with 0, 1 (``check`` found problems) or 2 (an error, told on stderr)."""
    app()


if __name__ == "__main__":
    main()

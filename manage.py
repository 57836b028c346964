#!/usr/bin/env python3
"""Django's command line, with the studio's commands: `manage.py studio` starts everything, `manage.py demo` shows it."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed for this Python: run `make up`, or use .venv/bin/python.")
    from webapp.home import HomeUnusable

    try:
        execute_from_command_line(sys.argv)
    except HomeUnusable as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()

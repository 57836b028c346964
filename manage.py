#!/usr/bin/env python3
"""Django's command line, with the studio's commands: `manage.py studio` starts everything, `manage.py demo` shows it."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

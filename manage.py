#!/usr/bin/env python3
"""Django's command line, with the studio's commands: `manage.py studio` starts everything, `manage.py demo` shows it."""

import os
import sys
from pathlib import Path


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed for this Python: run `make up`, or use .venv/bin/python.")
    from training_runtime.errors import RootlessUnavailable
    from training_runtime.host import rootless
    from webapp.home import SettingUnusable, folder

    try:
        rootless.enter(
            folder(os.environ.get("EDT_HOME", ""), project=Path(__file__).resolve().parent), os.environ.get(rootless.SETTING, "")
        )
        execute_from_command_line(sys.argv)
    except (SettingUnusable, RootlessUnavailable) as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()

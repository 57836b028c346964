"""The command `edt`: `python -m edt_client`."""

import sys

from edt_client.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

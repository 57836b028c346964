"""The command `edt`: `edt login` and `edt logout`."""

from __future__ import annotations

import argparse
import sys

from edt_client.errors import ClientError
from edt_client.login import login, logout


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="edt", description="EDT Studio from a shell.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    enter = verbs.add_parser("login", help="keep a token for a studio, which train() in a notebook then submits to")
    enter.add_argument("studio", nargs="?", default="", help="its address, for example https://studio.example.org")
    enter.add_argument("--username", default="")
    enter.add_argument("--password-stdin", action="store_true", help="read the password from the standard input")
    enter.add_argument("--ca-cert", default="", metavar="FILE", help="whom to trust beside the system's authorities")
    leave = verbs.add_parser("logout", help="end the token, there and here")
    leave.add_argument("studio", nargs="?", default="")
    said = parser.parse_args(words)
    try:
        if said.verb == "login":
            password = (lambda: sys.stdin.readline().rstrip("\n")) if said.password_stdin else None
            login(said.studio, said.username, ca_cert=said.ca_cert, password=password)
        else:
            logout(said.studio)
    except ClientError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

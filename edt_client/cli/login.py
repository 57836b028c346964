"""Logging in and out, and a look at who one is."""

from __future__ import annotations

import sys

import click

from edt_client.cli.output import as_json, say_json, with_studio
from edt_client.client import Studio
from edt_client.login import keep_token
from edt_client.login import login as log_in
from edt_client.login import logout as log_out


@click.command("login")
@click.argument("studio", default="")
@click.option("--username", default="", help="Asked for where it is left out.")
@click.option("--password-stdin", is_flag=True, help="Read the password from the standard input.")
@click.option("--token-stdin", is_flag=True, help="Read a token from the standard input that you made in the browser.")
@click.option("--ca-cert", default="", metavar="FILE", help="Whom to trust beside the system's authorities.")
def login(studio: str, username: str, password_stdin: bool, token_stdin: bool, ca_cert: str) -> None:
    """Keep a token for a studio, for this command, Python and notebooks.

    \b
    Example: edt login https://studio.example.org --username alice
    """
    if token_stdin:
        keep_token(studio, sys.stdin.readline().strip(), ca_cert=ca_cert)
        return
    password = (lambda: sys.stdin.readline().rstrip("\n")) if password_stdin else None
    log_in(studio, username, ca_cert=ca_cert, password=password)


@click.command("logout")
@click.argument("studio", default="")
def logout(studio: str) -> None:
    """End the token, there and here.

    \b
    Example: edt logout
    """
    log_out(studio)


@click.command("whoami")
@as_json
@with_studio
def whoami(studio: Studio, as_json: bool) -> None:
    """Who you are, and where.

    \b
    Example: edt whoami
    """
    me = studio.get("/me")
    if as_json:
        say_json({"studio": studio.url, **me})
        return
    token = me.get("token") or {}
    until = token.get("expires_at") or "until it is ended"
    click.echo(f"{me['username']} at {studio.url}, by the token {token.get('name', '?')} ({token.get('scope', '?')}, {until})")


COMMANDS = (login, logout, whoami)

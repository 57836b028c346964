"""The environment as the settings read it: what a variable would say may stand in a file, as secrets of Docker and Kubernetes do.
`NAME_FILE` says which, and is asked before `NAME`.

A variable that is empty counts as not set. What one cannot mean ends the start with a sentence: django-environ takes "10 days" for 10,
"1e3" for 13 and "no way" for False, and a secret that begins with $ for the name of another variable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured
from environ.fileaware_mapping import FileAwareMapping

from webapp.home import SettingUnusable

TRUE, FALSE = ("1", "true", "yes", "on", "y", "ok"), ("0", "false", "no", "off", "n")
DATABASE = "postgres://user:password@host/name"
EMAIL = "smtp+tls://user:password@mail.example.org:587"


class _Files(FileAwareMapping):
    def __getitem__(self, name: str) -> str:
        try:
            value = str(super().__getitem__(name))
        except OSError as error:
            raise SettingUnusable(f"{name}_FILE ({error.filename}) cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise SettingUnusable(f"{name}_FILE names a file that is no text in UTF-8.") from None
        return value.strip() if self.env.get(f"{name}_FILE") else value  # editors and `echo` end a file with a line


def whole_number(said: str) -> int:
    value = int(said)
    if value < 0:
        raise ValueError
    return value


def number(said: str) -> float:
    value = float(said)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError
    return value


def truth(said: str) -> bool:
    if said.lower() not in TRUE + FALSE:
        raise ValueError
    return said.lower() in TRUE


def words(said: str) -> list[str]:
    return [word for each in said.split(",") if (word := each.strip())]


# How Django-environ names what is asked for: how it is read, and what a person is told to write.
KINDS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    int: (whole_number, "a whole number of 0 or more"),
    float: (number, "a number of 0 or more"),
    bool: (truth, "true or false"),
}


class Env(environ.Env):
    ENVIRON = _Files()

    def get_value(self, var: str, cast: Any = None, default: Any = environ.Env.NOTSET, parse_default: bool = False) -> Any:  # noqa: ARG002
        """What the variable says, as its kind; the default where it says nothing. Raises SettingUnusable."""
        said = self.ENVIRON.get(var, "")
        if not said.strip():
            return default
        if cast is list:
            return words(said)
        read, wanted = KINDS.get(cast, (str, ""))
        try:
            return read(said.strip() if wanted else said)
        except ValueError:
            raise SettingUnusable(f"{var} is {said!r}: it must be {wanted}.") from None

    def database(self, var: str, *, default: str) -> dict[str, Any]:
        """Of a URL, as Django has it in DATABASES. The message names no password."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an engine that it does not know
                found: dict[str, Any] = self.db_url_config(self.get_value(var, default=default))
            if not found.get("ENGINE", "").endswith(("sqlite3", "postgresql")):
                raise ValueError(found)
        except (ImproperlyConfigured, ValueError):
            raise SettingUnusable(f"{var} names no database that the studio can use: it must be like {DATABASE}, or not set.") from None
        return found

    def mail(self, var: str, *, default: str) -> dict[str, Any]:
        """Of a URL, as Django's settings have it. The message names no password."""
        try:
            found: dict[str, Any] = self.email_url_config(self.get_value(var, default=default))
        except (ImproperlyConfigured, ValueError):
            raise SettingUnusable(f"{var} names no way to send e-mail: it must be like {EMAIL}.") from None
        return found

"""Objects by name, in the store that a URL is of: s3://bucket/prefix, or any other that fsspec knows. Credentials are the library's affair:
it takes them from the environment, and nothing here names them.

Whatever goes wrong out there is one error, StoreAway, with words that can be shown.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger(__name__)
CONNECT_S, READ_S, TRIES = 5, 60, 3
_S3 = {"config_kwargs": {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"total_max_attempts": 1}}}
_FRESH = {"use_listings_cache": False, "skip_instance_cache": True}
LONGEST = 300  # characters of an error that are kept


class StoreAway(OSError):
    """The object store cannot be used now: it is not there, it refuses, or it breaks off. It is tried again."""


def refusal(url: str) -> str:
    """Why this cannot be EDT_STORE; empty where it may be. Pure."""
    parts = urlsplit(url)
    if not parts.scheme:
        return "EDT_STORE is a URL, such as s3://bucket/studio or file:///mnt/store."
    if parts.username or parts.password or "@" in parts.netloc:
        return "EDT_STORE must not hold credentials: give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY say."
    if parts.query or parts.fragment:
        return "EDT_STORE is a URL without ? and #."
    if parts.scheme == "memory":
        return "memory:// is no store: what is in it ends with the process."
    return ""


class ObjectStore:
    """Names are paths below the URL. Every call may raise StoreAway."""

    def __init__(self, url: str) -> None:
        if words := refusal(url):
            raise StoreAway(words)
        self._scheme = urlsplit(url).scheme
        with _in_words():
            from fsspec.core import url_to_fs  # it takes a while, and most studios have no store

            options = {**_FRESH, **(_S3 if self._scheme in ("s3", "s3a") else {})}
            self._files, top = url_to_fs(url, **options)
            if hasattr(self._files, "retries"):  # s3fs tries again by itself; a turn that fails is tried again by us
                self._files.retries = TRIES
            self._top = str(top).rstrip("/")

    def get(self, name: str) -> bytes:
        """Raises KeyError where there is no such object."""
        with _in_words():
            try:
                data: bytes = self._files.cat_file(self._at(name))
                return data
            except (FileNotFoundError, IsADirectoryError):
                raise KeyError(name) from None

    def put(self, name: str, data: bytes) -> None:
        """Whole or not at all."""
        with _in_words():
            if self._scheme not in ("file", "local"):  # an object is there when all of it is
                self._files.pipe_file(self._at(name), data)
                return
            draft = self._at(f"{name}.{uuid.uuid4().hex}")
            self._files.makedirs(draft.rsplit("/", 1)[0], exist_ok=True)
            try:
                self._files.pipe_file(draft, data)
                self._files.mv(draft, self._at(name))
            except BaseException:
                with contextlib.suppress(Exception):
                    self._files.rm_file(draft)
                raise

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each object of a folder, by its name there."""
        found = self._entries(folder)
        return {str(each["name"]).rsplit("/", 1)[-1]: int(each["size"]) for each in found if each["type"] == "file"}

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in it."""
        return sorted(str(each["name"]).rstrip("/").rsplit("/", 1)[-1] for each in self._entries(folder) if each["type"] == "directory")

    def remove(self, name: str) -> None:
        """What is not there is gone."""
        with _in_words(), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._at(name))

    def tidy(self, folder: str) -> None:
        """An empty folder goes, where the store has such a thing."""
        if self._scheme in ("file", "local"):
            with contextlib.suppress(OSError):
                self._files.rmdir(self._at(folder))

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        with _in_words():
            try:
                found: list[dict[str, Any]] = self._files.ls(self._at(folder), detail=True)
                return [each for each in found if str(each["name"]).rstrip("/") != self._at(folder)]
            except FileNotFoundError:
                return []

    def _at(self, name: str) -> str:
        return f"{self._top}/{name}"


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except (KeyError, StoreAway):
        raise
    except ImportError as error:
        raise StoreAway(f"This kind of store needs a package that is not installed ({error}): pip install 'edt-studio[s3]'.") from None
    except PermissionError as error:
        raise StoreAway(
            f"The object store refuses access ({_error_text(error)}): credentials of the environment, or their rights."
        ) from None
    except Exception as error:  # the edge: each library behind a URL has errors of its own
        log.debug("The object store failed.", exc_info=True)
        raise StoreAway(_error_text(error)) from None


def _error_text(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:LONGEST] if words else type(error).__name__

"""The environment as the settings read it: what a variable would say may stand in a file, as secrets of Docker and Kubernetes do.
`NAME_FILE` says which, and is asked before `NAME`.
"""

from __future__ import annotations

import environ
from environ.fileaware_mapping import FileAwareMapping

from webapp.home import HomeUnusable


class _Files(FileAwareMapping):
    def __getitem__(self, name: str) -> str:
        try:
            value = str(super().__getitem__(name))
        except OSError as error:
            raise HomeUnusable(f"{name}_FILE ({error.filename}) cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise HomeUnusable(f"{name}_FILE names a file that is no text in UTF-8.") from None
        return value.strip() if self.env.get(f"{name}_FILE") else value  # editors and `echo` end a file with a line


class Env(environ.Env):
    ENVIRON = _Files()

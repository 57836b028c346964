"""The studio from a shell or a notebook: who to talk to (`credentials`), the calls (`studio`), and the command `edt`.

Python's standard library alone. It speaks the studio's REST interface (docs/rest.md).
"""

from edt_client.errors import ClientError, NoAnswer, Refused
from edt_client.login import login, logout

__all__ = ["ClientError", "NoAnswer", "Refused", "login", "logout"]

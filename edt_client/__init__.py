"""The studio from Python (`Studio`, `AsyncStudio`), from a shell (the command `edt`, in `cli`) and from a notebook.

things       what the API answers, typed
calls        what is asked, without a connection; `operations`: all that can be asked; `registry`: of models; `searches`: for values;
             `sending`: in pieces; `folders`: with a folder's code
client, aio  the two clients, by httpx; `connection`, `async_connection`: what each does over it; `transport`: what these have in common
packing      a folder as the zip that is sent
plots        curves for a terminal and for a notebook
credentials  which studio is meant, and by which token; `login`
studio       WMLA's interface (docs/rest.md), by the standard library alone: what trainings of notebooks use
"""

from typing import Any

from edt_client.errors import ClientError, NoAnswer, Refused
from edt_client.login import login, logout

__all__ = ["AsyncStudio", "ClientError", "NoAnswer", "Refused", "Studio", "login", "logout"]


def __getattr__(name: str) -> Any:
    """The clients are imported when they are asked for: what trains in a notebook needs neither them nor their library."""
    if name == "Studio":
        from edt_client.client import Studio

        return Studio
    if name == "AsyncStudio":
        from edt_client.aio import AsyncStudio

        return AsyncStudio
    raise AttributeError(name)

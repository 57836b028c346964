"""A run in a notebook's cell: its state and its curves, drawn again while it trains."""

from __future__ import annotations

import base64
import time
from html import escape
from typing import Any

from edt_client.errors import NoAnswer
from edt_client.plots import svg

EVERY_S = 1.0
MOST_POINTS = 400


def show(run: Any, *, live: bool) -> None:
    """`run`: a `client.Run`. Until it has ended, or once. Interrupting the cell leaves the run alone."""
    from IPython.display import display

    handle: Any = display(_bundle(run), raw=True, display_id=True)  # type: ignore[no-untyped-call]
    while live and not run.facts.has_ended:
        time.sleep(EVERY_S)
        try:
            run.refresh()
        except NoAnswer:
            continue  # it goes on, and answers again later
        handle.update(_bundle(run), raw=True)


def _bundle(run: Any) -> dict[str, str]:
    facts = run.facts
    of = f" of {facts.total_steps}" if facts.total_steps else ""
    said = f"{facts.state}, step {facts.step}{of}, {facts.slots} slots" if not facts.has_ended else f"{facts.state}, step {facts.step}{of}"
    data = base64.b64encode(svg(run.curves(max_points=MOST_POINTS)).encode()).decode()
    link = f'<a href="{escape(facts.url)}" target="_blank" rel="noopener">{escape(facts.name)}</a>'
    picture = f'<img alt="curves" src="data:image/svg+xml;base64,{data}"/>'
    return {"text/html": f"<div>{link} &middot; <b>{escape(said)}</b></div>{picture}", "text/plain": f"{facts.name}: {said}"}

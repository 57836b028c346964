"""What is shown in the cell: one output that is updated in place, with status, plot and where to look; as text where no HTML is shown."""

from __future__ import annotations

import base64
import time
from html import escape
from typing import Any

from training_runtime.fabric.notebook import plot
from training_runtime.fabric.notebook.seen import Seen, figures, sentence

EVERY_S = 1.0
_COLOURS = {"failed": "#cf222e", "stopped": "#9a6700", "completed": "#1a7f37"}


class Cell:
    """`title` names the training; `link`: its page, empty where there is none; `place`: where its files are."""

    def __init__(self, title: str, *, link: str = "", place: str = "") -> None:
        self._title, self._link, self._place = title, link, place
        self._handle: Any = None
        self._shown: dict[str, str] = {}
        self._at, self._note, self._seen = -EVERY_S, "", Seen()

    def note(self, line: str) -> None:
        """A line more, from now on."""
        self._note = line
        self.show(self._seen, now=True)

    def show(self, seen: Seen, *, now: bool = False) -> None:
        """At most once a second, unless it has ended or `now`."""
        self._seen = seen
        if not (now or seen.ended or time.monotonic() - self._at >= EVERY_S):
            return
        bundle = {"text/html": self.html(seen), "text/plain": self.text(seen)}
        if bundle == self._shown:
            return
        self._shown, self._at = bundle, time.monotonic()
        if self._handle is not None:
            self._handle.update(bundle, raw=True)
            return
        from IPython.display import display

        self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def html(self, seen: Seen) -> str:
        """Title, state and figures, and the curves as a picture. What comes from outside is escaped."""
        title = escape(self._title)
        if self._link:
            title = f'<a href="{escape(self._link)}" target="_blank" rel="noopener">{title}</a>'
        colour = _COLOURS.get(seen.state, "inherit")
        lines = [f'{title} &middot; <b style="color:{colour}">{escape(sentence(seen))}</b>']
        lines += [escape(each) for each in (seen.problem, self._note) if each]
        lines += [f"Results: <code>{escape(self._place)}</code>"] if self._place else []
        picture = ""
        if drawn := plot.svg(seen):
            data = base64.b64encode(drawn.encode()).decode()
            picture = f'<img alt="{escape(figures(seen))}" src="data:image/svg+xml;base64,{data}"/>'
        return f"<div>{'<br/>'.join(lines)}</div>{picture}"

    def text(self, seen: Seen) -> str:
        """The same in lines, for what shows no HTML."""
        where = f" ({self._link})" if self._link else ""
        results = f"Results: {self._place}" if self._place else ""
        lines = [f"{self._title}{where}: {sentence(seen)}", seen.problem, self._note, results, plot.text(seen)]
        return "\n".join(line for line in lines if line)

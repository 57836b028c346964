"""matplotlib's backend in runs (`MPLBACKEND`). Nobody sits before a run's screen: what a script shows is kept as a picture among the run's
results, and closed, as a window is that somebody has looked at. All else is matplotlib's own backend for files (Agg).

A picture is named by what is in it: where several workers show the same, or a run that goes on shows it again, it is kept once.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

FOLDER = "figures"
MOST = 200  # in a run
MANY = f"A run keeps {MOST} figures that are shown: this one and those after it are left out. Save them with savefig."
_said: set[str] = set()


class FigureManager(FigureManagerBase):
    def show(self) -> None:
        """One figure, which stays open."""
        keep_figure(self.canvas.figure)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def show(*_: object, block: bool | None = None, **__: object) -> None:
    """All open figures. Where the script would go on at once and draws on (`plt.pause`), nothing is kept: it is not what it shows."""
    if block is False:
        return
    for manager in Gcf.get_all_fig_managers():
        keep_figure(manager.canvas.figure)
    Gcf.destroy_all()


def keep_figure(figure: Any) -> str:
    """As RESULT_DIR/figures/figure-001-5f2a9c01.png; its name, or "" where it is not kept."""
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format="png")
    except Exception as error:  # what the script has put into it: a formula that is none, a size that no picture has. It trains on
        _say(f"A figure that is shown could not be drawn: {error}.")
        return ""
    return keep_picture(drawn.getvalue())


def keep_picture(png: bytes) -> str:
    folder = Path(os.environ.get("RESULT_DIR") or ".") / FOLDER
    mark = hashlib.sha256(png).hexdigest()[:8]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in folder.glob("figure-*.png"))
        if same := [name for name in there if name.endswith(f"-{mark}.png")]:
            return same[0]
        if len(there) >= MOST:
            _say(MANY)
            return ""
        _write(folder / f"figure-{len(there) + 1:03}-{mark}.png", png)
    except OSError as error:
        _say(f"A figure that is shown could not be kept: {error.strerror or error}.")
        return ""
    _say(f"Figures that are shown are kept among the run's results, in {FOLDER}.")
    return f"figure-{len(there) + 1:03}-{mark}.png"


def _write(path: Path, content: bytes) -> None:
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(content)
        half.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink()
        raise


def _say(text: str) -> None:
    """Once."""
    if text not in _said:
        _said.add(text)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

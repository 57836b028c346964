"""A training of a notebook in the studio: submitted by its REST interface, followed there, and the weights fetched. Nothing of it depends
on the kernel that follows it.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from pathlib import Path
from typing import Any

from edt_client.credentials import Studio
from edt_client.errors import NoAnswer, Refused
from edt_client.studio import Client
from training_runtime.elastic.state import model_files
from training_runtime.errors import UserError
from training_runtime.fabric.notebook import packing
from training_runtime.fabric.notebook.seen import Curve, Seen

EVERY_S = 1.0
MOST_SLOTS = 4096
LOG_LINES = 30
MODEL = "model/train"
GOES_ON = "{} The run goes on without this cell: {}. attach({!r}) of a FabricModel with this model follows it again and takes its weights"


def submit(studio: Studio, code: Path, *, engines: int | None) -> Remote:
    """A run of what `packing` has written to the folder `code`."""
    client = Client(studio)
    name = notebook_name()
    args = ["--exec-start", "edtPyTorch", "--model-main", packing.SCRIPT, "--model-dir", name]
    args += ["--numWorker", str(min(engines, MOST_SLOTS))] if engines else []
    bundle = code / "notebook.zip"
    packing.bundle(code, bundle)
    if bundle.stat().st_size > packing.MOST_BYTES:
        raise UserError("train: the notebook's own modules and its payload are more than 1 GiB together: keep data out of them")
    found = client.submit(shlex.join(args), bundle)
    bundle.unlink()
    return Remote(client, str(found["id"]), str(found["url"]))


def notebook_name() -> str:
    """What the run is called after: the notebook's file where its server says it."""
    path = os.environ.get("JPY_SESSION_NAME") or ""
    return re.sub(r"[^\w.-]+", "-", Path(path).stem).strip("-.")[:60] or "notebook"


class Remote:
    """A run of the studio, by its id."""

    place = ""

    def __init__(self, client: Client, name: str, link: str) -> None:
        self._client, self.name, self.link = client, name, link
        self.title = f"Run {name}"
        self._seen = Seen("queued")
        self._looked = -math.inf

    def wait(self) -> None:
        """Until the next look is due. Interruptible."""
        time.sleep(max(0.0, self._looked + EVERY_S - time.monotonic()))

    def look(self) -> Seen:
        """What the studio says now; the last that it said and the problem, where it does not answer. UserError where it refuses."""
        self._looked = time.monotonic()
        try:
            seen = read(self._client.job(self.name))
            if seen.step != self._seen.step or seen.ended:
                seen.curves = of_rows(self._client.curves(self.name))
            else:
                seen.curves = self._seen.curves
        except NoAnswer as error:
            self._seen.problem = f"{error} The run goes on; this cell tries again."
            return self._seen
        except Refused as error:
            raise UserError(GOES_ON.format(error, self.link, self.name)) from None
        self._seen = seen
        return seen

    def stop(self) -> str:
        """Asks the studio to stop it; what to tell meanwhile."""
        try:
            self._client.stop(self.name)
        except Refused as error:
            if error.status != 400:  # it may have ended meanwhile
                return f"Interrupted, but the run could not be stopped: {error}"
        except NoAnswer as error:
            return f"Interrupted, but the run could not be stopped: {error} Stop it on its page: {self.link}"
        return "Interrupted: the studio stops the run and keeps its state. Interrupt again to leave it alone with that."

    def end(self) -> None:
        """Nothing of it runs here."""

    def weights(self, scratch: Path, *, stopped: bool) -> Path | None:
        """Fetched into `scratch`."""
        name = (model_files.stopped_path if stopped else model_files.final_path)(Path()).name
        path = scratch / name
        return path if self._client.save(self.name, path, file=f"{MODEL}/{name}") else None

    def save(self, target: Path) -> None:
        """The results as a zip at `target`. UserError where it has left none."""
        if not self._client.save(self.name, target):
            raise UserError(f"download: {self.title} has left no model; its page is {self.link}")

    def log_tail(self) -> str:
        """For an error: the end of the driver's log."""
        try:
            return self._client.log_tail(self.name, lines=LOG_LINES)
        except (NoAnswer, Refused):
            return ""


def read(job: dict[str, Any]) -> Seen:
    """The studio's answer about a run. NoAnswer where it lacks something."""
    try:
        return Seen(
            state=str(job["runState"]),
            reason=str(job["reason"]),
            step=int(job["step"]),
            steps=int(job["steps"]) or None,
            epoch=int(job["epoch"]),
            epochs=int(job["epochs"]) or None,
            workers=int(job["workers"]),
            rate=float(job["rate"]) or None,
        )
    except (KeyError, TypeError, ValueError):
        raise NoAnswer("The studio does not say how the run is: is it of another version than this notebook's code?") from None


def of_rows(rows: dict[str, list[dict[str, Any]]]) -> dict[tuple[str, str], Curve]:
    """Curves by (group, name), of rows {"iteration": step, "ml_metrics": {name: value}} by group."""
    seen = Seen()
    for group, found in rows.items():
        for row in found:
            seen.add(group, int(row["iteration"]), {name: float(value) for name, value in row["ml_metrics"].items()})
    return seen.curves

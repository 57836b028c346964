"""How tests are shared out among the processes that run them side by side (`-n`)."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

WHOLE = ("tests/e2e/", "tests/attack/", "tests/architecture/")
IN_A_BROWSER = "_browser.py"
SHARED_STUDIO = "shared_studio"  # the mark of those of e2e that have runs in one studio, one after the other
ROOT = Path(__file__).resolve().parents[1]


class Scheduling(LoadFileScheduling):
    """A file stays in one process. Of whole studios there are two at a time, beside the one that is attacked: the one that tests share, and
    those that tests have of their own. Each waits more than it computes, and so do those in a browser, which they share. What the tests of
    the architecture have parsed they share.

    Of a process that dies, the test that it was at has failed and others do the rest. xdist's own gives that test out again, and
    then waits for ever: for a process that got files without a test left in them, or just one, which it begins when the next is known.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        whole = next((folder for folder in WHOLE if nodeid.startswith(folder)), None)
        if whole and _shares_a_studio(file):
            return SHARED_STUDIO
        return whole or (IN_A_BROWSER if file.endswith(IN_A_BROWSER) else file)

    def remove_node(self, node: WorkerController) -> str | None:
        work = self.assigned_work[node]
        died_at = next((test for tests in work.values() for test, done in tests.items() if not done), None)
        for tests in work.values():
            tests.update({died_at: True} if died_at in tests else {})
        left = {file: tests for file, tests in work.items() if not all(tests.values())}
        self.assigned_work[node] = {}
        super().remove_node(node)
        self.workqueue.update(left)
        for other in self.assigned_work:
            self._reschedule(other)
        return died_at

    def _assign_work_unit(self, node: WorkerController) -> None:
        with suppress(OSError):  # it has died, and the message that says so is on its way: then `remove_node` has its files for others
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it takes the place of one that died, and gets its share when it knows what there is
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@cache
def _shares_a_studio(file: str) -> bool:
    path = ROOT / file
    return path.is_file() and f"mark.{SHARED_STUDIO}" in path.read_text()

"""What a script leaves to be done at its end is done, as by an interpreter that has nothing else to do."""

from __future__ import annotations

import pytest

from tests.engine.scripts import SMALL

LEAVES = """
import atexit, logging.handlers, os, pickle, sys, threading, weakref
from concurrent.futures import ThreadPoolExecutor


class Figures:
    def __init__(self):
        self.lines = []

    def save(self):
        with open("figures.pickle", "wb") as file:
            pickle.dump(self, file)


def save_late(began):
    began.set()
    main.join()
    open("late.txt", "w").write("a thread that is no daemon")


figures = Figures()
atexit.register(figures.save)
weakref.finalize(figures, print, "finalized")
table = open("table.csv", "w")
table.write("step,loss")
logging.getLogger().addHandler(logging.handlers.MemoryHandler(1000, target=logging.FileHandler("kept.log")))
logging.error("kept")
main, began = threading.current_thread(), threading.Event()
threading.Thread(target=save_late, args=(began,)).start()
began.wait()
ThreadPoolExecutor(1).submit(print, "submitted")
"""
ENDS = {"": ("completed", 0), "sys.exit(3)": ("failed", 3), "raise ValueError('wrong')": ("failed", 1)}


@pytest.mark.parametrize("end", ENDS)
def test_what_a_script_leaves_to_its_end_is_done_however_it_ends(start, end):
    run = start(LEAVES + end, elastic=False, max_slots=1)
    run.members(0)
    outcome, status = ENDS[end]
    assert run.wait() == status
    assert [event.outcome for event in run.events("finished")] == [outcome]
    written = {path.name: path.read_bytes() for path in run.code_dir.iterdir() if path.is_file()}
    assert written["table.csv"] == b"step,loss"
    assert written["late.txt"] == b"a thread that is no daemon"
    assert written["kept.log"] == b"kept\n"
    assert b"Figures" in written["figures.pickle"]
    assert {"submitted", "finalized"} <= set(run.log.read_text().splitlines())


def test_workers_leave_it_to_the_script_s_own_process(start):
    run = start("import atexit\natexit.register(print, 'the end')\n" + SMALL)
    run.members(0, 1)
    assert run.wait() == 0
    assert sum(log.read_text().count("the end\n") for log in run.result_dir.glob("log/*/console.log")) == 1
    assert run.weights

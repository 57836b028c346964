"""A prelude for test scripts: workers end or stop themselves at a chosen rank, step and phase. Each fault happens once in a run."""

FAULTS = """
import json, os, signal
from training_runtime.elastic import exchange as _exchange, worker as _worker

_faults = json.loads(os.environ.get("FAULTS", "[]"))
_now = {}

def _at(phase):
    worker = _now.get("worker")
    if worker is None:
        return
    step = worker.shape.step_at(worker.tick) + 1
    for i, fault in enumerate(_faults):
        if fault["phase"] != phase or step < fault["step"] or fault["rank"] not in (worker.group.rank, -1):
            continue
        try:
            os.close(os.open(os.environ["RESULT_DIR"] + f"/fault-{i}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), getattr(signal, fault.get("signal", "SIGKILL")))

def _wrap(cls, name, phase, after=False):
    inner = getattr(cls, name)
    def outer(self, *args, **kwargs):
        if isinstance(self, _worker.Worker):
            _now["worker"] = self
        if not after:
            _at(phase)
        result = inner(self, *args, **kwargs)
        if after:
            _at(phase)
        return result
    setattr(cls, name, outer)

_wrap(_worker.Worker, "_engine", "forward")
_wrap(_worker.Worker, "_engine", "backward", after=True)
_wrap(_exchange.Exchange, "merge_joint", "exchange")
_wrap(_exchange.Exchange, "merge_joint", "summed", after=True)
_wrap(_exchange.Exchange, "deliver", "optimizer")
_wrap(_worker.Worker, "_record", "committed")
_wrap(_worker.Validation, "_batch", "validation")
_wrap(_worker.Validation, "_batch", "tested", after=True)
_wrap(_worker.Worker, "_save", "checkpoint")
_wrap(_worker.checkpoint, "save_model", "saving")
_wrap(_worker.Worker, "_hand_over", "handing over")
_wrap(_worker.Worker, "_take_over", "taking over")
_wrap(_worker.Worker, "_enter", "entered", after=True)
"""
PHASES = (
    "forward",
    "backward",
    "exchange",
    "summed",
    "optimizer",
    "committed",
    "validation",
    "tested",
    "checkpoint",
    "saving",
    "handing over",
    "taking over",
    "entered",
)

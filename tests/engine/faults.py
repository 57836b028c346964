"""A prelude for test scripts: workers end or stop themselves at a chosen rank, step and phase, and so does the driver, at a phase of its
own. Each fault happens once in a run, unless it is to happen `always`. `do` names what is done instead of a signal."""

FAULTS = """
import json, os, signal
from training_runtime.elastic.driver import coordinator as _coordinator; from training_runtime.elastic.comm import all_reduce as _exchange
from training_runtime.elastic.driver import recorder as _recorder, recorder_feed as _recorder_feed
from training_runtime.elastic.worker import main as _worker, sharding as _sharding

_faults = json.loads(os.environ.get("FAULTS", "[]"))
_now = {}

def _at(phase):
    worker = _now.get("worker")
    if worker is None:
        return
    _strike(phase, worker.shape.step_at(worker.position) + 1, worker.group.rank)

def _strike(phase, step, rank):
    for i, fault in enumerate(_faults):
        if fault["phase"] != phase or step < fault["step"] or fault.get("rank", -1) not in (rank, -1):
            continue
        try:
            os.close(os.open(os.environ["RESULT_DIR"] + f"/fault-{i}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if not fault.get("always"):
                continue
        _DO.get(fault.get("do"), lambda: os.kill(os.getpid(), getattr(signal, fault.get("signal", "SIGKILL"))))()

def _exhaust_group():
    with open(os.environ["MEMORY_GROUP"], "w") as file:  # of processes whose memory the kernel limits
        file.write(str(os.getpid()))
    held = [os.urandom(1 << 20) for _ in range(1024)]
    raise AssertionError("the kernel let it have all that")

def _limit_memory():
    import resource
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))

def _exhaust_python():
    _limit_memory()
    bytearray(1 << 30)

def _exhaust_torch():
    _limit_memory()
    torch.empty(1 << 30, dtype=torch.uint8)

def _shut_down_sockets(how):
    import socket
    for name in os.listdir("/proc/self/fd"):
        try:
            socket.socket(fileno=os.dup(int(name))).shutdown(how)
        except OSError:
            pass

_DO = {"kernel": _exhaust_group, "python": _exhaust_python, "torch": _exhaust_torch,
       "close": lambda: os.closerange(3, 1024), "shut down": lambda: _shut_down_sockets(2),
       "shut down for writing": lambda: _shut_down_sockets(1)}

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

_wrap(_worker.Worker, "_begin_engine", "forward")
_wrap(_worker.Worker, "_end_engine", "backward", after=True)
_wrap(_exchange.Exchange, "add_cross_rank", "exchange")
_wrap(_exchange.Exchange, "add_cross_rank", "summed", after=True)
_wrap(_exchange.Exchange, "set_grads", "optimizer")
_wrap(_sharding.ShardedOptimizer, "step", "stepping")
_wrap(_sharding.ShardedOptimizer, "step", "stepped", after=True)
_wrap(_sharding.ShardedOptimizer, "load_step", "taking")
_wrap(_sharding.ShardedOptimizer, "load_step", "taken", after=True)
_wrap(_worker.Worker, "_record", "committed")
_wrap(_worker.Validation, "_batch", "validation")
_wrap(_worker.Validation, "_batch", "tested", after=True)
_wrap(_worker.Worker, "_save", "checkpoint")
_wrap(_worker.model_files, "save", "saving")
_wrap(_worker.Worker, "_hand_over", "handing over")
_wrap(_worker.Worker, "_take_over", "taking over")
_wrap(_worker.Worker, "_enter", "entered", after=True)
_wrap(_worker.Worker, "_write_down", "orphaned")

def _wrap_driver(cls, name):
    inner = getattr(cls, name)
    def outer(self, *args, **kwargs):
        recorder = getattr(self, "recorder", None) or getattr(self, "_recorder", self)
        _strike(f"driver before {name}", recorder.last_step, -1)
        result = inner(self, *args, **kwargs)
        _strike(f"driver after {name}", recorder.last_step, -1)
        return result
    setattr(cls, name, outer)

for _cls, _name in ((_recorder_feed.RecorderFeed, "steps"), (_recorder_feed.RecorderFeed, "note"), (_recorder_feed.RecorderFeed, "begun"),
                    (_coordinator.Coordinator, "_publish"), (_coordinator.Coordinator, "_start"), (_coordinator.Coordinator, "_done"),
                    (_coordinator.Coordinator, "_exited"), (_recorder.Recorder, "flush"), (_recorder.Recorder, "test")):
    _wrap_driver(_cls, _name)
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
SHARDED_PHASES = ("stepping", "stepped", "taking", "taken")  # of a step of the optimizer that is shared out
DRIVER_PHASES = tuple(
    f"driver {when} {name}"
    for name in ("steps", "note", "begun", "_publish", "_start", "_done", "_exited", "flush", "test")
    for when in ("before", "after")
)

"""Where a run begins: the node host calls `main` in a process that it has just forked. Runs the user's script and answers the host
meanwhile.

The process has torch imported, one thread, its own session, the sandbox entered, output redirected and the environment set. A script that
never calls FabricModel just runs. The session of the process says to FabricModel.train() that it is in the studio; without one it trains on
local slots.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_runtime import console, journal, journal_writer, storage
from training_runtime.as_module import folder_of_imports
from training_runtime.elastic.data.sampler import seed_everything
from training_runtime.elastic.driver import advice, imported_modules, programs, single
from training_runtime.elastic.driver.host_link import HostLink, LinkThread
from training_runtime.elastic.driver.masked_journal import MaskedWriter
from training_runtime.elastic.driver.outcome import TrainingFailed
from training_runtime.elastic.driver.setup import Noticed
from training_runtime.elastic.keras import finder
from training_runtime.elastic.processes import becoming, hidden_gpus, script_end
from training_runtime.elastic.processes.arguments import with_folders
from training_runtime.elastic.processes.script import module_paths, run_as_main, run_module_as_main, user_traceback
from training_runtime.elastic.processes.warm import warm_up
from training_runtime.elastic.script_logs import tracking
from training_runtime.elastic.script_logs.console_logs import last_line, without_escapes
from training_runtime.elastic.script_logs.logged import LOOK_S, ScriptMetrics
from training_runtime.elastic.torchrun.agent import Agent
from training_runtime.elastic.torchrun.fork_server import ForkServer
from training_runtime.elastic.trainers import continuing
from training_runtime.elastic.trainers import finder as trainers
from training_runtime.errors import NoRoom
from training_runtime.masking import Mask
from training_runtime.protocol import RunSpec
from training_runtime.variables import BEGUN_AGAIN

__all__ = ["before_imports", "main", "warm_up"]  # what a node host uses

DEFAULT_SEED = 0


@dataclass
class Session:
    """A run inside the studio. `trained`: train() was called; `step`, `epoch`, `metrics`: where it ended. A remote agent writes no journal:
    `writer` is None then, and so are `logged`, the figures that the script logs by itself, and `noticed`, what its process has. `slots`:
    those that this very process computes on."""

    spec: RunSpec
    link: HostLink
    link_thread: LinkThread
    writer: journal_writer.Writer | None
    seed: int
    began: float
    logged: ScriptMetrics | None = None
    noticed: Noticed | None = None
    begun: bool = False  # the script's first line may have been run
    trained: bool = False
    stopped: bool = False
    step: int = 0
    epoch: int = 0
    metrics: dict[str, float] | None = None
    slots: frozenset[int] = frozenset()
    told_of_imports: bool = False

    @property
    def displaced(self) -> bool:
        """Slots that this process computes on were asked back: however the script ends now, it begins again when it has slots."""
        wanted = self.link.wanted
        return bool(self.slots) and not self.stopped and wanted is not None and not self.slots <= {slot.id for slot in wanted.slots}

    def finish(self, outcome: str) -> None:
        """The journal's last line of this attempt."""
        if self.writer is None or self.displaced:
            return
        elapsed_s = time.monotonic() - self.began
        console.settle()
        if self.noticed is not None:
            self.noticed.look()
        self.take_logged(all_of_it=True)
        self.tell_of_imports()
        step, metrics = self.step, self.metrics or {}
        if self.logged is not None:
            step, metrics = step or self.logged.step, self.logged.latest | metrics
        self.writer.write(journal.Finished(outcome, step, self.epoch, metrics, elapsed_s))  # type: ignore[arg-type]
        writer = self.writer
        self.link.grown(storage.patiently(lambda: writer.flush(durable=True)))

    def take_logged(self, *, all_of_it: bool = False) -> None:
        """What the script has logged since goes into the journal."""
        if self.logged is None or self.writer is None or not (all_of_it or self.logged.due(time.monotonic())):
            return
        if self.logged.write_to_journal(all_of_it=all_of_it):
            self.tell_of_imports()
            with contextlib.suppress(OSError):  # a full disk: the writer keeps it
                self.link.grown(self.writer.flush())
                self.logged.keep_place()

    def tell_of_imports(self) -> None:
        """Once, when it has begun to train or to log, or has ended: what it imports at its start it has imported then."""
        if self.spec.environment and not self.told_of_imports:
            self.told_of_imports = self.link.imported(imported_modules.so_far())

    def failed(self, message: str, traceback: str = "") -> None:
        """The script itself has, and not because it was told to end."""
        if self.writer is not None and not self.displaced and not self.stopped:
            self.writer.write(journal.Failed(without_escapes(message), traceback, "driver"))

    def waits(self, error: BaseException) -> None:
        """The script could not write, which is not its fault. Said in the journal as far as that takes it."""
        if self.writer is not None:
            self.writer.write(journal.Warned(f"The script had no room on the disk: {type(error).__name__}: {error}. {NoRoom()}"))
            with contextlib.suppress(OSError):
                self.link.grown(self.writer.flush())


_current: Session | None = None


def current() -> Session | None:
    """The session of this process; None outside the studio."""
    return _current


def main(spec: RunSpec, listener: socket.socket, secret: str = "") -> int:
    """Run the script of `spec` to its end; the exit code: 0 completed or stopped, 1 script error, the script's own where it calls
    sys.exit, 75 where the disk is full and it should be started again when there is room."""
    global _current
    imported_modules.begin()
    tempfile.tempdir = None  # the warm process may have looked for it already; the run's own is TMPDIR
    begun_again = os.environ.pop(BEGUN_AGAIN, "")
    forks = ForkServer(spec.env.keys() | spec.secrets.keys()) if spec.torchrun else None  # from a process that has nothing yet
    try:
        writer = None if spec.remote else _journal(spec, begun_again=begun_again)
    except OSError as error:
        if error.errno not in storage.UNAVAILABLE:
            raise
        print(f"the journal cannot be opened: {error}", file=sys.stderr)  # noqa: T201
        return storage.EXIT_CODE
    console.forgive_full_disks()
    link = HostLink(listener, secret)
    if writer is not None:
        link.grown(writer.flush())
    seed = int(os.environ.get("EDT_SEED") or DEFAULT_SEED)
    link_thread = LinkThread(link, lambda: _stop_outside_train(session), look=lambda: session.take_logged(), every_s=LOOK_S)
    logged = None if writer is None else ScriptMetrics(Path(os.environ.get("LOG_DIR") or spec.result_dir), Path(spec.result_dir), writer)
    tracking.begin(spec, logged, os.environ)
    session = Session(spec, link, link_thread, writer, seed, time.monotonic(), logged)
    _current = session
    code = _run_workers(session, forks) if forks is not None else _run_alone(session)
    if code == storage.EXIT_CODE:
        return code
    session.finish("stopped" if session.stopped else "completed" if code == 0 else "failed")
    if writer is not None:
        writer.close()
    sys.stdout.flush()
    sys.stderr.flush()
    return 0 if session.stopped and session.slots else code  # the script's own word, of one that was told to end


def before_imports(slots: int, said: Mapping[str, str]) -> None:
    """In a spare process, which imports packages before it has a run: what `main` does before the script does. `slots`: that the script
    will compute on in this process; `said`: variables of its person."""
    tempfile.tempdir = None
    console.forgive_full_disks()
    if slots:
        single.set_threads(slots, said)
    sys.dont_write_bytecode = True
    finder.begin()
    trainers.install()
    imported_modules.begin()


def _journal(spec: RunSpec, *, begun_again: str) -> journal_writer.Writer:
    """`begun_again`: why, where the process of an attempt before has died."""
    path, mask = Path(spec.result_dir) / journal.FILE_NAME, Mask(spec.secrets.values())
    writer = MaskedWriter(path, spec.run, mask=mask) if mask else journal_writer.Writer(path, spec.run)
    if begun_again:
        writer.write(journal.Warned(f"It is started again: {begun_again}."))
    return writer


def _stop_outside_train(session: Session) -> None:
    """Stop was asked for while no training of ours runs. On the link's thread; the script may be anywhere. One that computes in this
    process is told as on a laptop: by SIGTERM where it handles that, else as by Ctrl-C. If it does not end the host ends it."""
    if session.stopped:
        return
    session.stopped = True
    if session.slots and session.begun:
        os.kill(os.getpid(), signal.SIGTERM if callable(signal.getsignal(signal.SIGTERM)) else signal.SIGINT)
        return
    session.finish("stopped")
    sys.stdout.flush()
    os._exit(0)


def _run_workers(session: Session, forks: ForkServer) -> int:
    """The script runs in processes of its own, as torchrun starts them."""
    assert session.writer is not None
    os.chdir(session.spec.code_dir)
    agent = Agent(
        session.spec, forks, session.link, session.writer, session.take_logged, lambda: session.logged.step if session.logged else 0
    )
    code = agent.run()
    forks.end()
    session.stopped = agent.outcome == "stopped"
    return code


def _run_alone(session: Session) -> int:
    """The script runs in this process; what it trains by train() in workers."""
    if not session.spec.elastic and not _takes_its_slots(session):
        session.stopped = True
        return 0
    if session.spec.elastic:
        hidden_gpus.begin()
    session.link_thread.start()
    if session.logged is not None:
        session.noticed = Noticed(session.logged.note, seed=session.seed)
        session.noticed.begin()
    try:
        code = _run_script(session)
        script_end.conclude()
    except KeyboardInterrupt:  # told to end when the script was over already
        code = 0
        if not session.stopped:
            raise
    session.link_thread.pause()
    return code


def _takes_its_slots(session: Session) -> bool:
    """A script that computes in this process begins when it has all of its slots. False: stopped before."""
    slots = single.slots_of(session.spec, session.link)
    if slots and session.writer is not None:
        session.slots = frozenset(slot.id for slot in slots)
        single.settle(slots, session.spec)
        single.hold(slots, session.link, session.writer)
    return bool(slots)


def _run_script(session: Session) -> int:
    spec = session.spec
    os.chdir(spec.code_dir)
    sys.argv = [*spec.argv[:1], *with_folders(spec.argv[1:], os.environ)]
    sys.dont_write_bytecode = True
    run = _runs(spec)
    if run is None:
        print(programs.missing(spec.argv[0]), file=sys.stderr)  # noqa: T201 - the console log
        session.failed(programs.missing(spec.argv[0]))
        return 1
    sys.path[0:0] = [str(folder_of_imports(spec.argv[0], spec.code_dir, spec.module)), *module_paths()]
    finder.begin()
    if not spec.elastic:
        trainers.install()
        continuing.begin_run(lambda: session.stopped)
    seed_everything(session.seed)
    imported_modules.begin()
    try:
        _run_to_the_end(run, session)
    except NoRoom as waits:
        print(waits, file=sys.stderr)  # noqa: T201
        return storage.EXIT_CODE
    except TrainingFailed as failed:
        print(failed, file=sys.stderr)  # noqa: T201 - the console log is what a person reads; the journal has it already
        return 1
    except SystemExit as stop:
        return _exit_code(session, stop)
    except BaseException as error:
        text = user_traceback(error, __file__)
        sys.stderr.write(text)
        if storage.lacks_room(error, Path(spec.result_dir)):
            session.waits(error)
            return storage.EXIT_CODE
        session.failed(f"{type(error).__name__}: {error}{advice.after(error)}", text)
        return 1
    return 0


def _runs(spec: RunSpec) -> Callable[[], None] | None:
    """What runs the script; None where it is a program that no package has."""
    if spec.module:
        return functools.partial(run_module_as_main, spec.module)
    path = programs.path_of(spec.argv[0]) if programs.is_program(spec.argv[0]) else Path(spec.code_dir) / spec.argv[0]
    return None if path is None else functools.partial(run_as_main, str(path))


def _run_to_the_end(run: Callable[[], None], session: Session) -> None:
    """In a worker that runs a loop of the script's, forked from here, the process ends with it."""
    try:
        session.begun = True
        run()
    except BaseException as error:
        becoming.conclude(error)
        raise
    becoming.conclude(None)


def _exit_code(session: Session, stop: SystemExit) -> int:
    """What the interpreter would have made of it: None is 0, a number itself, anything else is printed and 1."""
    if stop.code is None or isinstance(stop.code, int):
        code = int(stop.code or 0)
    else:
        print(stop.code, file=sys.stderr)  # noqa: T201
        code = 1
    if code:
        console.settle()
        session.failed(_on_exit(stop.code, last_line(Path(session.spec.result_dir, "log", "driver", "console.log"))))
    return 1 if code == storage.EXIT_CODE and not session.spec.remote else code  # that one is ours to say, as a remote agent does


def _on_exit(code: object, last_line: str) -> str:
    """A script that ends itself has said why in what it printed, as argparse does."""
    if not isinstance(code, int):
        return f"the script ended: {code}"
    return f"the script ended with status {code}" + (f", after it had printed: {last_line}" if last_line else "")

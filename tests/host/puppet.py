"""A driver for tests of the node host: a real process that speaks the real protocol, and does what the first argument of its run says.

It stands where the elastic engine's driver stands; its workers are real forked processes.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from training_runtime import journal, journal_writer
from training_runtime.elastic.driver.imported_modules import begin, so_far
from training_runtime.host import processes
from training_runtime.host.sockets import LineSocket
from training_runtime.imported import Imported
from training_runtime.protocol import Grown, Holding, Members, RunSpec, Stop, Worker, decode, encode


class Puppet:
    """Forks a sleeping worker for each slot and kills it when the slot goes; keeps a journal; obeys Stop."""

    def __init__(self, spec: RunSpec, listener: socket.socket) -> None:
        self.spec = spec
        self.listener = listener
        self.workers: dict[int, Worker] = {}
        self.revision = 0
        self.link: LineSocket | None = None
        self.journal = None if spec.remote else journal_writer.Writer(Path(spec.result_dir) / journal.FILE_NAME, spec.run)
        self.selector = selectors.DefaultSelector()
        self.stops_on_request = True
        self.work: Callable[[], object] = signal.pause  # what its workers do, again and again
        self.steps = 0

    def say(self, *messages: Holding | Grown | Imported) -> None:
        if self.link is not None:
            with contextlib.suppress(OSError):  # the host may be gone; the next one connects anew
                self.link.send(b"".join(encode(message) for message in messages))

    def holding(self) -> Holding:
        return Holding(tuple(self.workers.values()), self.revision)

    def note(self, text: str) -> None:
        if self.journal is not None:
            self.journal.write(journal.Warned(text))
        self.say(self.grown())

    def grown(self) -> Grown:
        return Grown(self.journal.flush() if self.journal is not None else 0)

    def serve(self) -> int:
        self.note(f"attempt {self.spec.attempt}")
        self.selector.register(self.listener, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                elif (code := self.hear()) is not None:
                    return code

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        self.link = LineSocket(connection)
        self.selector.register(self.link, selectors.EVENT_READ)
        self.say(self.holding(), self.grown())

    def hear(self) -> int | None:
        assert self.link is not None
        lines, is_open = self.link.receive()
        for line in lines:
            message = decode(line)
            if isinstance(message, Members):
                self.change(message)
            elif isinstance(message, Stop) and self.stops_on_request:
                return self.finish("stopped")
        if not is_open:
            self.selector.unregister(self.link)
            self.link.close()
            self.link = None
        return None

    def change(self, message: Members) -> None:
        wanted = {slot.id for slot in message.slots}
        for slot in set(self.workers) - wanted:
            os.kill(self.workers[slot].pid, signal.SIGKILL)
            os.waitpid(self.workers.pop(slot).pid, 0)
        for slot in wanted - set(self.workers):
            self.workers[slot] = fork_worker(slot, self.work)
        self.revision = message.revision
        self.note(f"members {sorted(wanted)}: {message.reason}")
        self.say(self.holding())

    def finish(self, outcome: str) -> int:
        for worker in self.workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
        if self.journal is not None:
            self.journal.write(journal.Finished(outcome, 1, 1, {}, 0.0))
            self.journal.close()
        return 0


def fork_worker(slot: int, work: Callable[[], object]) -> Worker:
    pid = os.fork()
    if pid == 0:
        while True:
            work()
    process = processes.look(pid)
    assert process is not None
    return Worker(slot, pid, process.start_ticks)


def obey(puppet: Puppet) -> int:
    return puppet.serve()


def share(puppet: Puppet) -> int:
    """Says where it is. As a remote agent it ends with the codes in its arguments, one each time that it is started, then obeys; and it
    claims that it has a journal."""
    spec = puppet.spec
    place = Path(spec.result_dir, "remote-agent" if spec.remote else "driver")
    with place.open("a") as file:
        words = (os.environ["LOG_DIR"], os.environ.get("EDT_ADDRESS", ""), str(Path.cwd()), str(spec.attempt))
        file.write(" ".join(words) + "\n")
    if spec.remote:
        os.write(1, b"a remote agent speaks\n")
        begun = len(place.read_text().splitlines())
        if begun < len(spec.argv):
            return int(spec.argv[begun])
        accept = puppet.accept
        puppet.accept = lambda: (accept(), puppet.say(Grown(1 << 30)))[0]  # type: ignore[method-assign]
    return puppet.serve()


def compute(puppet: Puppet) -> int:
    """Its workers keep the processor busy."""
    puppet.work = lambda: sum(range(1000))
    return puppet.serve()


def hoard(puppet: Puppet) -> int:
    """Each worker takes so many bytes once the file "take" is there."""
    kept: list[bytes] = []

    def take() -> None:
        if not kept and Path(puppet.spec.result_dir, "take").exists():
            kept.append(b"x" * int(puppet.spec.argv[1]))
        time.sleep(0.02)

    puppet.work = take
    return puppet.serve()


def script(puppet: Puppet) -> int:
    """Runs the script named by the second argument, as the engine's driver does."""
    sys.argv = list(puppet.spec.argv[1:])
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def imports(puppet: Puppet) -> int:
    """The same, and tells the host what packages the script has imported."""
    code = script(puppet)
    puppet.accept()
    assert puppet.link is not None
    select.select([puppet.link], [], [])  # the host has said who it is
    puppet.say(so_far())
    return code


def before_imports(_slots: int, _said: Mapping[str, str]) -> None:
    begin()


def stubborn(puppet: Puppet) -> int:
    """Ignores every request, and so does a program of its own session, and a forked child of another one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", ignore], start_new_session=True, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        orphan = orphaned_daemon()
        Path(puppet.spec.result_dir, "pids").write_text(f"{program.pid} {orphan}")
        puppet.stops_on_request = False
        return puppet.serve()


def orphaned_daemon() -> int:
    """A process forked twice, in a session of its own, whose parent has ended."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(writer, str(os.getpid()).encode())
            while True:
                signal.pause()
        os._exit(0)
    pid = int(os.read(reader, 32))
    os.wait()
    return pid


def crash(puppet: Puppet) -> int:
    """Dies by a signal in each attempt that is named in the second argument; leaves a daemon behind."""
    puppet.note(f"attempt {puppet.spec.attempt}")
    if str(puppet.spec.attempt) in puppet.spec.argv[1].split(","):
        Path(puppet.spec.result_dir, "pids").write_text(str(orphaned_daemon()))
        os.kill(os.getpid(), signal.SIGKILL)
    return puppet.serve()


def keep_slots(puppet: Puppet) -> int:
    """Says that it has given its slots back, while the workers go on."""
    puppet.stops_on_request = False
    original = puppet.change

    def change(message: Members) -> None:
        if message.slots:
            original(message)
        else:
            Path(puppet.spec.result_dir, "pids").write_text(" ".join(str(w.pid) for w in puppet.workers.values()))
            puppet.revision = message.revision
            puppet.say(Holding((), message.revision))

    puppet.change = change  # type: ignore[method-assign]
    return puppet.serve()


def grasping(puppet: Puppet) -> int:
    """Takes slots and gives none back: it does as if it had not heard, and starts anew whoever is killed."""
    original = puppet.change

    def change(message: Members) -> None:
        if {slot.id for slot in message.slots} >= puppet.workers.keys():
            original(message)

    puppet.change = change  # type: ignore[method-assign]
    return puppet.serve()


def slow(puppet: Puppet) -> int:
    """Takes in members only after a file has appeared; meanwhile it says again and again what it holds."""
    original = puppet.change

    def change(message: Members) -> None:
        while not Path(puppet.spec.result_dir, "go").exists():
            puppet.say(puppet.holding())
            puppet.note("waiting")
            time.sleep(0.01)
        original(message)

    puppet.change = change  # type: ignore[method-assign]
    return puppet.serve()


def nonsense(puppet: Puppet) -> int:
    """Sends what is no message, then a line without end, then claims the process in its arguments as a worker, then that it is itself at
    work on slots with numbers of thousands of digits; then behaves."""
    stranger = Worker(1, int(puppet.spec.argv[1]), int(puppet.spec.argv[2]))
    me = processes.look(os.getpid())
    boasts = Holding(tuple(Worker(10**4000 + number, me.pid, me.start_ticks) for number in range(200)))
    for hostile in (b"hello\n", b"x" * (3 << 20), encode(Holding((stranger,))) + b"{}\n", encode(boasts)):
        connection, _ = puppet.listener.accept()
        connection.settimeout(5)
        connection.recv(4096)  # the host has spoken, so it is listening
        with contextlib.suppress(OSError):
            connection.sendall(hostile)
            while connection.recv(4096):
                pass
        connection.close()
    return puppet.serve()


def newer(puppet: Puppet) -> int:
    """Says what the host does not know, again and again, before all that it does."""
    say = puppet.say

    def says_more(*messages: Holding | Grown | Imported) -> None:
        if puppet.link is not None:
            puppet.link.send(b'{"type":"in_the_next_version","x":1}\n' * 3)
        say(*messages)

    puppet.say = says_more  # type: ignore[method-assign]
    return puppet.serve()


def grow(puppet: Puppet) -> int:
    """Writes 300 journal lines as fast as it can once it is connected, and two by themselves."""
    puppet.accept()
    for number in range(300):
        puppet.note(f"line {number}")
    for number in range(2):
        time.sleep(0.1)
        puppet.note(f"word {number}")
    puppet.finish("completed")
    return 0


def stop_without_a_word(puppet: Puppet) -> int:
    raise ValueError("the script is wrong")


ACTS: dict[str, Callable[[Puppet], int]] = {
    act.__name__: act
    for act in (
        obey,
        share,
        compute,
        hoard,
        script,
        imports,
        stubborn,
        crash,
        keep_slots,
        grasping,
        slow,
        nonsense,
        newer,
        grow,
        stop_without_a_word,
    )
}


def main(spec: RunSpec, listener: socket.socket, secret: str) -> int:
    return ACTS[spec.argv[0]](Puppet(spec, listener))

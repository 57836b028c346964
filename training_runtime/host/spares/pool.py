"""The spare processes of this machine: each is boxed in and has imported the packages of one environment before a run needs it, is given
to one run, and is never used again. Part of the host's one thread.

None is ever needed: whatever goes wrong with one, the run is forked from the warm process as any other, and a line of the log says why.
What is decided is in `spare_plan`, what one is in `spare`, what it does in `ahead`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

from training_runtime import json_object
from training_runtime.errors import ProtocolError
from training_runtime.host import sockets
from training_runtime.host.meter import node_facts
from training_runtime.host.node import Node
from training_runtime.host.runs import begin, ending
from training_runtime.host.runs.launch import Hello, Launch, to_line
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sandbox import own_folder
from training_runtime.host.sandbox.cgroup_values import Most
from training_runtime.host.settings import Settings
from training_runtime.host.sockets import LineSocket
from training_runtime.host.spares import spare, spare_plan
from training_runtime.host.spares.ahead import Prepared
from training_runtime.host.spares.spare import Spare, group_name
from training_runtime.host.spares.spare_plan import Likeness, Wish
from training_runtime.host.state import SavedSpare
from training_runtime.imported import Imported
from training_runtime.records import build

log = logging.getLogger(__name__)
_MOST = Most(spare_plan.MOST_BYTES, spare_plan.MOST_PROCESSES)
_LOOK_S, _AGAIN_S, _LAST_WAIT_S, _MOST_WISHES = 5.0, 0.05, 5.0, 64
_FIRST_TO_GO, _AS_A_RUN = 1000, 500  # see proc(5), oom_score_adj
_SHOWN = b"shown"
Fork = Callable[[socket.socket, socket.socket, Path], None]


class Spares:
    """`fork`: of the warm process; `gpus`: whether this machine has any."""

    def __init__(self, settings: Settings, *, node: Node, fork: Fork, gpus: bool) -> None:
        self._node, self._fork, self._gpus, self._policy = node, fork, gpus, settings.policy
        self._most = settings.spares if node.groups.limit_memory else 0
        self._numbers = itertools.count(1)
        self._wishes: dict[Likeness, Wish] = {}
        self._requests: dict[Likeness, tuple[Launch, Imported]] = {}  # from which one for runs like that is made
        self._spares: dict[int, Spare] = {}
        self._given: dict[int, tuple[LiveRun, Likeness]] = {}
        self._ending: dict[SavedSpare, str] = {}  # with the name of its group
        self.due: float | None = None

    def begin(self) -> None:
        """Once, at the host's start: what is left of an earlier one's ends."""
        for path in self._node.folder.glob("spare-*"):
            path.unlink()
        self._ending = dict.fromkeys(self._node.spares, "")
        self._node.helpers.update(saved.shim for saved in self._ending)
        self.due = time.monotonic() if self._ending else None

    def groups(self) -> dict[str, int]:
        """Their control groups, which hold no slot."""
        return dict.fromkeys([*(each.group for each in self._spares.values()), *filter(None, self._ending.values())], 0)

    # --- making and ending --------------------------------------------------------------------------------------------------------------

    def note(self, request: Launch, imported: Imported) -> None:
        """A run that was launched with these has said what it has imported: the next one like it may find that done."""
        if not self._most:
            return
        if why := spare.unsuited(request, gpus=self._gpus):
            log.info("no spare process is made for such runs: %s run=%d", why, request.spec.run)
            return
        like, now = spare.likeness(request), time.monotonic()
        known = self._wishes.get(like)
        self._wishes[like], self._requests[like] = Wish(now, known.spoiled if known else ""), (request, imported)
        for old in sorted(self._wishes, key=lambda like: self._wishes[like].at)[:-_MOST_WISHES]:
            del self._wishes[old], self._requests[old]
        self.due = now

    def look(self, now: float, *, built: Callable[[], Collection[str]]) -> None:
        """Follow up what was begun, and make and end what is to be, as far as it is due."""
        self._follow_given()
        if self.due is None or now < self.due:
            return
        seen = [each.seen() for each in self._spares.values()]
        memory = spare_plan.Memory(node_facts.memory_bytes(), node_facts.memory_bytes("MemAvailable"))
        plan = spare_plan.plan(self._wishes, seen, now=now, most=self._most, memory=memory, built=built())
        for number, why in plan.drop:
            self._drop(self._spares[number], why)
        for like in plan.make:
            self._make(like, now)
        self._end_some()
        self.due = now + _AGAIN_S if self._ending else now + _LOOK_S if self._spares or plan.look_at is not None else None

    def _make(self, like: Likeness, now: float) -> None:
        request, imported = self._requests[like]
        given = {run.spare for run in self._node.runs.values()}  # by an earlier host, perhaps
        number = next(number for number in self._numbers if group_name(number) not in given)
        taken = {each.uid for each in self._spares.values()} | {run.uid for run in self._node.runs.values()}
        made = Spare(number, like, spare.a_user(self._policy, taken), now)
        ours, theirs = socket.socketpair()
        with theirs:
            made.gate = LineSocket(ours)
            try:
                self._node.groups.make(made.group, _MOST)
                made.request = spare.ahead(request, imported, uid=made.uid, groups=self._node.groups.doors(made.group))
                with sockets.listen(self._file(made, "sock")) as listener:
                    self._fork(theirs, listener, self._file(made, "exit"))
            except OSError as error:
                made.gate.close()
                log.warning("no spare process can be made now: %s", error)
                return
        self._spares[number] = made
        self._node.watch(made.gate, functools.partial(self._on_gate, made))

    def _file(self, made: Spare, kind: str) -> Path:
        """The socket or the exit file, under the name that it has before it is a run's."""
        return self._node.folder / f"{made.group}.{kind}"

    def _on_gate(self, made: Spare, _mask: int) -> None:
        """It speaks: who it is, then that it has imported all, after which it is code of packages that speaks, and not trusted."""
        if self._spares.get(made.number) is not made:
            return
        try:
            made.gate.flush()
            lines, is_open = made.gate.receive()
            for line in lines:
                self._receive(made, line)
        except (ProtocolError, OSError) as error:
            self._spoil(made.like, f"its spare process failed: {error}")
            return
        if not is_open:
            self._spoil(made.like, "its spare process ended")
        elif made.number in self._spares:
            self._node.watch(made.gate, functools.partial(self._on_gate, made))

    def _receive(self, made: Spare, line: bytes) -> None:
        if made.hello is None:
            made.hello = build(Hello, json_object.parse(line))
            saved = made.saved()
            self._node.spares.add(saved)
            self._node.helpers.add(saved.shim)
            if not self._node.save():  # before anything of packages runs: the next host has to find it
                raise OSError(self._node.unsaved)
            spare.set_kill_order(saved.pid, _FIRST_TO_GO)
            made.gate.send(to_line(made.request))
            return
        if made.ready:
            raise ProtocolError("it says more than it was asked")
        prepared = build(Prepared, json_object.parse(line))
        if prepared.problem or spare.has_children(made.saved()):
            raise ProtocolError(prepared.problem or "its packages start processes when they are imported")
        made.enter_ready()
        what = (made.like.environment[:12], prepared.prepared, made.hello.pid, time.monotonic() - made.made_at)
        log.info("a spare process is ready environment=%s modules=%d pid=%d after %.1f s", *what)
        self.due = time.monotonic()

    def _spoil(self, like: Likeness, why: str) -> None:
        """None is made any more for such runs: it would only go wrong again."""
        log.warning("runs of environment %s are started the usual way: %s", like.environment[:12], why[:500])
        if like in self._wishes:
            self._wishes[like] = Wish(self._wishes[like].at, spoiled=why[:500])
        self.due = time.monotonic()

    def _drop(self, made: Spare, why: str) -> None:
        log.info("a spare process goes: %s environment=%s", why[:500], made.like.environment[:12])
        del self._spares[made.number]
        self._node.unwatch(made.gate)
        made.close()
        for kind in ("sock", "exit"):
            self._file(made, kind).unlink(missing_ok=True)
        if made.hello is not None:
            self._ending[made.saved()] = made.group
        self._node.changed = True

    def _end_some(self) -> None:
        for saved in tuple(self._ending):
            if spare.kill(saved):
                del self._ending[saved]
                self._node.spares.discard(saved)
                self._node.helpers.discard(saved.shim)
                self._node.changed = True

    def end(self) -> None:
        """With the host; returns when nothing of any is left, or after a while."""
        for made in tuple(self._spares.values()):
            self._drop(made, "the host ends")
        until = time.monotonic() + _LAST_WAIT_S
        while self._ending and time.monotonic() < until:
            self._end_some()
            time.sleep(_AGAIN_S / 10)

    # --- giving one to a run ------------------------------------------------------------------------------------------------------------

    def give(self, run: LiveRun, request: Launch) -> bool:
        """Whether the run goes on in a spare process; it is begun the usual way where not. One that goes wrong before the run's script has
        begun ends, and then the next attempt is begun the usual way."""
        if not self._most or not request.environment_dir:
            return False
        why = spare.unsuited(request, gpus=self._gpus) or spare.begun(request)
        number = None
        if not why:
            number, why = spare_plan.choose(spare.likeness(request), [each.seen() for each in self._spares.values()])
        log.info("a run is started %s: %s run=%d", "the usual way" if number is None else "in a spare process", why, run.run)
        if number is None:
            return False
        made = self._spares[number]
        try:
            self._node.groups.widen(made.group)
            self._file(made, "exit").replace(self._node.exit_file(run))
            self._file(made, "sock").replace(self._node.socket_file(run))
        except OSError as error:
            self._drop(made, f"it could not be given to a run: {error}")
            return False
        self._hand_over(run, made, request)
        return True

    def _hand_over(self, run: LiveRun, made: Spare, request: Launch) -> None:
        """From here on it is the run's, and ends with it whatever comes."""
        node, saved = self._node, made.saved()
        del self._spares[made.number]
        node.unwatch(made.gate)
        run.uid, run.retry_at, run.socket_token = made.uid, None, secrets.token_hex(16)
        run.spare, run.gate, run.interrupted = (
            made.group,
            made.gate,
            True,
        )  # so that it is begun anew should it end before its script begins
        node.spares.discard(saved)
        node.helpers.discard(saved.shim)
        self._given[run.run] = run, made.like
        begin.met(node, run, made.met())
        spare.set_kill_order(saved.pid, _AS_A_RUN)
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            _show(made, request, writes)
        os.close(writes)
        node.helpers.add(child)
        node.watch(reads, functools.partial(self._on_shown, run, made, request, reads))
        self.due = time.monotonic()

    def _on_shown(self, run: LiveRun, made: Spare, request: Launch, reads: int, _mask: int) -> None:
        """The run's folder is in its box, or not: then the process ends."""
        said = os.read(reads, 1000)
        self._node.unwatch(reads)
        os.close(reads)
        made.close_namespace()
        if run.gate is not made.gate or run.phase != "launching":
            return  # it has ended meanwhile
        try:
            if said != _SHOWN:
                raise OSError(said.decode(errors="replace") or "it ended")
            box = dataclasses.replace(request.box, uid=made.uid)
            run.gate.send(to_line(dataclasses.replace(request, box=box, secret=run.socket_token)))
        except OSError as error:
            run.problem = f"its folder could not be shown to its spare process: {error}"
            ending.kill(self._node, run, now=time.monotonic(), reason=run.problem, interrupts=True)
            return
        self._node.watch(run.gate, functools.partial(begin.on_gate, self._node, run))

    def _follow_given(self) -> None:
        for number, (run, like) in tuple(self._given.items()):
            if run.phase == "launching":
                continue
            del self._given[number]
            if run.phase != "alive" and run.began_at == 0 and run.stop_asked_at is None:
                self._spoil(like, run.problem or "a run's spare process ended before its script began")


def _show(made: Spare, request: Launch, writes: int) -> NoReturn:
    """In a child of the host."""
    try:
        assert made.namespace is not None
        own_folder.show(made.namespace, spare.visible_paths(request), result=request.spec.result_dir, uid=made.uid)
        os.write(writes, _SHOWN)
    except BaseException as error:
        os.write(writes, str(error)[:1000].encode() or b"?")
    finally:
        os._exit(0)

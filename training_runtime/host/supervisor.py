"""The node host's loop: wait for something to happen, note the facts, ask `reconcile` what to do, do it, tell the subscribers. One thread.

Signals and sockets only change facts; the loop alone acts. It polls only what the kernel does not report: retries, and who is being killed.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import time
from typing import assert_never

from training_runtime import watchdog
from training_runtime.host import reconcile
from training_runtime.host.actions import Action, AskToStop, Decline, Forget, Kill, KillDriver, KillWorkers, Start, TellMembers, Terminate
from training_runtime.host.environments.builds import Environments
from training_runtime.host.lease import Lease
from training_runtime.host.meter.disk_watch import DiskWatch
from training_runtime.host.meter.free_space import FreeSpaceWatch
from training_runtime.host.meter.utilization import meter_of
from training_runtime.host.node import Node
from training_runtime.host.runs import begin, ending, talk
from training_runtime.host.runs.launcher import Launcher
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sandbox.levels import Abilities
from training_runtime.host.server import StudioServer
from training_runtime.host.settings import Settings
from training_runtime.protocol import Apply, NodeFacts, Observation, RunObservation, WantedRun

log = logging.getLogger(__name__)
_GROWTH_PAUSE_S = 0.05
_LOOK_S = 0.5
_SAFETY_NET_S = 5.0
_MAX_ROUNDS = 100
_LAST_WAIT_S = 15.0
_SAY_AGAIN_S = 60.0
_FILES_PAUSE_S = 0.5


class Supervisor:
    """Made once per process; `run` returns when the host is to end, with nothing left running."""

    def __init__(
        self,
        settings: Settings,
        *,
        node: Node,
        facts: NodeFacts,
        abilities: Abilities,
        own_environment: dict[str, str],
        space: FreeSpaceWatch,
    ) -> None:
        self._settings = settings
        self._node = node
        self._facts = facts
        self._wanted: dict[int, WantedRun] | None = None
        self._shutdown_since: float | None = None
        self._hurried = False
        self._server = StudioServer(node, on_apply=self._on_apply, look=self._observation)
        self._environments = Environments(settings, node=node, abilities=abilities, own=own_environment, base=facts.base)
        self._launcher = Launcher(
            settings, node=node, abilities=abilities, environments=self._environments, own=own_environment, gpus=bool(facts.gpus)
        )
        self._space = space
        self._disk = DiskWatch(settings, node=node)
        self._meter = meter_of(facts.gpus)
        self._lease = Lease(settings.lease_s, now=time.monotonic())
        self._pushed: Observation | None = None
        self._pushed_growth: dict[int, float] = {}
        self._signals = socket.socketpair()
        self._pinger = watchdog.Pinger()
        self._renewed_at = time.monotonic()
        self._files_said_at = -_SAY_AGAIN_S

    # --- the loop -------------------------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """The exit status: 0, or 1 where processes could not be killed within the time a shutdown may take."""
        self._listen_to_signals()
        self._environments.begin()
        self._launcher.begin()
        wake_at: float | None = None
        while not self._is_done() and not self._gives_up(time.monotonic()):
            self._pinger.turn(time.monotonic())
            try:
                wake_at = self._turn(wake_at)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                wake_at = self._without_files(time.monotonic(), error)
        return self._leave()

    def _turn(self, wake_at: float | None) -> float | None:
        self._node.wait(self._pause(wake_at))
        self._do_what_is_due(time.monotonic())
        self._meter.sample_if_due(self._node.runs.values())
        wake_at = self._settle()
        self._launcher.look_at_spares(time.monotonic())
        slots = {run.group: len(run.holding()) for run in self._node.runs.values() if run.phase != "ended"}
        self._node.groups.settle_gpus({run.group: run.gpus() for run in self._node.runs.values() if run.phase != "ended"})
        self._node.groups.settle(slots | self._environments.groups() | self._launcher.spares.groups())
        self._tell_subscribers(time.monotonic())
        return wake_at

    def _without_files(self, now: float, error: OSError) -> float:
        """Nobody can be looked at without a descriptor, so nothing is concluded of anybody; tried again in a moment. A host that ended here
        would find the same."""
        if now >= self._files_said_at + _SAY_AGAIN_S:
            self._files_said_at = now
            log.error("there is no descriptor left, the host waits until there is: %s", error.strerror)
        time.sleep(_FILES_PAUSE_S)
        return now

    def _gives_up(self, now: float) -> bool:
        """Processes that even SIGKILL does not end must not keep the machine from shutting down."""
        if self._shutdown_since is None:
            return False
        wrote_at = max((run.wrote_at for run in self._node.runs.values() if run.phase != "ended"), default=0.0)
        return now > reconcile.at_work_since(self._shutdown_since, wrote_at) + self._settings.rules.stop_grace_s + _LAST_WAIT_S

    def _is_done(self) -> bool:
        return self._shutdown_since is not None and all(run.phase == "ended" for run in self._node.runs.values())

    def _pause(self, wake_at: float | None) -> float:
        """Seconds until something is due by the clock."""
        due = [wake_at, self._launcher.warm.restart_at, *(run.retry_at for run in self._node.runs.values())]
        due += [self._disk.due, self._launcher.spares.due, self._lease.due(time.monotonic())]
        due += [self._space.due if self._node.runs or self._space.problem or self._node.unsaved else None]
        due += [self._pushed_growth.get(run, 0.0) + _GROWTH_PAUSE_S for run in self._node.grown]
        now = time.monotonic()
        return max(0.0, min([at - now for at in due if at is not None], default=_SAFETY_NET_S))

    def _leave(self) -> int:
        self._node.save()
        self._tell_subscribers(time.monotonic())
        self._server.close()
        self._environments.end()
        self._disk.end()
        self._launcher.end()
        self._node.groups.end()
        if not self._is_done():
            left = {run.run: run.stuck for run in self._node.runs.values() if run.phase != "ended"}
            log.error("the host ends, but processes of these runs could not be killed: %s", left)
            return 1
        log.info("the host ends, nothing is left running")
        return 0

    def _listen_to_signals(self) -> None:
        """A handler must be installed for a signal to reach the wake-up socket; it does nothing itself."""
        ours, theirs = self._signals
        ours.setblocking(False)
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)
        self._node.watch(ours, self._on_signal)

    def _on_signal(self, _mask: int) -> None:
        try:
            numbers = set(self._signals[0].recv(4096))
        except BlockingIOError:
            return
        if numbers & {signal.SIGTERM, signal.SIGINT}:
            if self._shutdown_since is None:
                log.info("shutting down: runs are asked to write a checkpoint and give back their slots")
                self._shutdown_since = time.monotonic()
            else:
                log.info("told again to shut down: not waiting any longer")
                self._hurried, self._shutdown_since = True, time.monotonic() - self._settings.rules.stop_grace_s
        self._reap()

    def _reap(self) -> None:
        """Our children are the warm process, helpers and whatever lost its own parent; drivers and shims are watched by their pidfds."""
        drivers = {run.pid for run in self._node.runs.values() if run.phase in ("launching", "alive", "clearing")}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._node.helpers.discard(pid)
            if pid == self._launcher.warm.pid:
                self._launcher.warm.reaped()
            elif pid in drivers:
                self._node.reaped[pid] = os.waitstatus_to_exitcode(status)
        for run in [run for run in self._node.runs.values() if run.phase == "clearing"]:
            ending.check_cleared(self._node, run)

    def _on_apply(self, message: Apply) -> None:
        if any(run.found and run.phase != "ended" for run in self._node.runs.values()):
            log.info("a snapshot has to wait until the runs that were found among the processes have ended")
            return
        if message.fence > self._node.revision:
            ending.fence(self._node)
        if message.identity not in ("", self._facts.identity):
            log.warning("a snapshot for another host of this name is ignored: give each machine a name of its own (EDT_NODE)")
            return
        if message.revision < self._node.revision and self._wanted is not None:
            log.info("an older snapshot is ignored revision=%d seen=%d", message.revision, self._node.revision)
            return
        if message.revision > self._node.revision or self._wanted is None:  # one that is repeated is no news of the studio
            self._lease.renew(time.monotonic())
        self._node.revision = max(message.revision, self._node.revision)
        self._wanted = {wish.spec.run: wish for wish in message.runs}
        for run, wish in self._wanted.items():
            known = self._node.runs.get(run)
            if known is not None and known.remote == wish.spec.remote:
                known.spec = known.spec or wish.spec
        self._meter.sample_if_due(self._node.runs.values(), hurry=True)  # the answer says what was measured
        self._environments.apply(message.environments, message.drop)
        self._settle()

    # --- deciding and acting --------------------------------------------------------------------------------------------------------------

    def _settle(self) -> float | None:
        """Decide and act until there is nothing to do now. Returns when to decide again, if nothing happens before."""
        for _ in range(_MAX_ROUNDS):
            now = time.monotonic()
            if self._hurried:
                for run in self._node.runs.values():
                    run.wrote_at = 0.0
            seen = {number: run.seen() for number, run in self._node.runs.items()}
            decision = reconcile.decide(
                self._wanted,
                seen,
                now=now,
                rules=self._settings.rules,
                shutdown_since=self._shutdown_since,
                storage=self._space.problem or self._node.unsaved,
                lease=self._lease.problem(now),
            )
            if not decision.actions:
                return decision.wake_at
            for action in decision.actions:
                self._act(action, now)
        log.error("decisions do not settle: %s", decision.actions[:3])
        return time.monotonic() + 1.0

    def _act(self, action: Action, now: float) -> None:
        run = self._node.runs.get(action.run)
        if not isinstance(action, Kill):  # repeated until nothing is left; said where something is killed
            log.info("%s: %s run=%d", type(action).__name__, action.reason, action.run)
        match action:
            case Start():
                self._start(action)
            case Decline():
                assert self._wanted is not None
                begin.decline(self._node, self._wanted[action.run].spec, attempt=action.attempt, reason=action.reason)
            case _ if run is None:
                return
            case TellMembers():
                self._meter.sample(self._node.runs.values(), hurry=True)  # those who leave are gone at the next look
                talk.tell(self._node, run, action, revision=self._node.revision)
            case AskToStop():
                self._meter.sample(self._node.runs.values(), hurry=True)
                talk.ask_to_stop(self._node, run, reason=action.reason, now=now)
            case Terminate():
                ending.terminate(run, now=now, interrupts=action.interrupts)
            case Kill():
                ending.kill(self._node, run, now=now, reason=action.reason, interrupts=action.interrupts)
            case KillDriver():
                ending.kill_driver(self._node, run, now=now, interrupts=action.interrupts)
            case KillWorkers():
                ending.evict(run, now=now)
            case Forget():
                del self._node.runs[action.run]
                self._pushed_growth.pop(action.run, None)
            case _:
                assert_never(action)
        self._node.changed = True

    def _start(self, action: Start) -> None:
        assert self._wanted is not None
        spec = self._wanted[action.run].spec
        counts = {"restarts": action.restarts, "losses": action.losses}
        run = begin.record(self._node, spec, attempt=action.attempt, reason=action.reason, **counts)
        self._launcher.launch(run)

    def _do_what_is_due(self, now: float) -> None:
        """What the clock brings: failed launches and connections tried again, the warm process restarted, leftovers looked at."""
        if now >= self._space.due:
            self._look_at_space(now)
        self._disk.look_if_due(now)
        if now >= self._renewed_at + _SAFETY_NET_S:
            self._renewed_at = now
            self._server.renew()
        self._launcher.restart_warm_if_due(now)
        for run in tuple(self._node.runs.values()):
            if run.retry_at is not None and now >= run.retry_at:
                run.retry_at = None
                if run.phase == "alive":
                    talk.connect(self._node, run)
                elif run.phase == "launching":  # or when the warm process is ready, if it is not now
                    self._launcher.launch(run)
            if run.phase == "clearing":
                ending.look_for_writing(run, now=now)
                ending.check_cleared(self._node, run)
            elif run.phase == "alive" and now >= run.looked_at + _LOOK_S:
                ending.look_at(run, now=now)

    def _look_at_space(self, now: float) -> None:
        if self._node.unsaved:
            self._node.save()
        if self._space.look(now, unsaved=self._node.unsaved):
            self._node.changed = True

    def _observation(self, *, measured: bool = True) -> Observation:
        runs = tuple(self._seen(run, measured=measured) for _, run in sorted(self._node.runs.items()))
        return Observation(
            revision=self._node.revision,
            node=self._facts,
            runs=runs,
            warm=self._launcher.warm.ready,
            storage_problem=self._space.problem,
            gpus=self._meter.health(),
            environments=self._environments.seen() if measured else None,
            folders=self._environments.folders() if measured else None,
        )

    def _seen(self, run: LiveRun, *, measured: bool) -> RunObservation:
        abandoned = reconcile.has_given_up(run.seen(), self._settings.rules)
        return run.observation(goes_on=self._goes_on(run.run), measured=measured, abandoned=abandoned)

    def _goes_on(self, number: int) -> bool:
        wish = self._wanted.get(number) if self._wanted is not None else None
        to_be_stopped = wish.stop if wish is not None else self._wanted is not None
        return not to_be_stopped and reconcile.goes_on(self._node.runs[number].seen(), self._settings.rules)

    def _tell_subscribers(self, now: float) -> None:
        """State at once; growth of journals at once too, but for each run at most every 50 ms, and without what each slot did: nobody keeps
        that twenty times a second, and with a hundred slots it would be most of the message."""
        node = self._node
        growth = {run for run in node.grown if now - self._pushed_growth.get(run, 0.0) >= _GROWTH_PAUSE_S}
        if not node.changed and not growth:
            return
        measured, node.changed = node.changed, False
        if measured:
            node.save()
        self._pushed_growth |= dict.fromkeys(node.grown, now)
        node.grown.clear()
        observation = self._observation(measured=measured)
        if observation != self._pushed:
            self._pushed = observation
            self._server.push(observation)

"""What a machine must do: pure. Wanted runs and observed runs in, a list of actions with reasons out. Standard library only, no I/O, no
clock.

Level-triggered: it is asked again after anything has happened, and whenever `wake_at` has come; asking twice changes nothing. The
supervisor carries the actions out and writes into the observed facts that it did.

What there is of a run on a machine is its driver or, where that is on another machine, its remote agent: never both, and the one is proven
gone before the other is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from training_runtime.crashes import GOT_ON_S, ended_how
from training_runtime.host.actions import Action, AskToStop, Decline, Forget, Kill, KillDriver, KillWorkers, Start, TellMembers, Terminate
from training_runtime.meeting import Meeting
from training_runtime.protocol import SlotRef, WantedRun

# launching: a child is forked or boxes itself in; alive: the driver runs; clearing: it is gone, others may not be; ended: nobody is left.
Phase = Literal["launching", "alive", "clearing", "ended"]
LOST = 75  # EX_TEMPFAIL, the exit code of a remote agent that has lost its driver or cannot find it; of a driver see `storage.EXIT_CODE`

LATER_THAN_THE_DRIVER = 5  # the driver ends a worker that does not leave its slot, at the latest after four times EDT_RELEASE_GRACE_S


@dataclass(frozen=True)
class Rules:
    """Settings of an administrator, in seconds. `stop_grace_s`: from the request to SIGTERM. `term_grace_s`: from there to SIGKILL.
    `orphan_grace_s`: for workers to write down their state when their driver is gone. `stopped_driver_s`: for which a driver may be stopped
    by a signal. `agent_pause_s`: before a remote agent that has lost its driver is started again, longer each time; one that has lived for
    `steady_s` begins to count anew. `restart_...`, `driver_steady_s`: the same of drivers, which begin again at once after a first crash;
    `got_on_s` where they have trained. `release_grace_s`: for which a slot that was asked back may stay in use."""

    stop_grace_s: float = 10.0
    term_grace_s: float = 2.0
    kill_again_s: float = 0.2
    orphan_grace_s: float = 30.0
    stopped_driver_s: float = 20.0
    max_restarts: int = 6
    agent_pause_s: float = 0.5
    agent_longest_pause_s: float = 8.0
    steady_s: float = 60.0
    restart_pause_s: float = 0.5
    restart_longest_pause_s: float = 60.0
    driver_steady_s: float = 600.0
    got_on_s: float = GOT_ON_S
    release_grace_s: float = 30.0


@dataclass(frozen=True)
class SeenRun:
    """A run as the host knows it.

    `members`: the slots last told to the driver, None before the first time. `exit_code` of the driver, None while it lives. `restarts`
    counts those after a crash. `interrupted`: it was ended by a shutdown of the host or of the machine, for no fault of its own.
    `connected`: the driver's socket is open, so it can be told something. `orphaned_at`: since when workers are without a driver, None
    where there are none. `stopped_at`: since when the driver is stopped by a signal (SIGSTOP), as far as was seen. `unreachable_at`: since
    when its socket is gone. `remote`: it is the run's remote agent here and not its driver; `restarts` counts those after it failed,
    `losses` those after it had lost its driver (of a driver: after it had found the disk full). `fenced`: its machine was declared lost, so
    it is killed and asked nothing. `ended_at`: when nothing was left of it, `lived_s`: how long it had run by then. `overdue_since`: since
    when a slot that was asked back is in use and nothing is seen of its state being written; `evicted_at`: when something was killed for
    that. `wrote_at`: when it was last seen to write its state. `doomed`: why it has to end, and would have to again. `got_on`: this attempt
    has done steps that none had done before. `in_driver`: its driver itself computes on its slots, which are free when it has ended.
    `release_grace_s`: the run's own time for that rule, where it has one. `meeting`, `suspended`: what it was told last of where its driver
    is met, and that it may have no slot anywhere.
    """

    run: int
    attempt: int
    phase: Phase
    members: tuple[SlotRef, ...] | None = None
    holding: tuple[int, ...] = ()
    stop_asked_at: float | None = None
    terminated_at: float | None = None
    killed_at: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    interrupted: bool = False
    connected: bool = True
    orphaned_at: float | None = None
    stopped_at: float | None = None
    unreachable_at: float | None = None
    remote: bool = False
    losses: int = 0
    fenced: bool = False
    ended_at: float = 0.0
    lived_s: float = 0.0
    overdue_since: float | None = None
    release_grace_s: float | None = None
    evicted_at: float | None = None
    wrote_at: float = 0.0
    doomed: str = ""
    got_on: bool = False
    in_driver: bool = False
    meeting: Meeting | None = None
    suspended: bool = False


@dataclass(frozen=True)
class Decision:
    """`wake_at`: ask again at that time even if nothing has happened (None: no need)."""

    actions: tuple[Action, ...]
    wake_at: float | None = None


def decide(
    wanted: Mapping[int, WantedRun] | None,
    seen: Mapping[int, SeenRun],
    *,
    now: float,
    rules: Rules,
    shutdown_since: float | None = None,
    storage: str = "",
    lease: str = "",
) -> Decision:
    """What to do now. `wanted` is None until the studio has spoken: then nothing is started, stopped or forgotten, only cleared away.

    `storage`: why nothing can be written here, empty where it can. Until then nothing begins, and what runs holds no slot, whatever is
    wanted: it is suspended, and goes on when there is room. `lease`: why the machine's lease on its slots is over, empty while it lasts:
    the same, also before the studio has spoken, and who does not leave its slots is made to.
    """
    actions: list[Action] = []
    times: list[float] = []
    for run in sorted(set(seen) | set(wanted or {})):
        facts = seen.get(run)
        if shutdown_since is not None:
            step = _shut_down(facts, now, rules, shutdown_since) if facts else None
        elif wanted is None:
            step = _unled(facts, now, rules, lease) if facts else None
        else:
            step = _settle(run, wanted.get(run), facts, now, rules, storage, lease)
        if isinstance(step, Start) and (storage or lease):
            continue
        if isinstance(step, (int, float)):
            times.append(step)
        elif step is not None:
            actions.append(step)
    return Decision(tuple(actions), min(times, default=None))


Step = Action | float | None  # an action, or when to ask again, or nothing to do


def _unled(facts: SeenRun, now: float, rules: Rules, lease: str) -> Step:
    """What an earlier host has left, of which the studio has not spoken yet."""
    if facts.phase == "clearing":
        return _clear(facts, now, rules)
    if lease and facts.phase == "alive":
        return _suspend(facts, lease) or _take_back(facts, now, rules)
    return None


def _settle(run: int, wish: WantedRun | None, facts: SeenRun | None, now: float, rules: Rules, storage: str = "", lease: str = "") -> Step:
    if facts is not None and facts.fenced and facts.phase != "ended":
        return _clear(facts, now, rules)
    if wish is None:
        if facts is None or facts.phase == "ended":
            return Forget(run, "it has ended and the studio knows") if facts else None
        if facts.phase == "alive" and not (facts.remote or facts.holding) and facts.stop_asked_at is None:
            # Suspended, so its state is written down: there is nothing that asking would save, and it may go on elsewhere.
            gone = "the studio no longer lists this run"
            return Kill(run, gone, interrupts=True) if facts.killed_at is None else _clear(facts, now, rules)
        return _stop(facts, "the studio no longer lists this run", now, rules)
    if facts is not None and facts.remote != wish.spec.remote:
        return _change_role(facts, now, rules)
    if facts is None:
        if wish.spec.remote and (wish.stop or not wish.slots):
            return None
        if wish.stop:
            return Decline(run, wish.spec.attempt, wish.reason)
        return Start(run, wish.spec.attempt, 0, wish.reason)
    if facts.phase == "clearing":
        return _clear(facts, now, rules)
    if facts.phase == "ended":
        again = _begin_agent_again(wish, facts, now, rules) if facts.remote else _begin_again(wish, facts, now, rules)
        return None if wish.stop else again
    if wish.stop or facts.stop_asked_at is not None:
        return _stop(facts, wish.reason, now, rules)
    if facts.doomed:
        return Kill(run, facts.doomed) if facts.killed_at is None else _clear(facts, now, rules)
    slots, reason = ((), storage or lease) if storage or lease else (wish.slots, wish.reason)
    suspend = bool(lease) and not facts.remote  # a driver that nobody hears must not go on with workers elsewhere
    news = (facts.members, facts.suspended, facts.meeting) != (slots, suspend, wish.spec.meeting)
    if news and facts.connected and facts.phase == "alive":
        return TellMembers(run, slots, reason, suspend, wish.spec.meeting)
    if facts.stopped_at is not None:
        due = facts.stopped_at + rules.stopped_driver_s
        return due if now < due else KillDriver(run, f"the driver was stopped for {rules.stopped_driver_s:g} s")
    if facts.unreachable_at is not None and facts.phase == "alive":
        due = facts.unreachable_at + rules.stopped_driver_s
        return due if now < due else KillDriver(run, "the driver's socket is gone, so it can be told nothing")
    return _take_back(facts, now, rules) if facts.phase == "alive" and not storage else None


def _suspend(facts: SeenRun, reason: str) -> Step:
    """Nothing of the run is to be at work; nor, where its driver is here, with workers elsewhere. None where that is said, or cannot be."""
    if not facts.connected or (facts.members == () and (facts.remote or facts.suspended)):
        return None
    return TellMembers(facts.run, (), reason, not facts.remote, facts.meeting)


def _take_back(facts: SeenRun, now: float, rules: Rules) -> Step:
    """A slot that was asked back must be free in the end, whatever the run does. The others may go on without its worker; where the run is
    to be suspended, or that did not help, its workers get a last moment to write down their state."""
    if facts.overdue_since is None:
        return None
    if facts.in_driver and facts.terminated_at is None:
        return Terminate(facts.run, "its slots were asked back, and its script is on them", interrupts=True)
    grace_s = facts.release_grace_s or rules.release_grace_s
    due = max(facts.overdue_since, facts.evicted_at or 0.0) + grace_s
    if now < due:
        return due
    late = f"a slot that was asked back was still in use after {grace_s:g} s"
    if facts.members and facts.evicted_at is None and not facts.in_driver:
        return KillWorkers(facts.run, late)
    return KillDriver(facts.run, late, interrupts=True)


def _change_role(facts: SeenRun, now: float, rules: Rules) -> Step:
    """The run's driver is to be here where its remote agent is, or the other way round. What is wanted begins after the end of what is."""
    if facts.phase == "ended":
        return Forget(facts.run, "it ended as the run's remote agent" if facts.remote else "the run's driver is elsewhere now")
    return _settle(facts.run, None, facts, now, rules)


def _begin_again(wish: WantedRun, facts: SeenRun, now: float, rules: Rules) -> Step:
    """An ended run that is still wanted: a new attempt asked for, an interruption, a crash; anything else is the studio's to see."""
    if wish.spec.attempt > facts.attempt:
        return Start(facts.run, wish.spec.attempt, 0, wish.reason)
    if facts.interrupted:
        return Start(facts.run, facts.attempt + 1, facts.restarts, "it was interrupted; the run goes on where it was", facts.losses)
    if not goes_on(facts, rules):
        return None
    restarts, losses = (0, 0) if _is_steady(facts, rules) else (facts.restarts, facts.losses)
    if facts.exit_code == LOST:
        pause_s, why, losses = rules.restart_pause_s * 2**losses, "there was no room on its disk", losses + 1
    else:
        pause_s, restarts = rules.restart_pause_s * 4 ** min(restarts, 16) if restarts else 0.0, restarts + 1
        why = f"{ended_how(facts.exit_code)}; restart {restarts} of {rules.max_restarts}"
    due = facts.ended_at + min(pause_s, rules.restart_longest_pause_s)
    return due if now < due else Start(facts.run, facts.attempt + 1, restarts, why, min(losses, 16))


def _begin_agent_again(wish: WantedRun, facts: SeenRun, now: float, rules: Rules) -> Step:
    """An ended remote agent of a run that holds slots here. However it ended, that is no failure of the run."""
    if not wish.slots:
        return None
    if wish.spec.attempt > facts.attempt:  # the run itself began anew: what kept its remote agent from working may be gone
        return Start(facts.run, wish.spec.attempt, 0, wish.reason)
    if has_given_up(facts, rules):
        return None
    steady = facts.lived_s >= rules.steady_s
    restarts, losses = (0, 0) if steady else (facts.restarts, facts.losses)
    if facts.interrupted or facts.stop_asked_at is not None:
        return Start(facts.run, facts.attempt, restarts, wish.reason, losses)
    if facts.exit_code == LOST:
        pause_s, why, losses = rules.agent_pause_s * 2**losses, "the remote agent has lost the run's driver", losses + 1
    elif facts.exit_code == 0:  # the training is over, which the studio will hear; should it still want slots here, it gets them
        pause_s, why = rules.agent_longest_pause_s, "slots here are still wanted"
    else:
        pause_s, restarts = rules.agent_pause_s * 4 ** (min(restarts, 16) + 1), restarts + 1
        why = f"{ended_how(facts.exit_code, 'agent')}; restart {restarts} of {rules.max_restarts}"
    due = facts.ended_at + min(pause_s, rules.agent_longest_pause_s)
    return due if now < due else Start(facts.run, facts.attempt, restarts, why, min(losses, 16))


def has_given_up(facts: SeenRun, rules: Rules) -> bool:
    """Whether a remote agent is not started again: it has failed again and again, so this machine is none for the run."""
    failed = facts.exit_code not in (None, 0, LOST) and facts.stop_asked_at is None and not facts.interrupted
    return facts.remote and facts.phase == "ended" and failed and facts.restarts >= rules.max_restarts and facts.lived_s < rules.steady_s


def goes_on(facts: SeenRun, rules: Rules) -> bool:
    """Whether an ended run gets another attempt by itself as long as it is wanted: then its end is not the studio's to see.

    That is after an interruption, where the disk was full, and after a signal that nobody here has sent, a limited number of times
    without getting on. Any other exit code above zero is the script's own and would only repeat. A remote agent: until it fails too often.
    """
    if facts.remote:
        return facts.phase == "ended" and not has_given_up(facts, rules)
    if facts.phase != "ended" or facts.interrupted:
        return facts.phase == "ended"
    crashed = facts.exit_code is not None and facts.exit_code < 0
    again = crashed and (facts.restarts < rules.max_restarts or _is_steady(facts, rules))
    return facts.stop_asked_at is None and not facts.doomed and (again or facts.exit_code == LOST)


def _is_steady(facts: SeenRun, rules: Rules) -> bool:
    """Whether the attempts before this one do not count any more: it got on, or lasted where that cannot be told."""
    return facts.lived_s >= (rules.got_on_s if facts.got_on else rules.driver_steady_s)


def _stop(facts: SeenRun, reason: str, now: float, rules: Rules) -> Step:
    """Ask, then SIGTERM, then SIGKILL until nothing is left."""
    if facts.phase == "launching":  # no user code has run yet: nothing to be asked
        return Kill(facts.run, reason) if facts.killed_at is None else _clear(facts, now, rules)
    if facts.phase == "clearing":
        return _clear(facts, now, rules)
    if facts.stop_asked_at is None:
        return AskToStop(facts.run, reason)
    if facts.doomed and facts.killed_at is None:
        return Kill(facts.run, facts.doomed)
    if facts.terminated_at is None:
        due = at_work_since(facts.stop_asked_at, facts.wrote_at) + rules.stop_grace_s
        return due if now < due else Terminate(facts.run, f"it did not stop within {rules.stop_grace_s:g} s")
    if facts.killed_at is None:
        due = facts.terminated_at + rules.term_grace_s
        return due if now < due else Kill(facts.run, f"SIGTERM did not end it within {rules.term_grace_s:g} s")
    return _clear(facts, now, rules)


def _clear(facts: SeenRun, now: float, rules: Rules) -> Step:
    """Kill what is left, again and again: new processes may have been forked while the old ones were being killed. But first workers that
    have lost their driver may write down what they know."""
    orphaned_at = facts.orphaned_at if facts.killed_at is None and not facts.doomed else None
    if orphaned_at is not None and now < (due := at_work_since(orphaned_at, facts.wrote_at) + rules.orphan_grace_s):
        return due
    due = now if facts.killed_at is None else facts.killed_at + rules.kill_again_s
    return due if now < due else Kill(facts.run, "not all of its processes are gone yet")


def at_work_since(asked_at: float, wrote_at: float, *, longest_s: float = 900.0) -> float:
    """From when a grace time counts: from the last byte of its state that a run was seen to write. But it cannot go on for ever."""
    return max(asked_at, min(wrote_at, asked_at + longest_s))


def _shut_down(facts: SeenRun, now: float, rules: Rules, since: float) -> Step:
    """Let the engine write its checkpoint and give back its slots, then end the driver; the run itself goes on at the next start."""
    if facts.phase == "ended":
        return None
    if facts.phase == "clearing" or facts.killed_at is not None or facts.doomed:
        return _clear(facts, now, rules)
    if facts.stop_asked_at is not None:
        return _stop(facts, "", now, rules)
    if facts.phase == "launching":
        return Kill(facts.run, "the studio is shutting down", interrupts=True)
    if (told := _suspend(facts, "the studio is shutting down")) is not None:
        return told
    if not facts.holding:
        return Kill(facts.run, "it is suspended, the studio is shutting down", interrupts=True)
    if facts.in_driver and facts.terminated_at is None:
        return Terminate(facts.run, "the studio is shutting down", interrupts=True)
    due = at_work_since(since, facts.wrote_at) + rules.stop_grace_s
    late = f"it did not suspend within {rules.stop_grace_s:g} s, the studio is shutting down"
    return due if now < due else Kill(facts.run, late, interrupts=True)

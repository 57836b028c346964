"""A run as it goes: its log to the output, its states and metrics beside it, until it has ended."""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from typing import Any

import click

from edt_client import operations
from edt_client.cli import output
from edt_client.client import Run
from edt_client.errors import ClientError, NoAnswer
from edt_client.plots import number
from edt_client.things import Event, RunFacts

AGAIN_S = 1.0
SAID_EVERY_S = 2.0
LOG = "driver"
MOST_LOGS = 60  # that are followed at a time: a studio sends no more than some


class Followed:
    """`as_json`: a line of JSON for each thing that happens. What was said of its state goes to the standard error, its log to the
    output. A script that torchrun starts prints in its workers: what they print is there, too, each line with the worker's name."""

    def __init__(self, run: Run, *, as_json: bool, quiet: bool = False) -> None:
        self.run, self.as_json, self.quiet = run, as_json, quiet
        self.offsets, self._begun = {LOG: 0}, {LOG: ""}  # by log; and what was begun of a worker's line
        self._said, self._at = "", 0.0
        self._has_workers = _is_torchrun(run)

    def to_the_end(self) -> RunFacts:
        """Raises KeyboardInterrupt where somebody presses Ctrl-C."""
        self._state(self.run.facts)
        while not self.run.facts.has_ended:
            topics = self._topics()
            try:
                for event in self.run.studio.events(f"run-{self.run.facts.id}", *topics):
                    self._happened(event)
                    if self.run.facts.has_ended or event.type == "bye" or len(self._topics()) > len(topics):
                        break
            except NoAnswer as lost:
                self._note(f"{lost} The run goes on; trying again.")
            if not self.run.facts.has_ended and len(self._topics()) == len(topics):
                time.sleep(AGAIN_S)  # also after "bye": who has too many streams would ask for one again and again
            self._look()
        self._find_logs()
        for name in self.offsets:
            self._rest_of_the_log(name)
        return self.run.facts

    def _topics(self) -> list[str]:
        """Of the logs that are followed; what the others have is there at the end."""
        return [f"log-{self.run.facts.id}-{name}@{offset}" for name, offset in list(self.offsets.items())[:MOST_LOGS]]

    def _find_logs(self) -> None:
        """Those of workers that have come."""
        if not self._has_workers:
            return
        with suppress(ClientError):  # then the next time
            for each in self.run.studio.do(operations.logs(self.run.facts.id)):
                self.offsets.setdefault(each.name, 0)

    def _happened(self, event: Event) -> None:
        if event.type == "log":
            said, name = event.data, str(event.data.get("topic", "")).removeprefix(f"log-{self.run.facts.id}-")
            if int(said.get("size", 0)) < self.offsets.get(name, 0) and not said.get("text"):
                self.offsets[name] = int(said["size"])
                self._note("The middle of a log that had become too long was left out; it goes on from there.")
            else:
                self._log(name, str(said.get("text", "")), int(said.get("begin", 0)), int(said.get("end", 0)))
        elif event.type == "points":
            self._points(event.data)
        elif event.type in ("subscribed", "completed", "changed"):
            self._look()

    def _look(self) -> None:
        try:
            self.run.refresh()
        except NoAnswer:
            return
        self._find_logs()
        self._state(self.run.facts)

    def _state(self, facts: RunFacts) -> None:
        waits = facts.plan_reason if facts.state in ("queued", "suspended") else ""
        slots = f"{facts.slots} slot{'s' * (facts.slots > 1)}" if facts.slots else ""
        said = " · ".join(each for each in (facts.state, slots, waits or facts.error_message) if each)
        if said == self._said:
            return
        self._said = said
        if self.as_json:
            output.say_json({"event": "state", "run": facts.id, "state": facts.state, "slots": facts.slots, "reason": facts.state_reason})
        else:
            self._note(said)

    def _points(self, said: dict[str, Any]) -> None:
        """[group, name, step, time, value, ...] of each, the last of each name."""
        last = {f"{each[0]} {each[1]}": (each[2], each[4]) for each in said.get("points", []) if len(each) > 4}
        if not last:
            return
        if self.as_json:
            values = {name: {"step": step, "value": value} for name, (step, value) in last.items()}
            output.say_json({"event": "metrics", "run": self.run.facts.id, "metrics": values})
        elif time.monotonic() - self._at > SAID_EVERY_S:
            self._at = time.monotonic()
            words = ", ".join(f"{name} {number(value)}" for name, (_, value) in sorted(last.items())[:4] if value is not None)
            self._note(f"step {max(step for step, _ in last.values())} · {words}")

    def _log(self, name: str, text: str, begin: int, end: int) -> None:
        if name not in self.offsets or begin < self.offsets[name]:  # it was sent before
            return
        self.offsets[name] = end
        if self.as_json:
            output.say_json({"event": "log", "run": self.run.facts.id, **({} if name == LOG else {"log": name}), "text": text})
        else:
            click.echo(text if name == LOG else self._whole_lines(name, text), nl=False)
        if name == LOG and self._has_workers:  # it says when workers come
            self._find_logs()

    def _whole_lines(self, name: str, text: str) -> str:
        """Those of a worker, whose name is before each: lines of several processes are not to be torn by each other."""
        text = self._begun.get(name, "") + text
        whole = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._begun[name] = text[whole:]
        return re.sub(r"(^|[\n\r])(?=[^\n\r])", rf"\1[{name}] ", text[:whole])

    def _rest_of_the_log(self, name: str) -> None:
        try:
            while (tail := self.run.studio.do(operations.log(self.run.facts.id, name, offset=self.offsets[name]))).text:
                self._log(name, tail.text, tail.begin, tail.end)
        except Exception as missing:  # a run that never began has no log; nothing of its outcome depends on it
            self._note("" if self.as_json else f"(no more of its log: {missing})") if self.offsets[name] else None
        if self._begun.get(name):
            click.echo(self._whole_lines(name, "\n"), nl=False)

    def _note(self, said: str) -> None:
        if said and not self.as_json and not self.quiet:
            sys.stderr.write(f"\x1b[2m— {said}\x1b[0m\n" if sys.stderr.isatty() else f"— {said}\n")
            sys.stderr.flush()


def _is_torchrun(run: Run) -> bool:
    try:
        kind: str = run.studio.do(operations.version(run.facts.version)).distributed
    except ClientError:
        return False
    return kind.startswith("torchrun")


def watch(run: Run, *, as_json: bool) -> int:
    """To its end; the exit status. Ctrl-C asks what is to become of it."""
    followed = Followed(run, as_json=as_json)
    while True:
        try:
            facts = followed.to_the_end()
        except KeyboardInterrupt:
            if not _goes_on(run, as_json=as_json):
                return 130
            continue
        if as_json:
            output.say_json({"event": "ended", "run": facts.id, "state": facts.state, "metrics": facts.metrics})
        else:
            _outcome(facts)
        return facts.exit_status


def _outcome(facts: RunFacts) -> None:
    error = f": {facts.error_message.rstrip('.')}" if facts.state == "failed" and facts.error_message else ""
    took = output.lasted(facts)
    click.echo(f"Run {facts.id} {facts.state}{f' after {took}' if took else ''}{error}. {output.best(facts)}".strip(), err=True)
    click.echo(facts.url, err=True)


def _goes_on(run: Run, *, as_json: bool) -> bool:
    """Whether one looks on. Without a terminal to ask at the run is left alone."""
    if as_json or not sys.stdin.isatty():
        click.echo(f"Run {run.facts.id} goes on: edt logs -f {run.facts.id}, edt stop {run.facts.id}.", err=True)
        return False
    chosen = click.prompt(
        "\nThe run goes on by itself. (l)eave it, (s)top it, or (g)o on watching?",
        type=click.Choice(["l", "s", "g"]),
        default="l",
        err=True,
    )
    if chosen == "s":
        run.stop("Ctrl-C at edt run")
        click.echo(f"Run {run.facts.id} was asked to stop.", err=True)
        return True
    if chosen == "l":
        click.echo(f"edt logs -f {run.facts.id} follows it again, edt stop {run.facts.id} ends it.", err=True)
    return bool(chosen == "g")

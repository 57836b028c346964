"""A run as it goes: its log to the output, its states and metrics beside it, until it has ended."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from edt_client import operations
from edt_client.cli import output
from edt_client.client import Run
from edt_client.errors import NoAnswer
from edt_client.plots import number
from edt_client.things import Event, RunFacts

AGAIN_S = 1.0
SAID_EVERY_S = 2.0
LOG = "driver"


class Followed:
    """`as_json`: a line of JSON for each thing that happens. What was said of its state goes to the standard error, its log to the
    output."""

    def __init__(self, run: Run, *, as_json: bool, quiet: bool = False) -> None:
        self.run, self.as_json, self.quiet = run, as_json, quiet
        self.offset, self._said, self._at = 0, "", 0.0

    def to_the_end(self) -> RunFacts:
        """Raises KeyboardInterrupt where somebody presses Ctrl-C."""
        self._state(self.run.facts)
        while not self.run.facts.has_ended:
            try:
                for event in self.run.studio.events(f"run-{self.run.facts.id}", f"log-{self.run.facts.id}-{LOG}@{self.offset}"):
                    self._happened(event)
                    if self.run.facts.has_ended or event.type == "bye":
                        break
                else:
                    time.sleep(AGAIN_S)
            except NoAnswer as lost:
                self._note(f"{lost} The run goes on; trying again.")
                time.sleep(AGAIN_S)
            self._look()
        self._rest_of_the_log()
        return self.run.facts

    def _happened(self, event: Event) -> None:
        if event.type == "log":
            self._log(str(event.data.get("text", "")), int(event.data.get("begin", 0)), int(event.data.get("end", 0)))
        elif event.type == "points":
            self._points(event.data)
        elif event.type in ("subscribed", "completed", "changed"):
            self._look()

    def _look(self) -> None:
        try:
            self.run.refresh()
        except NoAnswer:
            return
        self._state(self.run.facts)

    def _state(self, facts: RunFacts) -> None:
        waits = facts.plan_reason if facts.state in ("queued", "suspended") else ""
        said = " · ".join(
            each for each in (facts.state, f"{facts.slots} slots" if facts.slots else "", waits or facts.error_message) if each
        )
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

    def _log(self, text: str, begin: int, end: int) -> None:
        if begin < self.offset:  # it was sent before
            return
        self.offset = end
        if self.as_json:
            output.say_json({"event": "log", "run": self.run.facts.id, "text": text})
        else:
            click.echo(text, nl=False)

    def _rest_of_the_log(self) -> None:
        try:
            while (tail := self.run.studio.do(operations.log(self.run.facts.id, LOG, offset=self.offset))).text:
                self._log(tail.text, tail.begin, tail.end)
        except Exception as missing:  # a run that never began has no log; nothing of its outcome depends on it
            self._note("" if self.as_json else f"(no more of its log: {missing})") if self.offset else None

    def _note(self, said: str) -> None:
        if said and not self.as_json and not self.quiet:
            sys.stderr.write(f"\x1b[2m— {said}\x1b[0m\n" if sys.stderr.isatty() else f"— {said}\n")
            sys.stderr.flush()


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
    error = f": {facts.error_message}" if facts.state == "failed" and facts.error_message else ""
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

"""A run is followed: what its processes print, wherever that stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from edt_client import aio, client
from edt_client.calls import Answer, Call, Operation
from edt_client.cli import follow
from edt_client.errors import NoAnswer, Refused
from edt_client.things import Event, RunFacts, read

RUN = {"id": 7, "name": "r", "project": 1, "experiment": 1, "definition": 1, "version": 3, "state": "running", "submitted_by": "alice"}
RUN |= {"submitted_at": "2026-01-01T00:00:00Z", "command": "main.py", "url": "http://studio/runs/7/"}
VERSION = {"id": 3, "definition": 1, "number": 1, "name": "n", "sha256": "", "command": "main.py", "max_slots": 2, "packages": "own"}
VERSION |= {"network": "none", "created_by": "alice", "created_at": "2026-01-01T00:00:00Z"}


class Studio:
    """One in which run 7 has `logs`; `sent` of them when they are followed, the rest when they are asked for."""

    def __init__(self, kind: str, logs: dict[str, str], sent: dict[str, int]) -> None:
        self.kind, self.logs, self.sent = kind, logs, sent
        self.state, self.facts, self.studio = "running", read(RunFacts, RUN), self
        self.asked: list[tuple[str, ...]] = []

    def do(self, operation: Operation[Any]) -> Any:
        try:
            operation.send(Answer(200, json.dumps(self.answer(next(operation))).encode()))
        except StopIteration as end:
            return end.value
        raise AssertionError("it asks more than once")

    def answer(self, call: Call) -> Any:
        if call.path == "/versions/3":
            return {**VERSION, "distributed": self.kind}
        if call.path == "/runs/7/logs":
            return {"items": [{"name": name, "size_bytes": len(text)} for name, text in self.logs.items()]}
        begin, name = int((call.query or {})["offset"]), call.path.removeprefix("/runs/7/logs/")
        return {"name": name, "text": self.logs[name][begin:], "begin": begin, "end": len(self.logs[name]), "size_bytes": 0}

    def refresh(self) -> None:
        self.facts = read(RunFacts, {**RUN, "state": self.state})

    def events(self, *topics: str) -> Iterator[Event]:
        self.asked.append(topics)
        for topic in topics[1:]:
            name, _, begin = topic.removeprefix("log-7-").partition("@")
            text = self.logs[name][int(begin) : self.sent.get(name, 0)]
            if text:
                said = {"topic": f"log-7-{name}", "text": text, "begin": int(begin), "end": int(begin) + len(text)}
                yield Event("log", said)
        if len(self.asked) > 1 or not self.kind.startswith("torchrun"):
            self.state = "completed"
            yield Event("completed", {})


def followed(kind: str, *, as_json: bool = False) -> Studio:
    logs = {"driver": "2 workers\n", "worker-1": "epoch 1\nepoch 2", "worker-2": "50%\r100%\n"}
    studio = Studio(kind, logs, {"driver": 10, "worker-1": 11})
    follow.Followed(studio, as_json=as_json).to_the_end()  # type: ignore[arg-type]
    return studio


class Slow:
    """A studio whose run 7 has not begun when its log is followed, and that is away for a moment; then its log is cut."""

    def __init__(self) -> None:
        self.said: list[Any] = [
            "queued", Refused("There is no such log.", 404),
            NoAnswer("away"),
            "running", tail("one\n", 0), tail("", 4),
            "running", NoAnswer("away"),
            "running", tail("two\n", 4), tail("", 8),
            "running", tail("", 2),
            "completed", tail("end\n", 2), tail("", 6),
        ]  # fmt: skip

    def do(self, operation: Operation[Any]) -> Any:
        call, said = next(operation), self.said.pop(0)
        try:
            if isinstance(said, Exception):
                operation.throw(said)
            state = {**RUN, "state": said} if isinstance(said, str) else said
            operation.send(Answer(200, json.dumps(state).encode()))
        except StopIteration as end:
            assert call.path in ("/runs/7", "/runs/7/logs/driver")
            return end.value
        raise AssertionError("it asks more than once")


def tail(text: str, begin: int) -> dict[str, Any]:
    return {"text": text, "begin": begin, "end": begin + len(text), "size_bytes": 0}


class AwaitedSlow(Slow):
    async def do(self, operation: Operation[Any]) -> Any:
        return super().do(operation)


def test_the_lines_of_a_log_come_although_the_run_has_not_begun_and_the_studio_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "EVERY_S", 0.0)
    studio = Slow()
    run = client.Run(studio, read(RunFacts, {**RUN, "state": "queued"}))  # type: ignore[arg-type]
    assert list(run.log_lines()) == ["one\n", "two\n", "end\n"]
    assert not studio.said


async def test_the_same_for_programs_that_await(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "EVERY_S", 0.0)
    studio = AwaitedSlow()
    run = aio.AsyncRun(studio, read(RunFacts, {**RUN, "state": "queued"}))  # type: ignore[arg-type]
    assert [text async for text in run.log_lines()] == ["one\n", "two\n", "end\n"]
    assert not studio.said


async def test_who_waits_is_told_of_their_own_time_and_not_of_anothers() -> None:
    def impatient(_: RunFacts) -> None:
        raise TimeoutError("of whoever looks on")

    for timeout in (None, 60.0):
        studio = AwaitedSlow()
        studio.said = ["running"]
        run = aio.AsyncRun(studio, read(RunFacts, RUN))  # type: ignore[arg-type]
        with pytest.raises(TimeoutError, match="of whoever looks on"):
            await run.wait(timeout=timeout, seen=impatient)
    studio.said = ["running"]
    with pytest.raises(TimeoutError, match=r"run 7 is running after 0\.05 s"):
        await run.wait(timeout=0.05)


def test_a_log_that_there_is_not_is_said_and_so_is_a_studio_that_is_away_where_nothing_is_followed() -> None:
    for said, problem in ((["completed", Refused("There is no such log.", 404)], Refused), (["running", NoAnswer("away")], NoAnswer)):
        studio = Slow()
        studio.said = said
        run = client.Run(studio, read(RunFacts, RUN))  # type: ignore[arg-type]
        with pytest.raises(problem):
            list(run.log_lines(follow=False))


def test_what_the_workers_of_torchrun_print_is_shown_line_by_line_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    studio = followed("torchrun_elastic")
    shown = "2 workers\n[worker-1] epoch 1\n[worker-1] epoch 2\n[worker-2] 50%\r[worker-2] 100%\n"
    assert capsys.readouterr().out == shown
    assert studio.asked == [("run-7", "log-7-driver@0"), ("run-7", "log-7-driver@10", "log-7-worker-1@0", "log-7-worker-2@0")]


def test_of_very_many_workers_some_are_followed_and_the_others_are_there_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    logs = {"driver": "300 workers\n", **{f"worker-{number}": f"I am {number}\n" for number in range(300)}}
    studio = Studio("torchrun", logs, {"driver": 12})
    follow.Followed(studio, as_json=False).to_the_end()  # type: ignore[arg-type]
    assert [len(topics) for topics in studio.asked] == [2, 61]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(["300 workers", *(f"[worker-{n}] I am {n}" for n in range(300))])


def test_who_is_turned_away_does_not_ask_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Studio):
        def events(self, *topics: str) -> Iterator[Event]:
            self.asked.append(topics)
            yield Event("bye", {"code": 4429})

    def wait(seconds: float) -> None:
        waited.append(seconds)
        studio.state = "completed" if len(waited) == 3 else "running"

    waited: list[float] = []
    monkeypatch.setattr(follow.time, "sleep", wait)
    studio = Full("elastic", {"driver": ""}, {})
    follow.Followed(studio, as_json=False).to_the_end()  # type: ignore[arg-type]
    assert (waited, len(studio.asked)) == ([follow.AGAIN_S] * 3, 3)


def test_a_log_whose_middle_was_left_out_goes_on_from_where_it_was_cut(capsys: pytest.CaptureFixture[str]) -> None:
    class Cut(Studio):
        def events(self, *topics: str) -> Iterator[Event]:
            pieces = (("one\ntwo\nthree\n", 0, 14), ("", 4, 4), ("four\n", 4, 9), ("five\n", 9, 14))
            for text, begin, size in pieces:
                end = begin + len(text)
                yield Event("log", {"topic": "log-7-driver", "text": text, "begin": begin, "end": end, "size": size})
            self.state = "completed"
            yield Event("completed", {})

    follow.Followed(Cut("elastic", {"driver": "one\nfour\nfive\n"}, {}), as_json=False).to_the_end()  # type: ignore[arg-type]
    out, said = capsys.readouterr()
    assert out == "one\ntwo\nthree\nfour\nfive\n"
    assert "The middle of a log that had become too long was left out" in said


def test_of_other_runs_the_driver_has_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    followed("elastic")
    assert capsys.readouterr().out == "2 workers\n"


def test_for_programs_each_piece_says_of_which_log_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    followed("torchrun", as_json=True)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [(each.get("log", "driver"), each["text"]) for each in said if each["event"] == "log"]
    assert found == [("driver", "2 workers\n"), ("worker-1", "epoch 1\nepo"), ("worker-1", "ch 2"), ("worker-2", "50%\r100%\n")]

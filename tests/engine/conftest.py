"""A warm process for the session, and runs that are gone when a test ends."""

from __future__ import annotations

import pytest

from tests.engine.harness import HERE, RemoteAgent, Run, Warm
from tests.engine.scripts import HELD, LONG, SMALL


@pytest.fixture(scope="session")
def warm():
    process = Warm()
    yield process
    process.close()


@pytest.fixture(params=["segment", "collective"])
def either_way(request):
    """By what way gradients meet in the runs that the test starts: a test for each."""
    return {"EDT_REDUCE": request.param}


@pytest.fixture
def start(warm, tmp_path, request):
    """start(script, *args, **options) -> Run; each call has a folder of its own."""
    runs: list[Run] = []
    way = request.getfixturevalue("either_way") if "either_way" in request.fixturenames else {}

    def begin(code, *args, env=None, **options) -> Run:
        run = Run(warm, tmp_path / str(len(runs)), code, *args, env={**way, **(env or {})}, **options)
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.close()


@pytest.fixture
def join():
    """join(run) -> RemoteAgent: another machine takes part in a run that others may join."""
    agents: list[RemoteAgent] = []

    def begin(home: Run, env: dict[str, str] | None = None, *, kind: type[RemoteAgent] = RemoteAgent) -> RemoteAgent:
        agents.append(kind(home, f"agent-{len(agents)}", env))
        return agents[-1]

    yield begin
    for agent in agents:
        agent.close()


@pytest.fixture
def together(start, join):
    """together(home, *others, **env) -> the run and its remote agents, each with a worker on these slots, from the third epoch on. It
    stays before the epochs `stays`, counted from 0, until their files are gone."""

    def begin(
        home: tuple[int, ...],
        *others: tuple[int, ...],
        script: str = HELD,
        more: tuple[str, ...] = (),
        stays: tuple[int, ...] = (),
        **env: str,
    ):
        run = start(script, *LONG, *more, env={**HERE, **env})
        stay = run.result_dir / "stay-2"
        for name in (stay.name, "ready", *(f"stay-{epoch}" for epoch in stays)):
            (run.result_dir / name).touch()
        agents = [join(run) for _ in others]
        run.members(*home)
        for agent, slots in zip(agents, others, strict=True):
            agent.members(*slots)
        for agent, slots in zip(agents, others, strict=True):
            agent.until(lambda agent=agent, slots=slots: set(slots) <= set(agent.workers), what=f"workers on {slots}")
        each_runs_it = env.get("EDT_START_METHOD") == "spawn"
        ran = 1 + len(others) + each_runs_it * sum(map(len, (home, *others)))
        run.until(lambda: len((run.result_dir / "ran").read_text().split()) == ran, what="all have run the script")
        workers = sum(map(len, (home, *others)))
        run.until(lambda: len((run.result_dir / "ready").read_text().split()) >= workers, what="all workers can be taken in")
        stay.unlink()
        run.until_workers(workers)
        return run, *agents

    return begin


@pytest.fixture(scope="session")
def fixed(warm, tmp_path_factory):
    """fixed(*args) -> the finished run of SMALL, or of `script`, with one worker and these arguments; computed once a session."""
    done: dict[tuple[str, ...], Run] = {}

    def run(*args: str, script: str = SMALL) -> Run:
        if (script, *args) not in done:
            one = done[script, *args] = Run(warm, tmp_path_factory.mktemp("fixed"), script, *args)
            one.members(0)
            assert one.wait() == 0, one.tail()
        return done[script, *args]

    yield run
    for one in done.values():
        one.close()

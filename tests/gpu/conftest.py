"""What only a GPU can show. Where there is none that torch can use, all of it is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.e2e.studio import Studio
from tests.gpu.studio import Person


@pytest.fixture(scope="session", autouse=True)
def a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here that torch can use")


@pytest.fixture(scope="module", params=["1", "0"], ids=["walled", "open"])
def studio(request: pytest.FixtureRequest) -> Iterator[Studio]:
    """One with four slots that share the first GPU; `walled`: its runs can open the GPUs of their slots alone."""
    studio = Studio(slots=4, settings={"EDT_SANDBOX_DEVICES": request.param})
    try:
        studio.start()
        yield studio
    finally:
        studio.close()


@pytest.fixture
def alice(studio: Studio, tmp_path: Path) -> Iterator[Person]:
    yield Person(studio, "alice", tmp_path / "alice")
    studio.stop_all_runs()


@pytest.fixture
def bob(studio: Studio, tmp_path: Path) -> Person:
    return Person(studio, "bob", tmp_path / "bob")

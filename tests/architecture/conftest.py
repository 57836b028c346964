"""Lets go of the parsed source when its tests are over: half a gigabyte that later collections of garbage and forks would pay for."""

from collections.abc import Iterator

import pytest

from tests.architecture import source


@pytest.fixture(scope="package", autouse=True)
def parsed() -> Iterator[None]:
    yield
    for kept in (source._modules, source.names, source.imports):
        kept.cache_clear()

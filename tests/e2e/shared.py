"""A studio that several tests have one after the other, where each leaves it as the next expects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.e2e.studio import Studio


class Shared:
    """Started for the first test that wants it, by `begin`; a test that fails takes it along. `make`: what is begun, where it is not a
    plain one. `tidy`: what makes it again as it was, once no run is live."""

    def __init__(
        self,
        make: Callable[[], Studio] = Studio,
        *,
        begin: Callable[[Studio], object] = Studio.start,
        tidy: Callable[[Studio], object] = lambda _: None,
    ) -> None:
        self._make, self._begin, self._tidy = make, begin, tidy
        self._studio: Studio | None = None

    @contextmanager
    def for_a_test(self) -> Iterator[Studio]:
        studio = self._studio or self._make()
        try:
            if self._studio is None:
                self._begin(studio)
                self._studio = studio
            yield studio
            if studio.is_running:
                studio.stop_all_runs()
                self._tidy(studio)
            else:
                self.close()  # it was the last of this one
        except BaseException:
            self._studio = None
            studio.close()
            raise

    def close(self) -> None:
        if self._studio is not None:
            self._studio.close()
            self._studio = None

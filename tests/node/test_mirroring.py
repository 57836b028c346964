"""What a joined machine sends of the folders of its runs, whatever their code does to them: real HTTP, the studio's own views."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.cluster import joining
from tests.e2e.studio import wait_until
from tests.node.test_fetching import Machine
from tests.node.test_fetching import beta as beta
from training_runtime.node.folders import Folder, Folders
from training_runtime.node.mirroring import Mirroring

pytestmark = pytest.mark.django_db(transaction=True)
WHOLE = b'{"v":1}\n'


@contextmanager
def mirrored(beta: Machine, *, ended: bool, arrived: Callable[[], None] = lambda: None) -> Iterator[tuple[Path, Mirroring]]:
    """The run's folder on the machine, while it is being mirrored; `arrived`: called whenever something has."""
    folders = Folders(beta.home)
    folders.begin(Folder(beta.run.pk, beta.run.folder, joining.term_of(beta.run)))
    mirroring = Mirroring(beta.files, folders, live=lambda: {beta.run.pk: ended}, changed=lambda: arrived())
    thread = threading.Thread(target=mirroring.run)
    try:
        yield folders.path(beta.run.folder), mirroring
        thread.start()
        wait_until(lambda: mirroring.quiet_looks > 1 or all(copy.complete for copy in mirroring.copies()), "all is sent")
    finally:
        mirroring.stop.set()
        mirroring.wake()
        thread.join()


@pytest.mark.parametrize("torn", [b'{"v":1,"ru', b"\0\0\0\0"])
def test_a_run_whose_driver_died_in_the_middle_of_a_line_has_ended_for_the_studio(beta: Machine, torn: bytes):
    with mirrored(beta, ended=True) as (folder, mirroring):
        (folder / "journal.jsonl").write_bytes(WHOLE + torn)
    assert [copy.complete for copy in mirroring.copies()] == [True]
    assert (beta.there / "journal.jsonl").read_bytes() == WHOLE


def test_a_line_without_an_end_does_not_keep_the_journal_from_the_studio(beta: Machine):
    content = b"x" * (3 << 20) + b"\n" + WHOLE
    with mirrored(beta, ended=True) as (folder, _):
        (folder / "journal.jsonl").write_bytes(content)
    assert (beta.there / "journal.jsonl").read_bytes() == content


@pytest.mark.parametrize("name", ["log/driver/console.log", "out/secret.txt"])
def test_a_folder_that_becomes_a_link_after_it_was_looked_at_leads_nowhere(beta: Machine, tmp_path: Path, name: str):
    """The link is root; whose code trains may look at files of other people for their size and time, and not into them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / Path(name).name).write_bytes(b"nobody's but root's")

    def swap() -> None:
        inside = folder / Path(name).parent
        if not inside.is_symlink():
            shutil.rmtree(inside)
            inside.symlink_to(outside)

    with mirrored(beta, ended=True, arrived=swap) as (folder, _):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy2(outside / Path(name).name, folder / name)
        (folder / "journal.jsonl").write_bytes(WHOLE)  # goes first
    assert [line for line in beta.proxy.asked if line.startswith("PUT") and name in line] == []

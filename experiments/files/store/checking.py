"""Whether the store has what the rows of the database say. What is found missing or damaged is copied anew where its files are here; what
belongs to nothing is named, and left alone."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.files.store import copies, copying, manifest, things
from experiments.files.store.manifest import Damaged
from experiments.files.store.objects import ObjectStore
from experiments.files.store.things import ROOMS, Thing
from experiments.models import Tombstone


def check(store: ObjectStore, *, read: bool) -> Iterator[str]:
    """What is wrong, a sentence each. `read`: every object is read and compared, which takes a while and may cost. Under `turns.alone`.
    Raises StoreAway."""
    for thing in things.copied():
        is_here = thing.local_path.exists()
        problem = _problem_of(store, thing, read=read, replace=is_here)
        if problem:
            copies.look_at(thing.kind, thing.key)
            yield f"{thing.kind} {thing.key}: {problem}; {'it is copied anew' if is_here else 'its files are not here either'}."
    for kind, room in ROOMS.items():
        for key in store.folders(room):
            if things.named(kind, key) is None and not _is_to_go(kind, key):
                yield f"{kind} {key} is in the store and belongs to nothing in the database."


def _problem_of(store: ObjectStore, thing: Thing, *, read: bool, replace: bool) -> str:
    """`replace`: what is damaged goes, so that it is not taken for there when it is copied anew. Else it stays: it is all that there is."""
    try:
        found = copying.manifest_of(store, thing)
    except KeyError:
        return "" if things.has_none(thing) else "it is not in the store"
    except Damaged as error:
        if replace:
            store.remove(f"{thing.folder}/{copying.MANIFEST}")
        return str(error)
    there = store.sizes(thing.folder)
    problems = []
    for name in sorted(found.objects):
        if name not in there:
            problems.append(name)
        elif read and manifest.digest(store.get(f"{thing.folder}/{name}")) != name:
            if replace:
                store.remove(f"{thing.folder}/{name}")
            problems.append(name)
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"the object {problems[0]}{more} is missing or damaged" if problems else ""


def _is_to_go(kind: str, key: str) -> bool:
    return copies.is_to_go(kind, key) or Tombstone.objects.filter(kind=kind, key=key, emptied_at=None).exists()

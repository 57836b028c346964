"""What the host's loop waits for: callbacks of descriptors, each of which may be closed and its number given away by another's callback."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from training_runtime.host.node import Node


def ready_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.send(b"x")
    return ours, theirs


def test_an_event_of_a_closed_descriptor_does_not_reach_the_one_that_got_its_number(tmp_path: Path) -> None:
    node, called = Node(tmp_path), []
    pairs = {"first": ready_pair(), "second": ready_pair()}
    silent, end = os.pipe()
    taken: list[int] = []

    def replace(other: str) -> None:
        """Closes the other one and watches a pipe, in which there is nothing, under its number."""
        called.append(other)
        old = pairs[other][0]
        number = old.fileno()
        node.unwatch(old)
        old.close()
        os.dup2(silent, number)
        taken.append(number)
        node.watch(number, lambda _mask: called.append("the silent pipe"))

    node.watch(pairs["first"][0], lambda _mask: replace("second"))
    node.watch(pairs["second"][0], lambda _mask: replace("first"))
    node.wait(1.0)
    assert len(called) == 1, "both were ready, and the callback of one has closed the other"
    for number in (silent, end, *taken):
        os.close(number)


def test_a_descriptor_that_is_watched_anew_has_its_new_callback(tmp_path: Path) -> None:
    node, called = Node(tmp_path), []
    ours, theirs = ready_pair()
    node.watch(ours, lambda _mask: called.append("old"))
    node.watch(ours, lambda _mask: called.append("new"))
    node.wait(1.0)
    assert called == ["new"]
    node.unwatch(ours)
    node.wait(0.0)
    assert called == ["new"]
    ours.close()
    theirs.close()

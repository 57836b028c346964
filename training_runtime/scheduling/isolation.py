"""Whether people's code may run on a machine whose box does not keep it apart. Pure: standard library only.

One person's code may run in whatever box there is: it can harm nobody but its owner. Code of several people on a machine where any of it
can read, change or stop what is another's runs only when an administrator has said that they trust each other. What a level keeps apart is
what docs/sandbox.md promises of it: `user+landlock` and `user` give each run a user of its own, so files and processes of another are
closed to it (`user`: as far as their modes say so); at `landlock` all runs share the studio's user, and with it sockets, shared memory and
on older kernels signals; `limits` and `off` protect nothing. A level that is not known here keeps nothing apart. A machine that has not
said its level yet is left as it is: nothing has been started there that could be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from training_runtime.scheduling.wording import listed

KEEP_APART = frozenset({"user+landlock", "user"})
REMEDY = (
    "start it there as root or with EDT_ROOTLESS=1, on a kernel with Landlock (docs/sandbox.md), or an administrator says under Scheduling "
    "policy that you trust each other"
)


@dataclass(frozen=True)
class Standing:
    """How a machine stands to running the code of those who can run some.

    `unknown`: it has not said its level. `isolated`: its box keeps them apart. `trusted`: it does not, and an administrator has said that
    they trust each other. `alone`: it does not, and there is one person at most. `refuses`: it does not, and nothing new is begun there.
    `words`: the same as a sentence.
    """

    state: Literal["unknown", "isolated", "trusted", "alone", "refuses"]
    words: str

    @property
    def may_run(self) -> bool:
        return self.state != "refuses"


def standing(level: str, *, people: int, trusted: bool) -> Standing:
    """`level`: of the machine's box, empty where it has not said it; `people`: how many can run code; `trusted`: the rule."""
    if not level:
        return Standing("unknown", "It has not said yet how strong its box is.")
    if level in KEEP_APART:
        return Standing("isolated", "It keeps people's code apart.")
    if trusted:
        return Standing("trusted", "It does not keep people's code apart; an administrator has said that they trust each other.")
    if people < 2:
        return Standing("alone", "It does not keep people's code apart. There is one person: with a second one nothing new is run here.")
    return Standing("refuses", f"It does not keep people's code apart, so it runs nothing new of the {people} people here: {REMEDY}.")


def waits(boxes: Sequence[tuple[str, str]]) -> str:
    """Why a run waits that could be on these machines alone, (name, level) each: all of them refuse."""
    names, levels = listed(sorted(name for name, _ in boxes)), listed(sorted({level for _, level in boxes}))
    which = f"the box of {names} ({levels}) does" if len(boxes) == 1 else f"the boxes of {names} ({levels}) do"
    return f"waits: {which} not keep people's code apart, and more than one person can run code here; {REMEDY}"

"""User code of somebody who tries everything at once. Each try leaves a line of JSON in findings.jsonl: what was tried on what, and what
came of it. `targets.json` beside it says what there is to attack: more than a stranger would know.

Nothing here does harm where it succeeds: a file is opened and not changed, a signal is number 0. So it can be run at every level.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import calls
import files
import forged
import processes
import results
import sockets

FINDINGS = "findings.jsonl"


def outcome(action: Callable[[], object]) -> tuple[str, str]:
    """("open", what it gave) for what succeeded; else the error's name, and what it says."""
    try:
        return "open", repr(action())[:300]
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__), str(error)[:300]
    except Exception as error:
        return type(error).__name__, str(error)[:300]


def main() -> None:
    targets = json.loads(Path(__file__).with_name("targets.json").read_text())
    own = Path(os.environ["RESULT_DIR"])
    tries = itertools.chain(files.tries(targets), processes.tries(targets), sockets.tries(targets), calls.tries(targets))
    with open(own / FINDINGS, "w") as found:
        for kind, what, action in tries:
            came, said = outcome(action)
            found.write(json.dumps({"kind": kind, "what": what, "outcome": came, "said": said}) + "\n")
    results.lay_traps(own, targets)
    results.leave_a_daemon_behind(targets["mark"])
    forged.speak_to_the_host(targets)
    forged.write_in_the_journal(own / "journal.jsonl", targets)
    results.flood_the_log()
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""The field's words: what was once called otherwise here is not called so again (docs/glossary.md has what it is called)."""

from __future__ import annotations

import ast
import re

from tests.architecture.source import ROOT, functions, modules

GIVEN_UP = {
    "arena": "segment",
    "attendant": "link thread",
    "bury": "terminate",
    "chronicle": "recorder",
    "doorbell": "semaphore",
    "hang_up": "close",
    "household": "fork server",
    "keeper": "shim",
    "kinship": "process handles",
    "outpost": "remote node",
    "OutwardFailed": "RequestFailed",
    "OutwardRefused": "AddressRefused",
    "relay": "bridge",
    "PresentUse": "LatestUtilization",
    "roster": "worker table",
    "seat": "worker id",
    "see_off": "drain",
    "sent_off": "migrating",
    "severed": "closed",
    "SlotUse": "UtilizationSample",
    "station": "remote agent",
    "vigil": "hang detector",
}
PLACES = ("training_runtime", "experiments", "webapp", "edt_client", "tests", "benchmarks", "docs")

# What reads files and tables from before.
MAY = (
    "tests/architecture/test_words.py",
    "tests/domain/test_upgrades.py",
    "tests/host/test_saved_state.py",
    "training_runtime/host/state.py",
)
MIGRATIONS = "experiments/migrations"


# Words of every day, which only modules and classes are not called by.
GIVEN_UP_NAMES = {
    "apart": "isolation",
    "Asked": "what is asked for, as in PageParameters",
    "Cause": "FailureCause",
    "Ear": "HostListener",
    "Figures": "MetricSummary, CurveComparison, PrintedMetrics",
    "Found": "what was looked for, as in SearchResults, LogMatches, CheckpointLookup",
    "Given": "ModelArguments",
    "Home": "HeadNode",
    "Kept": "StoredFolder, CheckpointFile",
    "Left": "Retired",
    "Moved": "Reconfigured",
    "Orders": "LaunchRequest",
    "Parts": "TrainingComponents",
    "Patience": "TimeoutWatchdog",
    "Place": "ParameterSpan, Location",
    "Rerun": "RunChanges",
    "Room": "FreeSpace",
    "present": "latest_utilization",
    "Said": "ActionResult, RequestBody, CommandLine",
    "Several": "CombinedOptimizer",
    "Told": "SentState, SentMembers",
    "Wanted": "DesiredState",
}
GIVEN_UP_NAMES |= dict.fromkeys(
    (
        "arrived",
        "chronicle",
        "deaf",
        "deaths",
        "doorbell",
        "homes",
        "household",
        "kinship",
        "last_words",
        "logged_in",
        "MetricStretch",
        "notices",
        "orphans",
        "outposts",
        "outward",
        "ranges",
        "relay",
        "Rooms",
        "roster",
        "Seated",
        "selected",
        "shown",
        "slotuse",
        "station",
        "Terms",
        "Unit",
        "vigil",
    ),
    "see docs/glossary.md",
)


def test_no_module_or_class_has_a_name_that_was_given_up() -> None:
    """A name that stands for a type counts as a class."""
    named = {each.name.rpartition(".")[2] for each in modules()}
    for each in modules():
        named |= {node.name.lstrip("_") for node in ast.walk(each.tree) if isinstance(node, ast.ClassDef)}
        assigned = [target for node in each.tree.body if isinstance(node, ast.Assign) for target in node.targets]
        named |= {target.id.lstrip("_") for target in assigned if isinstance(target, ast.Name)}
    assert not named & set(GIVEN_UP_NAMES), f"now called: {GIVEN_UP_NAMES}"


def test_nothing_is_called_by_a_word_that_was_given_up() -> None:
    words = re.compile(rf"(?<![a-z])({'|'.join(GIVEN_UP)})s?(?![a-z])", re.IGNORECASE)
    here = {ROOT / path for path in MAY}
    paths = [path for place in PLACES for kind in ("*.py", "*.md") for path in (ROOT / place).rglob(kind)]
    files = [path for path in paths if path not in here and path.parent != ROOT / MIGRATIONS]
    found = [f"{path.relative_to(ROOT)}: {word}" for path in files for word in words.findall(path.read_text())]
    assert len(files) > 1000, "the places have moved"
    assert not found, f"now called: {GIVEN_UP}"


# A function says what it does or what it gives; these names say neither.
EMPTY = {"asked", "given", "hear", "heard", "hear_host", "kept", "kept_of", "let_go", "looked_at", "said", "said_of"}
EMPTY |= {"found", "keep", "place", "shown", "take", "taken", "told", "wanted"}


def test_a_function_has_a_name_that_says_what_it_does_or_gives() -> None:
    """A verb and its object: `store_upload`, not `keep`; what it gives by its own name: `run_response`, not `shown`."""
    named = {f"{module.name}.{each.name}" for module in modules() for each in functions(module) if each.name.lstrip("_") in EMPTY}
    assert named == set()

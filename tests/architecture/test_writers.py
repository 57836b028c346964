"""One writer per fact: which modules write which rows. A new one is a decision, and is written down here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.source import Module, modules

WRITES = {"create", "bulk_create", "get_or_create", "update", "bulk_update", "update_or_create", "delete"}
READERS = ("views", "selectors", "forms", "templatetags", "api", "runtable", "mlflow", "wmla", "management", "live", "boxed")
MAKES = {"create", "acreate", "bulk_create", "get_or_create", "update_or_create", "bulk_update"}
SAVES = {"experiments.views.accounts: form.save"}  # Django's own form of a new password

# Below `experiments`. That an imported project makes rows, and that pruning removes what was deleted, goes without saying.
ANYWHERE = ("transfer.", "files.pruning")
WRITERS = {
    "accounts.sessions": "BrowserSession",
    "services.comments": "RunComment",
    "services.data": "DataAsset DataSeries DataUpload",
    "services.definitions": "DefinitionVersion TrainingDefinition",
    "services.drafts": "ModelDraft",
    "services.experiments": "Experiment ExperimentDefinition ExperimentWatch JournalCursor TrainingRun",
    "services.imports": "ProjectImport",
    "services.identities": "Identity",
    "services.named_environments": "ClusterChange NamedEnvironment NamedVersion",
    "services.notifications": "Delivery User Webhook",
    "services.outside": "DefinitionVersion Experiment JournalCursor TrainingDefinition TrainingRun",
    "services.prices": "SlotPrice",
    "services.projects": "Membership Project ProjectImport",
    "services.registry": "ModelAlias ModelEvent ModelFile ModelVersion RegisteredModel",
    "services.searches": "Search SearchTrial",
    "services.submissions": "Submission",
    "services.tokens": "ApiToken EndedToken",
    "services.triggers": "Trigger TriggerDelivery",
    "services.variables": "EnvironmentVariable",
    "services.watches": "ExperimentWatch MetricWatch",
    "services.capacity": "PilotPool",
    "services.cluster": "ClusterChange",
    "services.continuation": "JournalCursor TrainingRun",
    "services.deletion": "TrainingRun",
    "services.reruns": "JournalCursor TrainingRun",
    "accounts.api_tokens": "ApiToken",
    "accounts.logins": "LoginFailure",
    "accounts.passwords": "User",
    "cluster.environments": "Environment EnvironmentBuild TrainingRun",
    "cluster.endings": "TrainingRun",
    "cluster.fleet": "Node Slot TrainingRun",
    "cluster.joining": "Node NodeToken",
    "cluster.losses": "TrainingRun",
    "cluster.meetings": "DriverMeeting",
    "cluster.pilots": "Pilot PilotPool",
    "cluster.remote_workers": "RemoteAgent TrainingRun",
    "cluster.scheduling": "Grant PastGrant",
    "cluster.slot_health": "ClusterChange Slot SlotDeath",
    "cluster.utilization": "LatestUtilization UtilizationSample",
    "models.cluster": "cls",  # ClusterRules.current makes the one row of rules
    "files.bundles": "Bundle",
    "files.diskuse": "TrainingRun",
    "files.retention": "DroppedCheckpoint",
    "files.store.copies": "StoreCopy StoreState",
    "files.tombstones": "Tombstone",
    "metrics.curve_points": "MetricSeries",
    "metrics.ingest": "GenerationRecord RunEvent StateDigest TrainingRun",
    "notifications.deliveries": "Delivery",
    "notifications.rules": "Delivery MetricWatch Notification",
    "ops.beat": "Lease",
    "ops.installation": "Installation",
    "runs.digests": "StateDigest",
    "runs.run_values": "RunColumn RunValue",
    "runs.states": "RunTransition TrainingRun",
}

# Of the modules that write, what selectors may use: limits, and functions that only read.
READERS_OF_WRITERS = {
    "ops.beat": "CLOCK is_held",
    "cluster.utilization": "Counted Entry by_slot entries interval_s part since",
    "files.bundles": "BundleRefused entry zip_path",
    "files.diskuse": "spelled",
    "files.retention": "saved",
    "files.store.copies": "NotHere has_begun is_on missing state",  # `missing` asks back what a page is to show
    "metrics.curve_points": "MAX_SERIES",
    "metrics.ingest": "MAX_RARE progress_of",
    "runs.digests": "MOST",
}


def writes(module: Module) -> Iterator[str]:
    """The models of which the module writes rows by their manager: `Run.objects.filter(...).update(...)`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            by_manager, at = False, node.func.value
            while isinstance(at, ast.Call | ast.Attribute):
                by_manager |= isinstance(at, ast.Attribute) and at.attr == "objects"
                at = at.func if isinstance(at, ast.Call) else at.value
            if by_manager and isinstance(at, ast.Name):
                yield at.id


def test_each_kind_of_row_is_written_where_it_is_said() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules("experiments"):
        below = module.name.removeprefix("experiments.")
        if not below.startswith(ANYWHERE):
            for model in writes(module):
                found[below].add(model)
    assert {writer: " ".join(sorted(models)) for writer, models in found.items()} == WRITERS


def changes_a_row(call: ast.Call, name: str) -> bool:
    """By a row itself, or by what is related to one. A `delete` that is given something is a route, or the cache's."""
    return name in ("save", "asave") or name in MAKES or (name in ("delete", "adelete") and not call.args and not call.keywords)


def test_what_reads_and_what_answers_writes_nothing() -> None:
    readers = [module for module in modules("experiments") if module.name.split(".")[1:2] and module.name.split(".")[1] in READERS]
    saves = {
        f"{module.name}: {ast.unparse(node.func)}"
        for module in readers
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and changes_a_row(node, node.func.attr)
    }
    assert len(readers) > 100, "they have moved"
    assert not [module.name for module in readers if list(writes(module))]
    assert saves == SAVES


def used_of_writers(module: Module) -> Iterator[tuple[str, str]]:
    """(module that writes, name used of it) for each such import of the module, below `experiments`."""
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (package := (node.module or "").removeprefix("experiments.")):
            for alias in node.names:
                if package in WRITERS or package.startswith("services"):
                    yield package, alias.name
                elif (inner := f"{package}.{alias.name}".removeprefix("experiments.")) in WRITERS or inner == "services":
                    names[alias.asname or alias.name] = inner
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield names[node.value.id], node.attr


def test_selectors_use_nothing_that_writes() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules("experiments"):
        if module.name.startswith("experiments.selectors"):
            for writer, name in used_of_writers(module):
                found[writer].add(name)
    assert {writer: " ".join(sorted(names)) for writer, names in found.items()} == READERS_OF_WRITERS

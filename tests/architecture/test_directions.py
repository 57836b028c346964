"""The house rules: who may import whom, how long things may be, and that importing a module does nothing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable

import pytest

from tests.architecture.source import ROOT, Module, dotted, functions, imports, modules, on_import

LONGEST_FILE = 350
LONGER_FILES = {
    "experiments/wmla/dlicmd.py": "a program that people fetch: it has to be one file",
    "training_runtime/elastic/driver/coordinator.py": "one loop over one state; what it decides is in membership, failures and supervision",
}
LONGEST_FUNCTION = 40
# By module and name: what is better whole, and why.
SIGNATURE, TABLE, STORY = (
    "the signature and the docstring are an interface",
    "a table, one line an entry",
    "a story from its beginning to its end",
)
LONGER_FUNCTIONS = {
    "experiments.cluster.snapshot.take_snapshot": "one query after the other under one lock",
    "experiments.transfer.described.run": TABLE,
    "experiments.wmla.applications.application": TABLE,
    "training_runtime.elastic.driver.coordinator._handle": "a branch for each report; the type checker sees that none is left out",
    "training_runtime.fabric.model.train": SIGNATURE,
    "training_runtime.fabric.native.elastic": SIGNATURE,
    "training_runtime.host.runs.script_environment.run_environment": TABLE,
    "benchmarks.nodes.measure": STORY,
    "tests.attack.test_broker.test_no_forged_message_starts_code_and_the_studio_goes_on": STORY,
    "tests.e2e.test_environments.test_a_script_gets_what_its_requirements_name_on_every_machine_and_at_once_the_second_time": STORY,
    "tests.e2e.test_environments.test_an_environment_that_an_administrator_offers_is_chosen_and_renewed": STORY,
    "tests.e2e.test_mishaps.test_a_failed_script_shows_its_traceback_and_a_job_is_stopped_from_both_places": STORY,
    "tests.e2e.test_mlflow.test_a_script_with_mlflow_needs_no_settings": STORY,
    "tests.e2e.test_story.test_two_peoples_jobs_share_four_slots": STORY,
    "tests.e2e.test_torchrun.test_an_elastic_script_makes_room_for_a_fixed_one_and_grows_again": STORY,
    "tests.engine.test_torchrun_under_a_host.test_its_slots_come_and_go_and_its_driver_dies_and_every_sample_is_shown_once": STORY,
    "tests.host.test_box_programs.test_threads_processes_sockets_and_shared_memory_work_in_the_box": "most of it is the script in the box",
    "tests.web.served_addresses.addresses": TABLE,
    "tests.web.test_data_versions_browser.test_a_version_is_added_and_the_experiment_is_run_on_it": STORY,
    "tests.web.test_every_address.sample": TABLE,
    "tests.web.test_run_table_browser.test_a_table_is_made_kept_and_opened_by_another_member": STORY,
}

# What the web side may know of the runtime.
RUNTIME_FACE = ("training_runtime.scheduling", "training_runtime.host.client", "training_runtime.journal", "training_runtime.protocol")
RUNTIME_FACE += ("training_runtime.journal_writer", "training_runtime.log_rotation", "training_runtime.news", "training_runtime.records")
RUNTIME_FACE += (
    "training_runtime.gpu_health",
    "training_runtime.gpu_memory",
    "training_runtime.media",
    "training_runtime.notebooks",
    "training_runtime.noted",
    "training_runtime.tracking.answers",
)
RUNTIME_FACE += (
    "training_runtime.meeting",
    "training_runtime.node.batches",
    "training_runtime.node.messages",
    "training_runtime.node.places",
)
RUNTIME_FACE += ("training_runtime.unknown_messages", "training_runtime.user_ids", "training_runtime.version_skew")
RUNTIME_FACE += ("training_runtime.host.sandbox.file_box",)  # what work on people's files locks itself in with
RUNTIME_FACE += ("training_runtime.environments", "training_runtime.errors", "training_runtime.variables", "training_runtime.watchdog")
RUNTIME_FACE += ("training_runtime.crashes",)  # how a process ended, in words
RUNTIME_FACE += ("training_runtime.storage",)  # which errors say that a disk takes nothing more
WEB_ONLY = ("django", "channels", "celery", "kombu", "redis", "experiments", "webapp")

# Decisions and what they are told in: nothing but the standard library, and of that nothing that reads a clock or touches the world.
PURE = ("training_runtime.scheduling", "training_runtime.host.reconcile", "training_runtime.elastic.driver.membership")
PURE += (
    "training_runtime.host.sandbox.cgroup_values",
    "training_runtime.host.meter.disk_values",
    "training_runtime.host.spares.spare_plan",
)
PURE += ("training_runtime.elastic.driver.reclaim",)
PURE += (
    "training_runtime.elastic.torchrun.decide",
    "training_runtime.gpu_health",
    "training_runtime.gpu_memory",
    "training_runtime.host.lease",
    "training_runtime.host.actions",
)
PURE += ("training_runtime.node.mirror", "training_runtime.node.reporting", "training_runtime.version_skew")
STANDARD_ONLY = (
    *PURE,
    "training_runtime.protocol",
    "training_runtime.imported",
    "training_runtime.meeting",
    "training_runtime.records",
    "training_runtime.journal",
    "training_runtime.journal_writer",
    "training_runtime.progress",
    "training_runtime.errors",
    "training_runtime.crashes",
)
STANDARD_ONLY += ("training_runtime.unknown_messages",)
STANDARD_ONLY += ("training_runtime.variables", "training_runtime.noted", "training_runtime.media", "training_runtime.tracking.answers")
WORLD = ("asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil", "socket")
WORLD += ("subprocess", "tempfile", "threading", "time", "urllib")
TORCH_HOMES = ("training_runtime.elastic", "training_runtime.fabric", "training_runtime.host.spares.warm")

# Inside the Django app, top to bottom. A module imports from its own layer or a lower one. One that is not named is held to the rule
# against circles all the same.
LAYERS = (
    ("urls", "apps"),
    ("views", "live.consumers", "tasks", "management", "cluster.gateway", "api", "wmla", "mlflow"),
    ("templatetags",),
    ("selectors", "forms", "triggers"),
    ("access",),
    ("services", "transfer"),
    ("runtable",),
    (
        "cluster.scheduling",
        "cluster.environments",
        "cluster.plan_preview",
        "cluster.fleet",
        "cluster.joining",
        "cluster.leases",
        "cluster.utilization",
        "files.diskuse",
        "metrics.curve_points",
        "metrics.ingest",
        "cluster.accounting",
        "cluster.snapshot",
        "files.pruning",
        "notifications.deliveries",
    ),
    ("cluster.isolation",),
    ("runs.states", "accounts.passwords"),
    ("runs.run_values",),
    ("files.modelstore", "files.weights"),
    (
        "live.notify",
        "notifications.rules",
        "notifications.webhook_client",
        "files.bundles",
        "files.datastore",
        "files.runfiles",
        "metrics.journal_rows",
        "files.zipcheck",
        "files.tarcheck",
        "boxed",
        "files.zipstream",
    ),
    ("accounts.logins", "accounts.addresses", "definitions.variables", "accounts.api_tokens", "accounts.signatures"),
    ("models", "live.page_layer", "bulk", "django_validation"),
    ("files.modelnames", "files.registrable", "errors"),
)

# Exceptions, each with its reason.
ALLOWED = {
    # Celery's `current_app` is one per thread, so the application has to be named where a message is sent from a request's thread.
    ("experiments.live.notify", "webapp.celery"),
    # `manage.py studio` starts, finds again and stops processes of this machine exactly as the node host does.
    ("webapp.studio.processes", "training_runtime.host.processes"),
    ("webapp.studio.stopping", "training_runtime.host.processes"),
    ("webapp.studio.own_machine", "training_runtime.host.processes"),
}
# Django finds commands in apps only; these start the project around the app, as manage.py does.
COMMANDS = ("experiments.management",)


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def offending(module: Module, forbidden: Iterable[str]) -> list[str]:
    forbidden = tuple(forbidden)
    return [
        f"{where}: {module.name} imports {name}"
        for name, where in imports(module).items()
        if within(name, forbidden) and (module.name, name) not in ALLOWED
    ]


def layer_of(name: str) -> int | None:
    """0 is the lowest. None for modules of other packages and for those without a place."""
    parts = name.split(".")
    if parts[0] != "experiments" or len(parts) == 1:
        return None
    known = {parts[1], ".".join(parts[1:3])}
    return next((depth for depth, layer in enumerate(reversed(LAYERS)) if known & set(layer)), None)


def test_the_runtime_knows_nothing_of_the_web_side():
    assert not [line for module in modules("training_runtime") for line in offending(module, WEB_ONLY)]


def test_the_app_knows_nothing_of_the_project_around_it():
    app = [module for module in modules("experiments") if not within(module.name, COMMANDS)]
    assert not [line for module in app for line in offending(module, ("webapp",))]


@pytest.mark.parametrize("tree", ["experiments", "webapp"])
def test_the_web_side_knows_only_the_face_of_the_runtime(tree):
    assert not [
        f"{where}: {module.name} imports {name}"
        for module in modules(tree)
        for name, where in imports(module).items()
        if within(name, ("training_runtime",)) and not within(name, RUNTIME_FACE) and (module.name, name) not in ALLOWED
    ]


def test_decisions_import_the_standard_library_only():
    standard = (*sys.stdlib_module_names, *STANDARD_ONLY)
    chosen = [module for module in modules("training_runtime") if within(module.name, STANDARD_ONLY)]
    assert chosen, "the modules this is about have moved"
    assert not [
        f"{where}: {module.name} imports {name}"
        for module in chosen
        for name, where in imports(module).items()
        if not within(name, standard)
    ]


# Of the client: what trains in a notebook, where nothing else may be installed; and what the rest of it may use.
OF_NOTEBOOKS = ("edt_client.credentials", "edt_client.errors", "edt_client.login", "edt_client.studio")
OF_THE_CLIENT = ("httpx", "click", "rich", "pathspec", "yaml")
WHERE_IT_IS = ("IPython", "pandas", "polars")  # used where the person has it
BESIDE_IT = ("training_runtime.elastic.script_logs.wandb_logs",)  # in the same wheel, and of the standard library


def test_what_people_run_on_their_own_machines_needs_little():
    own = [module for module in modules("edt_client")]
    assert {module.name for module in own} >= set(OF_NOTEBOOKS), "the modules this is about have moved"
    assert not [line for module in own if module.name in OF_NOTEBOOKS for line in offending(module, (*OF_THE_CLIENT, *WHERE_IT_IS))]
    standard = (*sys.stdlib_module_names, "edt_client", *OF_THE_CLIENT, *WHERE_IT_IS, *BESIDE_IT)
    assert not [
        f"{where}: {module.name} imports {name}" for module in own for name, where in imports(module).items() if not within(name, standard)
    ]


def test_decisions_read_no_clock_and_touch_nothing():
    assert not [line for module in modules("training_runtime") if within(module.name, PURE) for line in offending(module, WORLD)]


@pytest.mark.parametrize("tree", ["edt_client", "experiments", "training_runtime", "webapp"])
def test_torch_is_imported_only_where_training_happens(tree):
    assert not [line for module in modules(tree) if not within(module.name, TORCH_HOMES) for line in offending(module, ("torch",))]


def test_nothing_in_the_app_imports_back_up():
    wrong = []
    for module in modules("experiments"):
        own = layer_of(module.name)
        for name, where in imports(module).items():
            other = layer_of(name)
            if own is not None and other is not None and other > own:
                wrong.append(f"{where}: {module.name} imports {name}")
    assert not wrong


@pytest.mark.parametrize("tree", ["edt_client", "experiments", "training_runtime", "webapp"])
def test_no_modules_import_each_other_in_a_circle(tree):
    """Imports hidden inside functions count: they are how circles hide."""
    known = {module.name for module in modules(tree)}
    graph = {
        module.name: sorted(name for name in imports(module) if name in known - {module.name} and (module.name, name) not in ALLOWED)
        for module in modules(tree)
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_no_import_is_for_a_checker_of_types_alone():
    """What a signature names lies in a module that it can import."""
    assert not [module.where(node) for module in modules() for node in ast.walk(module.tree) if dotted(node).endswith("TYPE_CHECKING")]


CODE = ("edt_client", "experiments", "training_runtime", "webapp", "benchmarks", "tests")


def test_a_file_tells_one_story():
    lengths = {module.path.relative_to(ROOT).as_posix(): module.lines for module in modules(*CODE)}
    assert not {path: length for path, length in lengths.items() if length > LONGEST_FILE and path not in LONGER_FILES}
    assert not set(LONGER_FILES) - set(lengths), "they have moved"


def test_a_function_fits_on_a_screen():
    lengths = {
        f"{module.name}.{function.name}": (function.end_lineno or function.lineno) - function.lineno + 1
        for module in modules(*CODE)
        for function in functions(module)
    }
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION and name not in LONGER_FUNCTIONS}
    assert not set(LONGER_FUNCTIONS) - set(lengths), "they have moved"


# Calls that change the process or the world, and the wiring that is allowed to read the environment on import.
CALLS = ("logging.basicConfig", "logging.config.dictConfig", "signal.signal", "os.fork", "os.getenv", "os.putenv", "os.chdir", "os.umask")
CALLS += ("sys.path.insert", "sys.path.append", "socket.socket", "threading.Thread", "torch.manual_seed", "torch.set_num_threads")
CALLS += ("subprocess.run", "subprocess.Popen", "subprocess.check_output", "open", "print", "time.sleep", "random.seed")
WIRING = ("webapp.settings", "webapp.settings_test", "webapp.celery", "webapp.asgi")


@pytest.mark.parametrize("tree", ["edt_client", "experiments", "training_runtime", "webapp"])
def test_importing_a_module_does_nothing(tree):
    wrong = []
    for module in modules(tree):
        if module.name in WIRING or module.name.endswith("__main__"):
            continue
        for node in on_import(module):
            if isinstance(node, ast.Call) and dotted(node.func) in CALLS:
                wrong.append(f"{module.where(node)}: {dotted(node.func)}()")
            if isinstance(node, ast.Attribute) and dotted(node) == "os.environ":
                wrong.append(f"{module.where(node)}: os.environ")
    assert not wrong


@pytest.mark.parametrize("tree", ["edt_client", "experiments", "training_runtime", "webapp", "benchmarks"])
def test_a_module_opens_by_saying_what_it_is(tree):
    """Packages that hold nothing need not."""
    assert not [
        str(module.path.relative_to(ROOT))
        for module in modules(tree)
        if module.tree.body and not (isinstance(first := module.tree.body[0], ast.Expr) and isinstance(first.value, ast.Constant))
    ]

"""Every address of the studio, as nobody and as a stranger. An address that is not in the table below fails: say here who may open it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from experiments import services
from experiments.models import ApiToken, ModelVersion, NamedEnvironment, ProjectImport, RunComment, SavedView, Trigger, User
from experiments.selectors import registry
from experiments.services import comments, imports
from tests.web.conftest import As
from tests.web.seed import Seeded

PUBLIC = {"login", "oidc_login", "oidc_callback", "trigger", "healthz", "readyz", "metrics", "dlicmd", "rest_openapi"}
EVERYBODY = {
    "home",
    "compare_runs",
    "compared_series",
    "logout",
    "profile",
    "log_out_elsewhere", "log_out_browser",
    "link_identity",
    "unlink_identity",
    "tokens",
    "end_tokens",
    "theme",
    "projects",
    "new_project", "check_project",
    "import_project", "begin_import",
    "cluster",
    "lanes",
    "node",
    "usage",
    "what_if", "replay",
    "sharing",
    "instance_groups",
    "instance_group",
    "named_environments",
    "named_environment",
    "notifications", "read_notifications", "notification_choices", "add_webhook", "shortcuts",
    "sample",
    "search",
    "shared_data",
    "shared_data_download",
    "shared_data_image",
}  # fmt: skip  # who is logged in
PRIVATE = {
    "notification",
    "confirm_email",
    "end_token",
    "delete_webhook",
    "try_webhook",
    "drop_watch",
    "drop_experiment_watch",
    "project_import", "import_piece", "finish_import", "drop_import",
}  # fmt: skip  # to one person: of anybody else's there is none
CLUSTER_ADMINS = {
    "environments", "set_prices", "node_drain", "node_lost", "node_remove", "node_rename", "slot_drain", "slot_back", "new_node",
    "people", "person", "person_password", "log_person_out", "close_person", "open_person", "person_administrator", "person_unlink",
    "hand_over", "store", "pilots", "pilot_pool", "preview_pilot_pool", "delete_pilot_pool",
    "preview_sharing", "preview_drain",
    "new_named_environment", "change_named_environment", "renew_named_environment", "build_named_environment",
    "retire_named_environment", "delete_named_environment",
}  # fmt: skip
MEMBERS = {
    "export_project",
    "project", "assets", "jobs", "members", "member_role", "member_remove", "project_settings", "delete_project",
    "archive_project", "take_back_project", "new_definition",
    "new_experiment", "check_definition", "check_version", "check_experiment", "check_data", "check_rerun",
    "copy_definition", "fetch_again",
    "project_variables", "delete_project_variable", "definition_variables", "delete_definition_variable",
    "triggers", "delete_trigger", "take_over_trigger",
    "project_runs", "experiment_table", "selected_project_runs", "save_view", "saved_view", "delete_view",
    "environment", "drop_environment",
    "definition", "update_definition", "delete_definition", "new_version", "code", "changes", "download_version", "version_row",
    "experiment",
    "compare", "experiment_overview", "run_experiment", "delete_experiment", "run", "run_overview", "run_logs", "run_results",
    "run_media", "run_media_picture",
    "run_series", "run_points", "run_use", "run_log",
    "project_webhooks", "duplicate_experiment", "selected_runs", "run_notes",
    "new_data", "begin_upload", "upload", "upload_piece", "finish_upload", "drop_upload",
    "data", "data_download", "data_image", "update_data", "delete_data",
    "new_data_version", "check_data_version", "delete_data_versions",
    "watch_metric", "watch_experiment", "run_log_file", "run_file", "run_archive", "run_look", "run_picture",
    "add_package",
    "run_with_changes",
    "models", "model", "update_model", "delete_model", "drop_alias", "model_version", "model_file", "model_archive", "model_code",
    "model_receipt", "update_model_version", "set_alias", "delete_model_version", "register_model",
    "run_receipt", "reproduce_run",
    "continue_run", "stop_run", "pause_run", "resume_run", "set_priority", "set_slots", "set_any_kind", "set_checkpoints", "stop_search",
    "add_comment", "change_comment", "delete_comment", "change_run",
    "preview_run", "delete_run",
}  # fmt: skip
WRITES = {
    "set_prices",
    "check_project", "check_definition", "check_version", "check_experiment", "check_data", "check_rerun",  # of a form, by POST
    "check_data_version", "delete_data_versions",
    "begin_import", "finish_import", "drop_import",
    "delete_trigger", "take_over_trigger",
    "selected_project_runs", "save_view", "delete_view",
    "end_token", "end_tokens", "log_out_elsewhere", "log_out_browser", "link_identity", "unlink_identity",
    "logout", "theme", "sample", "notification", "read_notifications", "add_webhook", "delete_webhook", "try_webhook",
    "member_role", "member_remove", "delete_project", "archive_project", "take_back_project",
    "update_definition", "delete_definition", "run_experiment",
    "copy_definition", "fetch_again", "duplicate_experiment", "selected_runs",
    "delete_project_variable", "delete_definition_variable",
    "delete_experiment", "stop_search", "add_package", "reproduce_run", "continue_run", "stop_run", "pause_run",
    "resume_run", "set_priority", "set_slots", "set_any_kind", "set_checkpoints", "add_comment", "change_comment",
    "delete_comment", "delete_run", "node_drain", "node_lost", "node_remove", "drop_environment",
    "renew_named_environment", "build_named_environment", "retire_named_environment", "delete_named_environment",
    "watch_metric", "watch_experiment", "drop_watch", "drop_experiment_watch",
    "update_model", "delete_model", "drop_alias", "update_model_version", "set_alias", "delete_model_version",
    "slot_drain", "slot_back", "node_rename", "delete_pilot_pool",
    "person_password", "log_person_out", "close_person", "open_person", "person_administrator", "person_unlink",
    "hand_over", "begin_upload", "finish_upload", "drop_upload", "update_data", "delete_data",
}  # fmt: skip  # POST only
PUTS = {"upload_piece", "import_piece"}
FORMS = {
    "project_variables", "definition_variables", "run_notes", "run_with_changes", "register_model", "notification_choices", "shortcuts",
    "project_webhooks", "new_data", "new_data_version", "new_project", "import_project", "members", "project_settings",
    "new_definition", "new_experiment", "new_version", "people", "profile", "tokens", "triggers",
}  # fmt: skip


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for each in resolver.url_patterns:
        if isinstance(each, URLResolver):
            yield from patterns(each, prefix + str(each.pattern))
        else:
            yield prefix + str(each.pattern), each


def pages() -> list[tuple[str, URLPattern]]:
    """All addresses, but those of the API, whose answers to whom are in test_api_permissions.py."""
    return [(route, each) for route, each in patterns(get_resolver()) if not route.startswith("api/v1/")]


def token_of(user: User) -> ApiToken:
    made = ApiToken.objects.filter(person=user).first()
    return made or services.create_token(by=user, name="a token", scope="read", days=None, now=timezone.now())[0]


def import_of(user: User) -> ProjectImport:
    made = ProjectImport.objects.filter(created_by=user).first()
    return made or imports.begin_import(by=user, file_name="project.zip", size_bytes=9)


def trigger_of(studio: Seeded) -> Trigger:
    made = Trigger.objects.filter(project=studio.digits).first()
    return (
        made or services.create_trigger(studio.digits, by=studio.alice, event="call", experiment=studio.experiment, now=timezone.now())[0]
    )


def view_of(studio: Seeded) -> SavedView:
    """A kept table of the project's."""
    return services.save_view(studio.digits, by=studio.alice, name="Best first", query="", shared=True, now=timezone.now())


def version_of(studio: Seeded) -> ModelVersion:
    """Of a model that was made of the run that is completed."""
    made = ModelVersion.objects.filter(run=studio.completed.pk).first()
    if made is not None:
        return made
    path, lineage = "model/model_epoch_20.pth", registry.lineage(studio.completed)
    said = {"name": "LeNet", "note": "**98 %**", "tags": {"data": "2026"}, "aliases": ["champion"]}
    return services.register_version(studio.completed, by=studio.bob, path=path, lineage=lineage, now=timezone.now(), **said)


def comment_of(studio: Seeded) -> RunComment:
    made = RunComment.objects.filter(run=studio.running, deleted_at=None).first()
    return made or comments.add_comment(studio.running, by=studio.alice, text="The warm-up helps.")


def sample(name: str, studio: Seeded) -> str:
    """The address with things of Alice's and Bob's in it."""
    owners = {
        "copy_definition": studio.version.definition.pk, "fetch_again": studio.version.definition.pk,
        "definition": studio.version.definition.pk, "update_definition": studio.version.definition.pk,
        "delete_definition": studio.version.definition.pk, "new_version": studio.version.definition.pk,
        "check_version": studio.version.definition.pk,
        "code": studio.version.pk, "changes": studio.version.pk, "download_version": studio.version.pk, "version_row": studio.version.pk,
        "duplicate_experiment": studio.experiment.pk, "selected_runs": studio.experiment.pk,
        "experiment": studio.experiment.pk, "compare": studio.experiment.pk,
        "experiment_overview": studio.experiment.pk, "watch_experiment": studio.experiment.pk,
        "run_experiment": studio.experiment.pk, "delete_experiment": studio.experiment.pk, "stop_search": studio.experiment.pk,
    }  # fmt: skip
    owners |= {"experiment_table": studio.experiment.pk}
    if name in ("change_comment", "delete_comment"):
        owners[name] = comment_of(studio).pk
    if name in ("saved_view", "delete_view"):
        owners[name] = view_of(studio).pk
    owners |= {name: studio.upload.pk for name in ("upload", "upload_piece", "finish_upload", "drop_upload")}
    owners |= {name: studio.data.pk for name in ("data", "data_download", "data_image", "update_data", "delete_data")}
    owners |= {name: studio.data.pk for name in ("new_data_version", "check_data_version", "delete_data_versions")}
    owners |= {name: studio.version.definition.pk for name in ("definition_variables", "delete_definition_variable")}
    owners |= {"environment": studio.environment.pk, "drop_environment": studio.environment.pk}
    offered = NamedEnvironment.objects.get().pk
    owners |= {name: offered for name in ("named_environment", "change_named_environment", "renew_named_environment")}
    owners |= {f"{verb}_named_environment": offered for verb in ("build", "retire", "delete")}
    owners |= {each: studio.bob.pk for each in CLUSTER_ADMINS if "person" in each or each == "hand_over"}
    owners |= {
        "notification": studio.notification.pk,
        "delete_webhook": studio.hook.pk,
        "end_token": token_of(studio.alice).pk,
        **dict.fromkeys(("delete_trigger", "take_over_trigger"), trigger_of(studio).pk),
        "try_webhook": studio.hook.pk,
        "drop_watch": studio.watch.pk,
        "drop_experiment_watch": studio.experiment.watches.get().pk,
    }
    owners |= {name: import_of(studio.alice).pk for name in ("project_import", "import_piece", "finish_import", "drop_import")}
    route = next(route for route, each in pages() if each.name == name)
    if route.startswith("models/"):
        owners[name] = version_of(studio).model_id
    arguments: dict[str, Any] = {}
    if "<int:pk>" in route:
        project = route.startswith("projects/")
        arguments["pk"] = owners.get(name, studio.digits.pk if project else studio.running.pk)
    path = "model_epoch_20.pth" if name == "model_file" else "model/model_epoch_20.pth"
    for key, value in (("username", "bob"), ("path", path), ("name", "driver"), ("which", "champion"), ("alias", "champion")):
        if f":{key}>" in route:
            arguments[key] = (
                "gpu" if "pilots/" in route else "local" if "nodes/" in route else "EDT Studio" if "groups/" in route else value
            )
    if "<str:token>" in route:
        arguments["token"] = services.notifications.email_token(studio.alice, "alice@example.org")
    if "<int:number>" in route:
        arguments["number"] = 1
    if "<int:place>" in route:
        arguments["place"] = 0
    return reverse(name, kwargs=arguments)


def test_every_address_is_in_the_table() -> None:
    # Of those of scripts and machines: test_wmla_addresses.py, test_mlflow.py, test_files_of_machines.py.
    named = {each.name for _, each in pages() if not str(each.name).startswith(("wmla_", "mlflow_", "machine_"))}
    assert None not in named
    assert named == PUBLIC | EVERYBODY | PRIVATE | CLUSTER_ADMINS | MEMBERS, "say in this file who may open a new address"


def test_nobody_gets_further_than_the_login_page(studio: Seeded) -> None:
    through = []
    for name in sorted(EVERYBODY | PRIVATE | CLUSTER_ADMINS | MEMBERS):
        for method in ("get", "post", "head", "put", "patch", "delete"):
            answer = getattr(Client(), method)(sample(name, studio))
            if answer.status_code != 302 or not answer.url.startswith(reverse("login")):
                through.append((name, method, answer.status_code))
    assert not through


def test_a_stranger_is_told_that_there_is_no_such_thing(studio: Seeded, stranger: User, as_: As) -> None:
    client, wrong = as_(stranger), []
    for name in sorted(PRIVATE - PUTS):
        assert getattr(client, "post" if name in WRITES else "get")(sample(name, studio)).status_code == 404, name
    for name in sorted(PUTS):
        assert client.put(sample(name, studio)).status_code == 404, name
    for name in sorted(MEMBERS - PUTS):
        got = client.get(sample(name, studio)).status_code, client.post(sample(name, studio)).status_code
        wanted = (405 if name in WRITES else 404, 404 if name in WRITES | FORMS else 405)
        if got != wanted:
            wrong.append((name, got, wanted))
    assert not wrong


def test_a_member_who_only_looks_can_open_what_is_to_look_at(studio: Seeded, as_: As) -> None:
    client, wrong = as_(User.objects.get(username="victor")), []
    only_for_editors = {
        "triggers",
        "new_definition",
        "run_notes",
        "run_with_changes",
        "register_model",
        "new_experiment",
        "new_version",
        "change_run",
        "preview_run",
        "new_data",
        "new_data_version",
        "upload",
        "project_webhooks",
    }
    not_written_yet = {"run_file", "run_look", "run_picture", "run_media_picture"}  # by the run that still trains
    not_written_yet |= {"data_download", "data_image"}  # of no file in particular
    for name in sorted(MEMBERS - WRITES - PUTS):
        moved = name in ("run_receipt", "saved_view")
        wanted = 403 if name in only_for_editors else 404 if name in not_written_yet else 302 if moved else 200
        got = client.get(sample(name, studio)).status_code
        if got != wanted:
            wrong.append((name, got, wanted))
    assert not wrong


def test_a_viewer_changes_nothing(studio: Seeded, as_: As) -> None:
    client = as_(User.objects.get(username="victor"))
    elsewhere = {"copy_definition", "watch_metric", "watch_experiment", "save_view"}  # writes what is one's own; here it only reads
    got = {name: client.post(sample(name, studio)).status_code for name in MEMBERS & (WRITES | FORMS) - elsewhere}
    got |= {name: client.put(sample(name, studio)).status_code for name in PUTS & MEMBERS}
    assert set(got.values()) == {403}, got


def test_the_cluster_is_changed_by_its_administrators_alone(studio: Seeded, as_: As) -> None:
    for name in sorted(CLUSTER_ADMINS - WRITES):
        assert as_(studio.alice).get(sample(name, studio)).status_code == 403, name
        assert as_(studio.dora).get(sample(name, studio)).status_code == 200, name
    for name in sorted(CLUSTER_ADMINS & WRITES):
        address, sent = sample(name, studio), {"draining": "yes"}
        assert as_(studio.alice).post(address, sent).status_code == 403, name
        assert as_(studio.dora).post(address, sent).status_code in (302, 201), name
        answer = as_(studio.dora).get(address)
        assert (answer.status_code, answer["Allow"], b"Nothing was changed" in answer.content) == (405, "POST", True), name


def test_everybody_who_is_logged_in_sees_what_is_everybodys(studio: Seeded, stranger: User, as_: As) -> None:
    of_no_file = {"shared_data_download", "shared_data_image"}
    got = {name: as_(stranger).get(sample(name, studio)).status_code for name in EVERYBODY - WRITES - of_no_file - {"home"}}
    assert set(got.values()) == {200}, got


def test_a_fragment_checks_who_asks_as_its_page_does(studio: Seeded, stranger: User, as_: As) -> None:
    editors = {"run_with_changes": ["scripts"]}
    parts = editors | {
        "project": ["body"], "assets": ["body"], "jobs": ["table"], "members": ["people"], "experiment": ["runs"], "compare": ["table"],
        "run": ["head", "tiles", "notes", "watches", "watch_form", "use", "comments"], "run_overview": ["body", "now"],
        "run_results": ["body", "files", "foot"], "run_media": ["body"], "models": ["list"], "model": ["body"], "model_version": ["body"],
    }  # fmt: skip
    alice, charlie = as_(studio.alice), as_(stranger)
    for name, some in parts.items():
        for part in some:
            address = f"{sample(name, studio)}?part={part}"
            whole = alice.get(address)
            assert whole.status_code == 200, address
            assert b"<html" not in whole.content, address
            assert charlie.get(address).status_code == 404, address
            assert Client().get(address).status_code == 302, address
        assert alice.get(sample(name, studio), {"part": "../secrets"}).status_code == 404

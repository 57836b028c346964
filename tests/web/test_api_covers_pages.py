"""What a page shows or does has a call of the API, or stands here with the reason why not. A new page without either fails."""

from __future__ import annotations

from tests.web.api import DESCRIBED
from tests.web.test_every_address import CLUSTER_ADMINS, EVERYBODY, MEMBERS, PRIVATE, PUBLIC

OPERATIONS = {call["operationId"] for calls in DESCRIBED["paths"].values() for call in calls.values()}
# The page: the calls that do as much, of which each is one.
CALLS = {
    "home": "projects runs",
    "login": "make_token", "tokens": "tokens make_token", "end_token": "end_token", "end_tokens": "tokens end_token",
    "notifications": "notifications", "notification": "notifications", "read_notifications": "mark_read",
    "notification_choices": "notification_choice choose_notifications", "add_webhook": "add_webhook",
    "project_webhooks": "webhooks add_webhook",
    "delete_webhook": "delete_webhook", "try_webhook": "try_webhook",
    "search": "search",
    "project_runs": "project_runs", "experiment_table": "project_runs",
    "selected_project_runs": "stop_run pause_run resume_run delete_run change_run", "save_view": "save_view",
    "saved_view": "views", "delete_view": "delete_view",
    "projects": "projects", "new_project": "make_project", "project": "project experiments", "project_settings": "project change_project",
    "delete_project": "delete_project",
    "archive_project": "change_project", "take_back_project": "change_project", "jobs": "runs", "assets": "data_of_project definitions",
    "members": "members add_member", "member_role": "change_member", "member_remove": "remove_member",
    "project_variables": "variables_of_project set_variable_of_project", "delete_project_variable": "delete_variable_of_project",
    "definition_variables": "variables_of_definition set_variable_of_definition",
    "delete_definition_variable": "delete_variable_of_definition",
    "triggers": "triggers make_trigger deliveries", "delete_trigger": "delete_trigger",
    "take_over_trigger": "take_over_trigger",
    "export_project": "export_project", "import_project": "project_imports", "begin_import": "begin_import",
    "project_import": "project_import",
    "import_piece": "send_archive", "finish_import": "finish_import", "drop_import": "drop_import",
    "new_definition": "make_definition make_definition_from_git", "definition": "definition versions",
    "update_definition": "change_definition", "delete_definition": "delete_definition", "copy_definition": "copy_definition",
    "fetch_again": "fetch_again", "new_version": "make_version make_version_from_git", "version_row": "version",
    "code": "code arguments", "changes": "version_changes", "download_version": "code",
    "new_data": "begin_upload", "begin_upload": "begin_upload", "upload": "upload", "upload_piece": "send_piece",
    "finish_upload": "finish_upload",
    "drop_upload": "drop_upload",
    "data": "data_asset files_of_data preview_file_of_data", "data_download": "file_of_data", "data_image": "file_of_data",
    "update_data": "change_data", "delete_data": "delete_data",
    "new_data_version": "begin_data_version versions_of_data", "delete_data_versions": "delete_data_versions",
    "shared_data": "shared_files preview_shared_file", "shared_data_download": "shared_file", "shared_data_image": "shared_file",
    "new_experiment": "make_experiment make_search", "experiment": "experiment runs search_of_experiment", "stop_search": "stop_search",
    "experiment_overview": "experiment",
    "run_experiment": "run_experiment",
    "duplicate_experiment": "duplicate_experiment", "delete_experiment": "delete_experiment",
    "compare": "compare_of_experiment", "compare_runs": "compare_runs",
    "compared_series": "points_of_runs",
    "selected_runs": "stop_run pause_run resume_run delete_run change_run",
    "run": "run points", "run_overview": "run setup generations slots events", "run_logs": "logs search_log", "run_log": "log",
    "run_log_file": "log_file", "run_results": "files metrics", "run_look": "preview_file", "run_picture": "file", "run_file": "file",
    "run_archive": "archive", "run_media": "media medium", "run_media_picture": "media_picture", "run_series": "points",
    "run_points": "points stream", "run_use": "utilization", "run_notes": "change_run",
    "watch_metric": "thresholds set_threshold", "drop_watch": "drop_threshold",
    "watch_experiment": "experiment_thresholds set_experiment_threshold", "drop_experiment_watch": "drop_experiment_threshold",
    "stop_run": "stop_run", "pause_run": "pause_run", "resume_run": "resume_run", "set_priority": "change_run", "set_slots": "change_run",
    "set_any_kind": "change_run",
    "add_comment": "comments add_comment", "change_comment": "change_comment", "delete_comment": "delete_comment",
    "set_checkpoints": "set_checkpoints run_checkpoints",
    "change_run": "change_run", "preview_run": "preview_run", "run_with_changes": "run_with_changes",
    "models": "models models_of_project make_model", "model": "model model_versions model_events", "update_model": "change_model",
    "delete_model": "delete_model", "drop_alias": "drop_alias", "set_alias": "set_alias", "model_version": "model_version",
    "model_file": "model_file", "model_archive": "model_archive", "model_code": "model_code", "model_receipt": "model_receipt",
    "update_model_version": "change_model_version", "delete_model_version": "delete_model_version",
    "register_model": "registrable register_model models_of_run",
    "run_receipt": "receipt check_receipt", "reproduce_run": "reproduce_run reproduction", "continue_run": "continue_run",
    "add_package": "add_package", "delete_run": "delete_run",
    "cluster": "cluster nodes jobs", "lanes": "lanes grants", "usage": "usage prices", "set_prices": "set_prices",
    "sharing": "rules change_rules",
    "what_if": "ask_what_if", "replay": "replay_policy",
    "preview_sharing": "preview_rules",
    "instance_groups": "nodes drain_node", "instance_group": "jobs cluster",
    "node": "node", "node_drain": "drain_node", "node_lost": "declare_lost", "node_remove": "remove_node", "slot_drain": "drain_slot",
    "slot_back": "put_slot_back", "node_rename": "rename_node", "new_node": "add_node",
    "people": "people make_person", "person": "person_of_studio", "close_person": "close_person", "log_person_out": "log_person_out",
    "store": "object_store",
    "pilots": "pilot_pools make_pilot_pool", "pilot_pool": "pilot_pool change_pilot_pool", "preview_pilot_pool": "preview_pilot_pool",
    "delete_pilot_pool": "delete_pilot_pool",
    "preview_drain": "preview_drain",
    "environments": "environments", "environment": "environment", "drop_environment": "drop_environment",
    "named_environments": "offered_environments", "named_environment": "offered_environment", "new_named_environment": "offer_environment",
    "change_named_environment": "change_offered_environment", "renew_named_environment": "renew_offered_environment",
    "build_named_environment": "build_offered_environment", "retire_named_environment": "change_offered_environment",
    "delete_named_environment": "delete_offered_environment",
}  # fmt: skip
WITHOUT = {
    **dict.fromkeys(
        ("check_project", "check_definition", "check_version", "check_experiment", "check_data", "check_data_version", "check_rerun"),
        "says while a form is filled in what its sending would be refused for; the calls that make the same say it when they are made",
    ),
    **dict.fromkeys(
        ("person_password", "open_person", "person_administrator", "hand_over"),
        "gives an account, or projects, to whoever asks, so that a token that was lost could take them; an administrator's browser does it",
    ),
    **dict.fromkeys(("oidc_login", "oidc_callback"), "are how a browser logs in by single sign-on; a token is made after that"),
    **dict.fromkeys(
        ("link_identity", "unlink_identity", "person_unlink"),
        "changes who can log in to an account, so that a token that was lost could keep it; a browser does it",
    ),
    **dict.fromkeys(
        ("log_out_browser",), "ends one login of a browser, of those that the profile lists; administrators have a call that ends all"
    ),
    "log_out_elsewhere": "ends logins of browsers, but the one that asks; administrators have a call that ends all",
    "logout": "ends the login of a browser; a token is ended by its own call",
    "profile": "changes one's password, which takes the old one and a browser, so that a token that was lost cannot",
    "confirm_email": "is opened from a mail",
    "theme": "is how pages look",
    "shortcuts": "are the keys of pages",
    "sample": "makes an example to click through; what it makes can be made by calls",
    "trigger": "is called by machines as it is",
    "healthz": "is called by machines as it is",
    "readyz": "is called by machines as it is",
    "metrics": "is called by machines as it is",
    "dlicmd": "is an interface of its own",
    "rest_openapi": "is an interface of its own",
}


def test_every_page_has_calls_or_a_reason() -> None:
    pages = PUBLIC | EVERYBODY | PRIVATE | CLUSTER_ADMINS | MEMBERS
    assert pages == CALLS.keys() | WITHOUT.keys()
    assert not CALLS.keys() & WITHOUT.keys()


def test_the_calls_of_a_page_are_calls() -> None:
    named = {page: [call for call in calls.split() if call not in OPERATIONS] for page, calls in CALLS.items()}
    assert {page: missing for page, missing in named.items() if missing} == {}

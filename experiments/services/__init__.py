"""What people can do, as verbs: one transaction each, keyword-only. Who may is access's business; that the facts are right is checked here.

What a form must show is a DomainError({field: [messages]}) whose messages say what to do. An `idempotency_key` (of the form)
makes a form that is sent twice do one thing. Everything is told to the pages, and to the planner where it matters, on commit.
"""

from experiments.services.capacity import change_pool, changed_pool, create_pool, delete_pool
from experiments.services.checkpoints import set_checkpoints
from experiments.services.cluster import (
    declare_node_lost,
    put_slot_back,
    remove_node,
    rename_node,
    set_cluster_draining,
    set_node_draining,
    set_policy,
    set_sharing,
    set_slot_draining,
    set_weight,
)
from experiments.services.continuation import continue_run, has_checkpoint
from experiments.services.data import (
    add_data,
    begin_upload,
    delete_asset,
    delete_versions,
    drop_upload,
    finish_kept,
    finish_upload,
    keep_files,
    receive,
    update_asset,
)
from experiments.services.definitions import (
    add_version,
    check_definition,
    copy_definition,
    create_definition,
    delete_definition,
    update_definition,
)
from experiments.services.environments import drop_environment
from experiments.services.experiments import (
    check_command,
    check_experiment,
    create_and_run,
    create_experiment,
    delete_experiment,
    duplicate_experiment,
    run_experiment,
)
from experiments.services.git import add_version_from_git, create_definition_from_git, fetch_again
from experiments.services.identities import link_identity, log_in_by, unlink_identity
from experiments.services.joining import add_node, join_line
from experiments.services.named_environments import (
    build_named_environment,
    change_named_environment,
    create_named_environment,
    delete_named_environment,
    renew_named_environment,
    retire_named_environment,
)
from experiments.services.notifications import add_webhook, choose_notifications, delete_webhook, mark_read, try_webhook
from experiments.services.packages import add_package, missing_package
from experiments.services.people import close_account, give_new_password, hand_over, log_out, make_person, open_account, set_administrator
from experiments.services.prices import set_prices
from experiments.services.projects import (
    add_member,
    archive_project,
    create_project,
    delete_project,
    remove_member,
    set_role,
    take_back_project,
    update_project,
)
from experiments.services.registry import (
    create_model,
    delete_model,
    delete_version,
    drop_alias,
    register_version,
    set_alias,
    update_model,
    update_version,
)
from experiments.services.reproduction import check_receipt, reproduce
from experiments.services.reruns import check_rerun, run_with_changes
from experiments.services.runs import (
    annotate_run,
    delete_run,
    delete_runs,
    pause_run,
    resume_run,
    set_any_kind,
    set_priority,
    set_slots,
    stop_run,
    tag_runs,
)
from experiments.services.sample import make_sample
from experiments.services.saved_views import delete_view, save_view
from experiments.services.tokens import create_token, end_token, end_tokens
from experiments.services.triggers import create_trigger, delete_trigger, take_over_trigger
from experiments.services.variables import delete_variable, set_variable

__all__ = [
    "add_data",
    "add_member",
    "add_node",
    "add_package",
    "add_version",
    "add_version_from_git",
    "add_webhook",
    "annotate_run",
    "archive_project",
    "begin_upload",
    "build_named_environment",
    "change_named_environment",
    "change_pool",
    "changed_pool",
    "check_command",
    "check_definition",
    "check_experiment",
    "check_receipt",
    "check_rerun",
    "choose_notifications",
    "close_account",
    "continue_run",
    "copy_definition",
    "create_and_run",
    "create_definition",
    "create_definition_from_git",
    "create_experiment",
    "create_model",
    "create_named_environment",
    "create_pool",
    "create_project",
    "create_token",
    "create_trigger",
    "declare_node_lost",
    "delete_asset",
    "delete_definition",
    "delete_experiment",
    "delete_model",
    "delete_named_environment",
    "delete_pool",
    "delete_project",
    "delete_run",
    "delete_runs",
    "delete_trigger",
    "delete_variable",
    "delete_version",
    "delete_versions",
    "delete_view",
    "delete_webhook",
    "drop_alias",
    "drop_environment",
    "drop_upload",
    "duplicate_experiment",
    "end_token",
    "end_tokens",
    "fetch_again",
    "finish_kept",
    "finish_upload",
    "give_new_password",
    "hand_over",
    "has_checkpoint",
    "join_line",
    "keep_files",
    "link_identity",
    "log_in_by",
    "log_out",
    "make_person",
    "make_sample",
    "mark_read",
    "missing_package",
    "open_account",
    "pause_run",
    "put_slot_back",
    "receive",
    "register_version",
    "remove_member",
    "remove_node",
    "rename_node",
    "renew_named_environment",
    "reproduce",
    "resume_run",
    "retire_named_environment",
    "run_experiment",
    "run_with_changes",
    "save_view",
    "set_administrator",
    "set_alias",
    "set_any_kind",
    "set_checkpoints",
    "set_cluster_draining",
    "set_node_draining",
    "set_policy",
    "set_prices",
    "set_priority",
    "set_role",
    "set_sharing",
    "set_slot_draining",
    "set_slots",
    "set_variable",
    "set_weight",
    "stop_run",
    "tag_runs",
    "take_back_project",
    "take_over_trigger",
    "try_webhook",
    "unlink_identity",
    "update_asset",
    "update_definition",
    "update_model",
    "update_project",
    "update_version",
]

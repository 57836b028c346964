"""What has been tried against the studio, and by which test: the 15 groups of attacks on products of its kind, the findings of its own
attack (A1-A20), and the exploits of the review of the cluster (E1-E14). `test_table.py` holds it to the tests that there are.

A test is named as `folder/file.py::test_name` below tests/ (or `folder/file.py`, all of it). `left`: what is not kept out, or was not
tried here, and why.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tried:
    what: str
    tests: tuple[str, ...]
    left: str = ""


BOX = "attack/test_box.py::test_"
PAGES = "attack/test_pages.py::test_"
OUTSIDE = "attack/test_outside.py::test_"
WEAK = "attack/test_weak.py::test_"
BACKUP = "attack/test_backup.py::test_"
LIMITS = "web/test_request_limits.py::test_"
GROUPS = "host/test_box_groups.py::test_"

GROUPS_OF_ATTACKS: dict[int, Tried] = {
    1: Tried(
        "every address, by every role; things of others in one's own forms; sockets",
        (
            "web/test_every_address.py",
            "web/test_wmla_addresses.py",
            "domain/test_access.py",
            "web/test_sockets.py::test_who_is_removed_hears_nothing_more_at_once_and_the_others_go_on",
            f"{OUTSIDE}no_verb_opens_what_is_alices_to_nobody_or_to_a_stranger",
            f"{OUTSIDE}things_of_others_cannot_be_named_in_ones_own_forms",
            f"{OUTSIDE}sockets_are_for_who_is_logged_in_on_the_studios_own_pages",
        ),
    ),
    2: Tried(
        "each verb by itself, and headers that would make another of it",
        (
            "web/test_every_address.py::test_nobody_gets_further_than_the_login_page",
            f"{OUTSIDE}no_verb_opens_what_is_alices_to_nobody_or_to_a_stranger",
            f"{OUTSIDE}a_header_does_not_make_another_verb_of_a_request",
        ),
    ),
    3: Tried(
        "other hosts and origins, pages of somebody else's, DNS rebinding, requests within requests",
        (
            "web/test_origin.py",
            "web/test_projects.py::test_a_form_without_its_token_is_refused_in_words",
            "web/test_wmla_logon.py::test_a_cookie_is_no_password_here",
            f"{OUTSIDE}a_page_of_another_origin_changes_nothing_and_reads_nothing",
            f"{OUTSIDE}a_name_that_is_not_the_studios_is_not_answered",
            f"{OUTSIDE}a_request_within_a_request_is_none",
        ),
    ),
    4: Tried(
        "paths that lead out, in every spelling; links, hard links, pipes, folders without end",
        (
            "web/test_run_files.py::test_files_come_as_attachments_and_nothing_outside_the_run_comes",
            "web/test_data.py::test_no_path_leads_out_of_the_data",
            "web/test_mlflow.py::test_no_way_leads_out_of_a_runs_artifacts",
            "web/test_outside.py::test_no_link_leads_out",
            "domain/test_removal.py",
            f"{PAGES}no_spelling_of_a_path_leads_out_of_a_run",
            f"{PAGES}no_link_or_pipe_of_it_leads_anywhere",
        ),
    ),
    5: Tried(
        "hostile archives",
        (
            "domain/test_bundles.py",
            "domain/test_tars.py",
            "domain/test_diskuse.py",
            "domain/test_data.py::test_a_hostile_zip_is_refused_with_the_file_that_is_wrong",
            f"{OUTSIDE}a_hostile_archive_is_refused_with_a_sentence_and_leaves_nothing",
            f"{PAGES}the_zip_of_its_results_unpacks_into_one_folder_on_every_system",
        ),
    ),
    6: Tried(
        "pickles, in files that are looked at and in checkpoints",
        (
            "domain/test_previews.py::test_python_objects_are_never_loaded",
            "engine/test_inherited_state.py::test_another_runs_state_calls_nothing",
            "engine/test_inherited_state.py::test_bytes_that_no_pickler_would_write_are_refused",
            "e2e/test_notebooks.py::test_nobody_but_the_run_itself_reads_what_a_notebook_sends",
            f"{BOX}a_checkpoint_with_code_in_it_runs_nothing_for_who_continues_from_it",
        ),
        left="External data of an ONNX file: no process of the studio reads ONNX files.",
    ),
    7: Tried(
        "the broker, and messages that somebody forges who knows its password",
        (
            "platform/test_broker.py::test_without_the_password_nobody_gets_in",
            "platform/test_broker.py::test_only_its_user_can_reach_the_socket",
            "attack/test_broker.py::test_no_forged_message_starts_code_and_the_studio_goes_on",
        ),
    ),
    8: Tried(
        "webhooks, addresses of git, redirects, DNS that changes",
        (
            "domain/test_webhook_client.py",
            "domain/test_git.py",
            "domain/test_deliveries.py::test_a_webhook_needs_events_and_an_open_address_and_there_are_not_many",
        ),
    ),
    9: Tried(
        "script, formulas and terminal sequences in names, results, logs and journals",
        (
            "web/test_strange.py",
            "web/test_hostile_results.py",
            "web/test_data.py::test_text_is_shown_escaped_and_a_picture_only_by_its_content",
            "platform/test_parts.py::test_control_characters_in_a_log_do_not_reach_the_terminal",
            f"{PAGES}every_page_of_it_opens_and_runs_nothing",
            f"{PAGES}names_that_are_markup_formulas_or_ways_out_are_plain_names",
            f"{PAGES}what_its_log_says_to_terminals_reaches_none",
        ),
        left="An origin of its own for what user code has made: everything of it is an attachment, or escaped.",
    ),
    10: Tried(
        "commands, variables, secrets",
        (
            "domain/test_execution_commands.py::test_a_command_that_cannot_run_is_refused_with_what_to_do",
            "host/test_environment.py::test_a_variable_that_could_change_which_code_runs_is_left_out",
            "host/test_box_processes.py::test_no_secret_is_in_the_environment_of_user_code",
            "e2e/test_secrets.py",
        ),
    ),
    11: Tried(
        "out of the box: files, processes, sockets, network, kernel, machine, each other",
        (
            "host/test_box_files.py",
            "host/test_box_processes.py",
            "host/test_box_network.py",
            "host/test_box_seccomp.py",
            "host/test_box_groups.py",
            "host/test_box_disk.py",
            "host/test_box_devices.py",
            "attack/test_box.py",
            "attack/test_weak.py",
        ),
        left="What lies in the memory of a GPU: that needs one.",
    ),
    12: Tried(
        "guessing, forging and keeping a login",
        (
            "web/test_logins.py",
            "web/test_wmla_logon.py",
            "web/test_projects.py::test_a_changed_password_logs_other_browsers_out",
            "web/test_sockets.py::test_a_new_password_ends_the_sockets_of_other_logins",
        ),
        left="A second factor, a list of sessions.",
    ),
    13: Tried(
        "another machine's name, old words, who does not know a run's token",
        (
            "domain/test_losses.py::test_a_second_machine_of_the_same_name_is_refused_and_frees_nothing",
            "domain/test_losses.py::test_one_that_comes_back_is_told_first_and_what_it_says_of_the_past_is_ignored",
            "domain/test_fleet.py::test_another_node_cannot_end_a_run",
            "host/test_recovery.py::test_a_snapshot_for_another_host_of_that_name_is_not_carried_out",
            "host/test_client.py::test_an_older_snapshot_is_ignored",
            "host/test_client.py::test_the_socket_of_the_host_is_closed_to_other_users",
            "engine/test_remote_agents.py::test_who_does_not_know_the_token_is_not_let_in",
        ),
        left="A machine joins with the passwords of database and broker, so each is trusted with all (a machine joins with one command).",
    ),
    14: Tried(
        "requests, bodies, sockets, results, logs and journals without end",
        (
            "web/test_request_limits.py",
            "web/test_sockets.py::test_a_person_has_so_many_sockets_and_topics_and_others_have_theirs",
            "web/test_logs.py::test_no_pattern_holds_the_web_server_up",
            "web/test_hostile_results.py::test_folders_count_too",
            "domain/test_left_out.py",
            f"{PAGES}a_model_full_of_holes_fills_nobodys_disk",
            f"{BOX}alices_job_and_the_studio_are_as_before_and_go_on",
        ),
    ),
    15: Tried(
        "a hostile backup",
        ("attack/test_backup.py",),
        left="What a restored database says of people, rights and code is believed: it is the studio's.",
    ),
}

FINDINGS: dict[str, Tried] = {
    "A1": Tried("the disk filled without a login", (f"{LIMITS}an_endless_body_of_a_stranger_is_given_up_and_nothing_of_it_is_held",)),
    "A2": Tried(
        "a run of another person stopped, at level landlock",
        (
            "engine/test_hostlink.py::test_a_stranger_stops_nothing_and_does_not_take_the_hosts_place",
            f"{WEAK}at_landlock_what_is_open_is_what_the_documentation_says",
            f"{WEAK}at_landlock_alices_job_and_the_studio_are_as_before_and_go_on",
        ),
    ),
    "A3": Tried(
        "names, sizes and times of what is closed",
        (
            "host/test_box_seccomp.py::test_each_refused_call_is_refused_to_user_code",
            f"{BOX}no_name_in_them_can_be_asked_for",
            "host/test_box_root.py::test_user_code_sees_no_name_of_what_is_not_its_own",
        ),
    ),
    "A4": Tried(
        "the throttle of logins, by X-Forwarded-For",
        (f"{LIMITS}nobody_is_believed_about_addresses_but_a_named_proxy", "web/test_logins.py::test_a_forged_header_is_no_other_address"),
    ),
    "A5": Tried("5,000 nested folders", ("domain/test_removal.py::test_five_thousand_nested_folders_are_deleted",)),
    "A6": Tried(
        "a line break in the name of a result",
        (
            "web/test_hostile_results.py::test_a_file_whose_name_no_page_can_show_is_said_to_be_there",
            f"{PAGES}every_page_of_it_opens_and_runs_nothing",
        ),
    ),
    "A7": Tried("folders that nobody counts", ("web/test_hostile_results.py::test_folders_count_too",)),
    "A8": Tried("sockets without end", ("web/test_sockets.py::test_a_person_has_so_many_sockets_and_topics_and_others_have_theirs",)),
    "A9": Tried(
        "memory, processes, processors and the disk of a machine",
        ("host/test_box_groups.py", "host/test_box_disk.py", "host/test_log_cut.py", "domain/test_diskuse.py"),
    ),
    "A10": Tried("a zip whose entries overlap", ("domain/test_bundles.py::test_it_refuses_entries_that_share_their_packed_bytes",)),
    "A11": Tried(
        "an empty upload in pieces",
        ("web/test_definitions.py::test_an_empty_zip_is_refused_when_it_is_announced_and_its_number_leads_nowhere",),
    ),
    "A12": Tried(
        "names of others' runs on pages of the cluster",
        ("web/test_cluster.py::test_of_a_run_in_another_project_one_sees_whose_it_is_and_not_its_name_nor_a_reason",),
    ),
    "A13": Tried(
        "a WebSocket from another port", ("web/test_origin.py", f"{OUTSIDE}sockets_are_for_who_is_logged_in_on_the_studios_own_pages")
    ),
    "A14": Tried(
        "a socket of somebody who was removed",
        ("web/test_sockets.py::test_who_is_removed_hears_nothing_more_at_once_and_the_others_go_on",),
    ),
    "A15": Tried(
        "the old password of the profile; a password like the name",
        (
            "web/test_logins.py::test_the_old_password_of_the_profile_is_not_guessed_at_either",
            "web/test_logins.py::test_a_password_is_more_than_the_name",
        ),
    ),
    "A16": Tried("which names exist", (), left="Scheduling policy lists all names to whoever is logged in, by design."),
    "A17": Tried(
        "the address inside, told by a refusal",
        ("domain/test_webhook_client.py::test_a_refusal_does_not_tell_which_address_a_name_has_inside",),
    ),
    "A18": Tried("a finish of an upload, sent again", ("web/test_data.py::test_a_finish_of_somebody_elses_upload_is_not_answered_again",)),
    "A19": Tried(
        "system calls that no training needs", ("host/test_box_seccomp.py", f"{BOX}no_right_namespace_device_or_knob_of_the_kernel_is_got")
    ),
    "A20": Tried(
        "the bridge between machines",
        ("engine/test_remote_agents.py::test_who_does_not_know_the_token_is_not_let_in",),
        left="A thread for each connection that has not said the token yet, and no encryption.",
    ),
}

EXPLOITS: dict[str, Tried] = {
    "E1": Tried(
        "cloud metadata, ports of this machine, the internet",
        (
            "host/test_box_network.py::test_a_run_that_asks_for_no_network_reaches_nothing_but_itself",
            "host/test_environments.py::test_code_of_packages_reaches_its_index_and_nothing_private",
            f"{BOX}no_port_of_the_machine_and_no_address_beyond_it_is_reached",
        ),
        left="Of a run whose definition asks for the network, where slirp4netns is not installed (EDT_RUN_NETWORK=required refuses it).",
    ),
    "E2": Tried(
        "computing without a slot",
        (f"{GROUPS}runs_that_compete_share_the_processors_by_slots_and_not_by_processes",),
        left="Memory of a GPU, which needs one to try; processors while they are free.",
    ),
    "E3": Tried("what another run has left in the memory of a GPU", (), left="Not promised; needs a GPU to try."),
    "E4": Tried("fork bombs", (f"{GROUPS}a_fork_bomb_stops_at_the_limit_and_others_begin_meanwhile",)),
    "E5": Tried("memory that is charged to nobody", (f"{GROUPS}a_hog_of_memory_ends_with_a_sentence_and_its_neighbour_and_the_host_live",)),
    "E6": Tried(
        "descriptors of the host, by processes that a driver names",
        (
            "host/test_recovery.py::test_a_driver_cannot_name_processes_without_end",
            f"{BOX}the_host_does_not_believe_it_about_processes_of_others",
        ),
    ),
    "E7": Tried(
        "the disk; files full of holes",
        (
            "host/test_box_disk.py::test_a_hog_of_the_disk_ends_with_a_sentence_and_its_neighbour_and_the_host_live",
            f"{PAGES}a_model_full_of_holes_fills_nobodys_disk",
        ),
    ),
    "E8": Tried("a deep tree against who deletes", ("domain/test_deletion.py::test_a_run_with_folders_nested_by_the_thousand_is_removed",)),
    "E9": Tried(
        "signals, truncation and modes at level landlock",
        (f"{WEAK}at_landlock_what_is_open_is_what_the_documentation_says",),
        left="Modes and times of the studio's files; before Linux 6.12 signals, before 6.2 truncation. No stranger runs code there.",
    ),
    "E10": Tried(
        "the kernel behind user namespaces",
        (
            "host/test_box_seccomp.py::test_each_refused_call_is_refused_to_user_code",
            f"{BOX}no_right_namespace_device_or_knob_of_the_kernel_is_got",
        ),
    ),
    "E11": Tried(
        "a checkpoint with code in it, continued by somebody else",
        (
            "engine/test_inherited_state.py::test_another_runs_state_calls_nothing",
            f"{BOX}a_checkpoint_with_code_in_it_runs_nothing_for_who_continues_from_it",
        ),
    ),
    "E12": Tried(
        "forged lines of a journal",
        (
            "domain/test_ingest.py::test_lines_of_another_run_are_refused",
            "scheduling/test_shares.py::test_what_a_run_says_of_its_end_takes_no_slot_from_another_person",
            f"{BOX}what_it_wrote_in_its_journal_is_about_itself_alone",
        ),
    ),
    "E13": Tried(
        "a slot that is kept",
        (
            "host/test_room.py::test_a_driver_that_keeps_a_slot_is_made_to_give_it_back",
            f"{BOX}a_slot_and_a_run_are_given_back_by_a_script_that_hears_nothing",
        ),
    ),
    "E14": Tried(
        "a flood of valid lines",
        (
            "domain/test_fleet.py::test_a_flood_at_a_runs_end_is_read_in_turns_and_holds_neither_its_slots_nor_its_machine",
            "domain/test_left_out.py::test_a_journal_without_end_is_read_up_to_its_limit",
            f"{BOX}alices_job_and_the_studio_are_as_before_and_go_on",
        ),
    ),
}

//! The page about trust: what it promises is shown by tests, and each sentence has some here.

use std::collections::BTreeMap;
use std::path::Path;

/// Evidence that a statement needs none: it explains, or the next one says it in full.
const NONE: &[&str] = &[];

/// A part of each statement of the page, and the tests that show it: scenarios on real kernels as `scenario NAME`, others as
/// the file's path below `crates` and the test's name.
const SHOWN: &[(&str, &[&str])] = &[
    ("Before you let a program move", NONE),
    ("lists everything that `terrace run`", &["scenario integrity", "scenario torture"]),
    ("`restore` puts things back", &["live/src/journal/tests.rs what_was_set_is_put_back"]),
    (
        "No other command changes a setting of the system, `doctor` included",
        &["live/tests/facts.rs this_machine_is_found_out_without_a_change"],
    ),
    (
        "pause a running engine where you ask for it",
        &["cli/tests/live.rs a_run_can_be_watched_paused_and_read_about"],
    ),
    ("`libterrace.so` grows the pool of 1 GiB pages", &["scenario arena-giant"]),
    (
        "What others write are files of yours",
        &[
            "cli/tests/calibrate.rs a_calibrated_machine_is_here",
            "recorder/src/opencl/plugin.rs what_others_could_replace_is_not_loaded",
        ],
    ),
    ("| where pages lie |", &["scenario verify-self", "scenario move", "scenario integrity"]),
    ("| which pages are in compressed swap", &["scenario pageout", "scenario killed-swap"]),
    ("| whether pages are huge |", &["scenario huge", "scenario whole-thp", "scenario killed"]),
    (
        "| which pages were stored to |",
        &["scenario softdirty", "scenario pagemap-scan", "scenario helped", "scenario killed-helped"],
    ),
    ("| which pages were accessed | DAMON", &["scenario damon", "scenario probe"]),
    (
        "| which pages of shared memory were accessed",
        &[
            "scenario track-accesses",
            "live/tests/entry_dropping.rs no_byte_is_lost_while_private_and_shared_mappings_take_each_others_place",
            "live/tests/entry_dropping.rs memory_that_was_replaced_past_the_library_is_left_alone_from_then_on",
        ],
    ),
    (
        "| when watched pages of shared memory",
        &[
            "scenario sampled",
            "live/tests/faults.rs no_byte_is_lost_while_sampled_mappings_come_and_go",
            "live/tests/faults.rs a_mapping_can_be_moved_while_a_part_of_it_is_sampled",
            "live/tests/faults.rs system_calls_and_many_threads_get_through_sampled_pages",
            "live/src/kernel/faults.rs whatever_the_kernel_refuses_nobody_is_left_waiting",
        ],
    ),
    (
        "| a command's data structures",
        &[
            "scenario structures",
            "live/src/structures.rs a_programs_large_allocations_are_known_while_they_last",
            "preload/placement/src/structures.rs a_full_table_loses_structures_and_counts_them",
        ],
    ),
    ("| a command's memory policy", &["scenario shares"]),
    ("No process is stopped, traced", &["cli/tests/trust.rs no_process_is_stopped_traced_or_injected_into"]),
    ("however it ends, the processes run on", &["scenario integrity", "scenario killed-helped"]),
    (
        "Ctrl-C reaches it as ever",
        &[
            "cli/tests/interrupts.rs a_command_under_management_gets_its_interrupt",
            "cli/tests/live.rs a_run_that_is_to_stop_lets_its_command_go_on",
        ],
    ),
    ("asks the command to end", &["cli/tests/endings.rs a_second_request_ends_the_command"]),
    (
        "What the command leaves behind becomes",
        &[
            "cli/tests/endings.rs what_a_command_leaves_behind_is_managed",
            "live/src/targets/mod.rs what_a_command_leaves_behind_is_a_member_also_where_it_was_never_seen_before",
        ],
    ),
    (
        "| a trace instance,",
        &["scenario integrity", "live/src/journal/tests.rs after_a_crash_restore_does_it"],
    ),
    (
        "| DAMON, `/sys/kernel/mm/damon/admin/kdamonds`",
        &[
            "scenario unit",
            "live/tests/facts.rs damon_that_someone_else_uses_is_left_alone",
            "live/src/journal/tests.rs damon_is_switched_off_unless_it_works_for_someone_else",
        ],
    ),
    ("| `/sys/kernel/mm/mempolicy/weighted_interleave/node*` |", &["scenario shares", "scenario admin"]),
    (
        "| `/run/terrace/PID.json` and `PID.sock` |",
        &[
            "live/src/journal/tests.rs what_was_set_is_put_back",
            "live/src/server/tests.rs status_and_metrics_are_served_and_the_socket_goes_with_the_server",
        ],
    ),
    (
        "| a folder `terrace-help-PID-*`",
        &["live/src/help/places.rs what_killed_runs_left_goes_when_nobody_looks_for_it"],
    ),
    ("Nothing else.", &["scenario integrity", "scenario torture"]),
    (
        "Neither NUMA balancing nor demotion",
        &["live/src/journal/allowed.rs what_terrace_sets_passes_and_nothing_else_does"],
    ),
    (
        "written into the journal **before**",
        &["live/src/journal/tests.rs after_a_crash_restore_does_it", "scenario integrity"],
    ),
    (
        "each setting gets its old value",
        &["scenario admin", "live/src/journal/tests.rs what_the_administrator_has_set_since_is_left_alone"],
    ),
    (
        "does the same for runs that were killed",
        &["scenario torture", "live/src/journal/tests.rs the_journal_of_a_running_process_is_its_own"],
    ),
    (
        "A journal is obeyed, so",
        &["live/src/journal/tests.rs a_journal_that_others_could_have_placed_is_not_read"],
    ),
    (
        "Its folder must belong to the user",
        &[
            "live/src/folder.rs a_folder_of_someone_elses_making_is_not_used",
            "live/src/folder.rs a_file_of_someone_elses_making_is_not_read",
        ],
    ),
    ("Symbolic links are not followed", &["live/src/folder.rs a_file_of_someone_elses_making_is_not_read"]),
    (
        "A journal that names anything but",
        &[
            "live/src/journal/tests.rs a_forged_journal_changes_nothing",
            "live/src/journal/allowed.rs what_terrace_sets_passes_and_nothing_else_does",
        ],
    ),
    (
        "has its mode set explicitly",
        &[
            "live/src/folder.rs modes_hold_under_any_mask",
            "recorder/src/folder.rs modes_do_not_depend_on_the_umask",
            "cli/tests/recording.rs what_a_recording_makes_for_itself_is_private_under_any_mask",
        ],
    ),
    (
        "The folder of the libraries that `run` preloads",
        &["live/src/help.rs modes_do_not_depend_on_the_users_mask"],
    ),
    (
        "Processor time: 3 % of a core",
        &[
            "scenario bounded",
            "scenario compressed",
            "live/src/engine/budget.rs what_is_overdrawn_recovers_at_the_rate",
        ],
    ),
    ("two bytes per page of 4 KiB", &["live/src/space/pages/tests.rs states_hold_what_was_set"]),
    (
        "Moves stop while tasks lose",
        &[
            "live/src/engine/pressure.rs pressure_holds_back_and_lets_go_at_half",
            "live/tests/harm/chaos.rs while_tasks_wait_for_memory_nothing_moves_and_nothing_spins",
        ],
    ),
    ("A node keeps 1/64 of its memory free", &["live/tests/harm/chaos.rs no_move_exceeds_a_limit"]),
    (
        "The status socket has mode 0600",
        &["live/src/server/tests.rs status_and_metrics_are_served_and_the_socket_goes_with_the_server"],
    ),
    ("A request may take a second", &["live/src/server/tests.rs bad_requests_do_no_harm"]),
    (
        "Sixteen connections are served",
        &["live/src/server/tests.rs clients_that_say_nothing_keep_nobody_out"],
    ),
    (
        "The TCP port is off by default",
        &["live/src/server/tests.rs by_tcp_there_are_metrics_and_nothing_else"],
    ),
    (
        "Where memory lies by address (`/map`)",
        &[
            "live/src/status.rs a_map_is_made_only_where_one_was_asked_for",
            "live/src/status.rs maps_are_a_second_apart_and_take_a_tenth_of_the_time",
            "live/src/server/tests.rs the_first_map_is_waited_for",
        ],
    ),
    ("`terrace view` is a process of its own", &["scenario view"]),
    (
        "Its page is served on 127.0.0.1",
        &[
            "view/tests/server.rs nothing_is_shown_without_the_token",
            "view/tests/server.rs names_that_others_point_here_are_refused",
            "view/tests/server.rs an_engine_is_paused_and_resumed_by_the_page_alone",
        ],
    ),
    (
        "Its end is not the engine's",
        &["view/tests/server.rs an_open_page_keeps_no_server_from_ending", "scenario view"],
    ),
    ("The unit that Terrace comes with filters", &["scenario unit"]),
    ("It has no network, no devices", &["scenario unit"]),
    (
        "`systemd-analyze security` rates it",
        &["cli/tests/live.rs the_units_sandbox_is_a_tight_one", "scenario unit"],
    ),
    ("What a bad policy can do", NONE),
    (
        "`terrace top` shows it, `p` stops it",
        &[
            "cli/tests/live.rs a_run_can_be_watched_paused_and_read_about",
            "live/tests/harm/pause.rs in_a_pause_nothing_moves_and_new_memory_still_shows",
        ],
    ),
];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of tables and the sentences of what the page promises, without headings.
fn statements(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in page.split("\n\n").map(str::trim).filter(|text| !text.starts_with('#')) {
        if paragraph.starts_with('|') {
            found.extend(paragraph.lines().skip(2).map(str::to_owned));
            continue;
        }
        for item in paragraph.split("\n- ") {
            let item = item.trim_start_matches("- ").split_whitespace().collect::<Vec<_>>().join(" ");
            let mut rest = item.as_str();
            // A sentence ends with a full stop before a capital, or before a command.
            let is_end = |at: usize, text: &str| {
                text[at + 2..].starts_with(|next: char| next.is_uppercase() || next == '`')
            };
            while let Some((at, _)) = rest.match_indices(". ").find(|(at, _)| is_end(*at, rest)) {
                found.push(rest[..=at].to_owned());
                rest = &rest[at + 2..];
            }
            found.push(rest.to_owned());
        }
    }
    found.retain(|statement| !statement.is_empty());
    found
}

#[test]
fn each_sentence_of_the_page_about_trust_has_tests() {
    let page = read("docs/src/trust.md");
    let statements = statements(page.split_once("## What was tested").unwrap().0);
    assert!(statements.len() > 40, "{statements:#?}");
    for statement in &statements {
        let parts: Vec<&str> =
            SHOWN.iter().map(|(part, _)| *part).filter(|part| statement.contains(part)).collect();
        assert_eq!(parts.len(), 1, "which tests show this? {statement}\n{parts:?}");
    }
    for (part, _) in SHOWN {
        let places = statements.iter().filter(|statement| statement.contains(part)).count();
        assert_eq!(places, 1, "the page no longer says: {part}");
    }
}

#[test]
fn the_tests_that_show_it_are_there() {
    let scenarios = read("tests/vm/guest/src/scenarios/mod.rs");
    let mut files = BTreeMap::new();
    for (part, tests) in SHOWN {
        for test in *tests {
            let is_there = match test.split_once(' ').unwrap() {
                ("scenario", name) => scenarios.contains(&format!("name: \"{name}\"")),
                (file, name) => {
                    let text = files.entry(file).or_insert_with(|| read(&format!("crates/{file}")));
                    text.contains(&format!("fn {name}("))
                }
            };
            assert!(is_there, "{part}: there is no test {test}");
        }
    }
}

#[test]
fn the_scenarios_that_the_page_names_are_there() {
    let (page, scenarios) = (read("docs/src/trust.md"), read("tests/vm/guest/src/scenarios/mod.rs"));
    let rows =
        page.split_once("## What was tested").unwrap().1.lines().filter(|line| line.starts_with("| `"));
    let mut named = 0;
    for row in rows {
        for name in row.split('|').nth(1).unwrap().split(',') {
            let name = name.trim().trim_matches('`');
            assert!(scenarios.contains(&format!("name: \"{name}\"")), "there is no scenario {name}");
            named += 1;
        }
    }
    assert!(named > 30, "{named}");
}

/// The one signal that Terrace sends.
const PASSED_ON: &str = "libc::kill(pid as i32, libc::SIGTERM)";

/// Signals that change nothing (number 0, or 0 to a thread of Terrace's own) ask whether somebody is there.
#[test]
fn no_process_is_stopped_traced_or_injected_into() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut text = std::fs::read_to_string(&path).unwrap();
            seen += 1;
            if path.ends_with("live/src/control.rs") {
                // A second request to stop, passed on to the command of `run`; and the signals that Terrace takes itself.
                assert_eq!(text.matches(PASSED_ON).count(), 1);
                text = text.replace(PASSED_ON, "").replace("SIGTERM", "");
            }
            for call in ["ptrace", "process_vm_writev", "SIGSTOP", "SIGKILL", "SIGCONT", "SIGTERM", "/mem\""]
            {
                assert!(!text.contains(call), "{}: {call}", path.display());
            }
            for call in ["libc::kill(", "SYS_pidfd_send_signal", "SYS_tgkill"] {
                for (at, _) in text.match_indices(call) {
                    let arguments: String = text[at..].chars().take_while(|next| *next != ')').collect();
                    assert!(arguments.contains(", 0"), "{}: {arguments}", path.display());
                }
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

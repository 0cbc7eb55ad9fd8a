//! What stands below a table: the machines, and what keeps the numbers from being the whole truth.

use crate::RunRecord;
use crate::format::wrap;
use crate::run::machine_in_words;

/// The simulated machines, each with its tiers.
pub(crate) fn machines(runs: &[RunRecord], width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for run in runs.iter().filter(|run| !run.tiers.is_empty()) {
        let line = format!("Machine {} (reads, idle).", machine_in_words(&run.machine, &run.tiers));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().map(|line| wrap(line, width, "  ") + "\n").collect()
}

/// Scale, fidelity and notes: what keeps the numbers from being the whole truth. Each is said once; a note that is not
/// about all inputs names those that it is about.
pub(crate) fn caveats(runs: &[RunRecord], width: usize) -> String {
    let inputs = |of: &dyn Fn(&RunRecord) -> bool| {
        let mut names: Vec<&str> = Vec::new();
        for run in runs.iter().filter(|run| of(run)) {
            if !names.contains(&run.input.as_str()) {
                names.push(&run.input);
            }
        }
        names
    };
    let all = inputs(&|_| true);
    let mut lines: Vec<String> = Vec::new();
    let mut say = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for run in runs {
        if run.scale > 1 {
            say(format!(
                "Scaled down by {}: footprints, capacities, TLB reach and periods are divided by it.",
                run.scale
            ));
        }
        if !run.left_out.is_empty() {
            say(format!(
                "Fidelity {} leaves out: {}.",
                run.fidelity,
                run.left_out.join("; ").trim_end_matches('.')
            ));
        }
        for note in &run.notes {
            let about = inputs(&|other| other.notes.contains(note));
            match about.len() < all.len() {
                true => say(format!("Note on {}: {note}", about.join(", "))),
                false => say(format!("Note: {note}")),
            }
        }
    }
    lines.iter().map(|line| wrap(line, width, "  ") + "\n").collect()
}

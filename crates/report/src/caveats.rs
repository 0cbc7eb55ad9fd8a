//! What stands below a table: the machines, and what keeps the numbers from being the whole truth.

use crate::RunRecord;
use crate::format::wrap;
use crate::run::machine_sentence;

/// The simulated machines, each with its tiers.
pub(crate) fn machines(runs: &[RunRecord], width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for run in runs.iter().filter(|run| !run.tiers.is_empty()) {
        let line = machine_sentence(&run.machine, &run.tiers);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().map(|line| wrap(line, width, "  ") + "\n").collect()
}

/// Each name once, in the order of the first of its kind.
fn once<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name.as_str()) {
            found.push(name);
        }
    }
    found
}

/// Which runs a note is about, as " on ambix, redis": designs if it is not about all of them on these inputs, inputs if
/// it is not about all.
fn about(runs: &[RunRecord], note: &str) -> String {
    let noted = || runs.iter().filter(|run| run.notes.iter().any(|other| other == note));
    let inputs = once(noted().map(|run| &run.input));
    let designs = once(noted().map(|run| &run.design));
    let on_these = runs.iter().filter(|run| inputs.contains(&run.input.as_str()));
    let mut about = Vec::new();
    if designs.len() < once(on_these.map(|run| &run.design)).len() {
        about.extend(designs);
    }
    if inputs.len() < once(runs.iter().map(|run| &run.input)).len() {
        about.extend(&inputs);
    }
    if about.is_empty() { String::new() } else { format!(" on {}", about.join(", ")) }
}

/// Scale, fidelity and notes: what keeps the numbers from being the whole truth. Each is said once; a note that is not
/// about all runs names the designs and inputs that it is about.
pub fn caveats(runs: &[RunRecord], width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut say = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for run in runs {
        if run.scale > 1 {
            say(format!(
                "Scaled down by {0}: capacities, TLB reach and periods are divided by it; the input is as it came, so its \
                 footprint has to be 1/{0} of the real one.",
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
            say(format!("Note{}: {note}", about(runs, note)));
        }
    }
    lines.iter().map(|line| wrap(line, width, "  ") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(design: &str, input: &str, notes: &[&str]) -> RunRecord {
        RunRecord {
            design: design.to_owned(),
            input: input.to_owned(),
            scale: 1,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn notes_name_designs_and_inputs_where_they_are_not_about_all() {
        let runs = [
            run("a", "x", &["everywhere", "all of x", "a alone"]),
            run("b", "x", &["everywhere", "all of x", "b on x"]),
            run("a", "y", &["everywhere", "a alone"]),
            run("b", "y", &["everywhere"]),
        ];
        let expected = "Note: everywhere\nNote on x: all of x\nNote on a: a alone\nNote on b, x: b on x\n";
        assert_eq!(caveats(&runs, 80), expected);
        assert_eq!(caveats(&runs[..1], 80), "Note: everywhere\nNote: all of x\nNote: a alone\n");
    }
}

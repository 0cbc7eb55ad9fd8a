//! What a machine offers in words, for a terminal.

use super::{Diagnosis, Finding, Lacking, PolicyFinding, Verdict};
use std::fmt::Write;
use terrace_model::text::wrap;

/// Columns of names and of states.
const NAMES: usize = 20;
const STATES: usize = 9;
/// Columns of a screen.
const WIDTH: usize = 80;

impl Diagnosis {
    /// What was found in 80 columns: findings by area, policies, what is lacking.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut area = "";
        for finding in &self.findings {
            if finding.area != area {
                let gap = if area.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}{}", capitalized(finding.area));
                area = finding.area;
            }
            line(&mut text, finding);
        }
        policies(&mut text, &self.policies);
        lacking(&mut text, &self.lacking);
        text
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `content` after `first`, its further lines below its first.
fn hang(text: &mut String, first: &str, content: &str) {
    let column = first.chars().count();
    for (at, part) in wrap(content, WIDTH - column).iter().enumerate() {
        let before = if at == 0 { first } else { "" };
        let _ = writeln!(text, "{}", format!("{before:column$}{part}").trim_end());
    }
}

fn line(text: &mut String, finding: &Finding) {
    let first = format!("  {:NAMES$}{:STATES$}", finding.item, finding.state.name());
    hang(text, &first, &finding.value);
    remedy(text, finding.enable.as_deref());
}

/// On lines of its own, where most commands fit whole and can be copied.
fn remedy(text: &mut String, enable: Option<&str>) {
    if let Some(enable) = enable {
        hang(text, "    try: ", enable);
    }
}

fn policies(text: &mut String, policies: &[PolicyFinding]) {
    let of = |verdict: Verdict| policies.iter().filter(move |policy| policy.verdict == verdict);
    text.push_str("\nPolicies that run here\n");
    let names: Vec<&str> = of(Verdict::Runs).map(|policy| policy.name).collect();
    let names = if names.is_empty() { "none with its defaults".to_owned() } else { names.join(", ") };
    hang(text, "  ", &names);
    if of(Verdict::RunsWith).next().is_some() {
        text.push_str("\nPolicies that run here with other parameters\n");
        for policy in of(Verdict::RunsWith) {
            let without = format!("{}, for it lacks {}", policy.with.join(" "), policy.lacks.join(", "));
            hang(text, &format!("  {:NAMES$}", policy.name), &without);
        }
    }
    if of(Verdict::DoesNotRun).next().is_some() {
        text.push_str("\nPolicies that do not run here, and what they lack\n");
        for policy in of(Verdict::DoesNotRun) {
            let lacks: Vec<&str> =
                policy.refusal.as_deref().into_iter().chain(policy.lacks.iter().copied()).collect();
            hang(text, &format!("  {:NAMES$}", policy.name), &lacks.join(", "));
        }
    }
}

/// What is lacking for the same reason stands together.
fn lacking(text: &mut String, lacking: &[Lacking]) {
    if !lacking.is_empty() {
        text.push_str("\nWhat that means\n");
    }
    let cause = |one: &Lacking| (one.reason.clone(), one.enable.clone());
    for (at, one) in lacking.iter().enumerate() {
        if lacking[..at].iter().any(|earlier| cause(earlier) == cause(one)) {
            continue;
        }
        let together = lacking.iter().filter(|other| cause(other) == cause(one));
        let names: Vec<&str> = together.map(|other| other.capability).collect();
        let reason = format!("{}: {}", names.join(", "), one.reason);
        for (at, part) in wrap(&reason, WIDTH - 4).iter().enumerate() {
            let _ = writeln!(text, "{}{part}", if at == 0 { "  " } else { "    " });
        }
        remedy(text, one.enable.as_deref());
    }
}

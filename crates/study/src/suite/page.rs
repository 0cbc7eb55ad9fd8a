//! The suite as documents and as text.

use super::{Entry, Manifest, Source, State, Suite, entries};
use crate::figures::{readable, short};
use crate::mix::{self, Bundle};
use serde::Serialize;
use std::fmt::Write;
use terrace_model::text;

/// An entry and how far it is.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// What it is asked for by.
    pub name: String,
    /// In a line.
    pub summary: String,
    /// Programs of published evaluations.
    pub stands_for: Vec<String>,
    /// From those.
    pub differs: String,
    /// What it needs of the distribution.
    pub packages: Vec<String>,
    /// How far it is, [`State::name`].
    pub state: &'static str,
    /// What is known of its recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Manifest>,
}

impl Program {
    /// An entry as it is now.
    pub fn of(suite: &Suite, entry: &Entry) -> Program {
        let (state, entry) = (suite.state(entry), entry.clone());
        Program {
            state: state.name(),
            recording: if let State::Recorded(manifest) = state { Some(*manifest) } else { None },
            name: entry.name,
            summary: entry.summary,
            stands_for: entry.stands_for,
            differs: entry.differs,
            packages: entry.packages,
        }
    }
}

/// All programs, and the mixes of them.
#[derive(Clone, Debug, Serialize)]
pub struct List {
    /// The programs.
    pub programs: Vec<Program>,
    /// The mixes that have a name.
    pub mixes: Vec<Mixed>,
}

/// Programs side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Mixed {
    /// What it is asked for by.
    pub name: String,
    /// A mix of a published evaluation.
    pub stands_for: String,
    /// The programs.
    pub programs: Vec<String>,
    /// From that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub differs: String,
}

impl List {
    /// The suite as it is now.
    pub fn of(suite: &Suite) -> List {
        let mixed =
            |Bundle { name, stands_for, programs, differs }| Mixed { name, stands_for, programs, differs };
        List {
            programs: entries().iter().map(|entry| Program::of(suite, entry)).collect(),
            mixes: mix::bundles().into_iter().map(mixed).collect(),
        }
    }

    /// A line for each.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for program in &self.programs {
            let _ = writeln!(text, "{:<10} {:<13} {}", program.name, program.state, program.summary);
        }
        text += "\nMixes, side by side on one machine (--mix NAME)\n";
        for mix in &self.mixes {
            let _ = writeln!(text, "{:<10} {}", mix.name, mix.programs.join(" "));
        }
        let _ = writeln!(text, "hatric-N   sixteen built-in programs drawn by N, 1 to {}", mix::DRAWN);
        let _ = writeln!(text, "hatric-recorded-N  the same of built-in and recorded programs");
        text
    }
}

/// What a program stands for, how it differs, and its figures, in 80 columns.
pub fn describe(suite: &Suite, entry: &Entry) -> String {
    let state = suite.state(entry);
    let mut rows = vec![("stands for", entry.stands_for.join("; ")), ("differs", entry.differs.clone())];
    match &entry.source {
        Source::Workload(spec) => rows.push(("workload", spec.clone())),
        Source::Program(program) => {
            rows.push(("packages", entry.packages.join(" ")));
            rows.push(("runs", program.run.clone()));
            let (skip, length) = (short(program.skip as f64), short(program.length as f64));
            rows.push(("region", format!("{length} accesses after the first {skip}")));
        }
    }
    rows.push(("state", state.name().to_owned()));
    if let State::Recorded(manifest) = &state {
        let figures = &manifest.figures;
        let per_instruction = 1000.0 * figures.accesses as f64 / figures.instructions.max(1) as f64;
        rows.extend([
            ("recording", format!("{}, {}", suite.trace(entry).display(), readable(manifest.bytes))),
            ("sha256", manifest.sha256.clone()),
            ("made", format!("{} by terrace {}", manifest.date, manifest.terrace)),
            (
                "versions",
                manifest
                    .packages
                    .iter()
                    .map(|(name, version)| format!("{name} {version}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
            (
                "accesses",
                format!("{}, {per_instruction:.0} per 1000 instructions", short(figures.accesses as f64)),
            ),
            ("footprint", readable(figures.footprint_bytes)),
            ("threads", format!("{} in {} processes", figures.threads, figures.processes)),
            (
                "page walks",
                format!(
                    "{:.2} per 1000 instructions on 4 KiB pages of {}",
                    figures.walks_per_kilo_instruction, figures.machine
                ),
            ),
        ]);
    }
    let rows = rows.iter().map(|(name, content)| (*name, content.as_str()));
    format!("{}: {}\n\n{}", entry.name, entry.summary, text::two_columns(rows))
}

//! A design or a machine with all its parameters.

use serde::Serialize;
use std::fmt::Write;
use terrace_model::text;
use terrace_sim::design::Resolved;

/// A design, or a machine with its own operating system's settings.
#[derive(Debug, Serialize)]
pub struct DesignPage<'a> {
    /// Name.
    pub name: &'a str,
    /// In a line.
    pub summary: &'a str,
    /// The machine that it is on.
    pub machine: &'a str,
    /// Every parameter.
    pub parameters: Vec<Origin<'a>>,
    /// The values that come from no source.
    pub ledger: Ledger<'a>,
}

/// A parameter, and where its value comes from.
#[derive(Debug, Serialize)]
pub struct Origin<'a> {
    /// Dotted key.
    pub key: &'a str,
    /// Value with its unit.
    pub value: &'a str,
    /// File, preset or option.
    pub origin: &'a str,
}

/// What was calibrated, assumed and cited, and how far measurements were apart.
#[derive(Debug, Serialize)]
pub struct Ledger<'a> {
    /// Fitted to published rows, so no prediction.
    pub calibrated: &'a [String],
    /// Left out by the source.
    pub assumed: &'a [String],
    /// Sources.
    pub cited: &'a [String],
    /// Between which values a measured constant lay.
    pub spread: &'a [String],
}

/// A place in one of Terrace's own files without folder and ending, which all of them share: `zen4-cxl:52`.
fn shortened(origin: &str) -> String {
    let own = origin.strip_prefix("machines/").or_else(|| origin.strip_prefix("designs/"));
    own.map_or_else(|| origin.to_owned(), |own| own.replace(".toml:", ":"))
}

/// Columns of the text.
const WIDTH: usize = 80;

impl<'a> DesignPage<'a> {
    /// All that is known of a design.
    pub fn of(resolved: &'a Resolved) -> DesignPage<'a> {
        let (design, ledger) = (&resolved.design, &resolved.ledger);
        let parameters = resolved.parameters.iter();
        DesignPage {
            name: &design.name,
            summary: &design.summary,
            machine: &design.machine,
            parameters: parameters
                .map(|p| Origin { key: &p.key, value: &p.value, origin: &p.origin })
                .collect(),
            ledger: Ledger {
                calibrated: &ledger.calibrated,
                assumed: &ledger.assumed,
                cited: &ledger.cited,
                spread: &ledger.spread,
            },
        }
    }

    /// The page as text; `kind` is `design` or `machine`.
    pub fn to_text(&self, kind: &str) -> String {
        let mut text = text::hanging("", &format!("{kind} {}: {}", self.name, self.summary), WIDTH - 2);
        if kind == "design" {
            let _ = writeln!(text, "machine {}", self.machine);
        }
        let _ = writeln!(text, "\nParameters (value, where it comes from: a file's name and line):");
        let widest = |of: fn(&Origin<'_>) -> usize| self.parameters.iter().map(of).max().unwrap_or(0);
        let key_width = widest(|p| p.key.len());
        // Sources in words go below.
        let origins = self.parameters.iter().map(|p| shortened(p.origin).chars().count());
        let origins = origins.filter(|width| *width <= 24).max().unwrap_or(0);
        let room = WIDTH.saturating_sub(6 + key_width + origins);
        let value_width = widest(|p| p.value.chars().count()).min(room.clamp(6, 20));
        for Origin { key, value, origin } in &self.parameters {
            let origin = shortened(origin);
            let line = format!("  {key:key_width$}  {value:value_width$}  {origin}");
            if line.trim_end().chars().count() <= WIDTH {
                let _ = writeln!(text, "{}", line.trim_end());
                continue;
            }
            // What does not fit goes below, to the right.
            for (at, part) in text::wrap(&format!("{key}  {value}"), WIDTH - 2).iter().enumerate() {
                let _ = writeln!(text, "{}{part}", if at == 0 { "  " } else { "      " });
            }
            let _ = writeln!(text, "{origin:>WIDTH$}");
        }
        let ledgers = [
            ("Calibrated: fitted to published rows, so no prediction", self.ledger.calibrated),
            ("Assumed: left out by the source", self.ledger.assumed),
            ("Cited", self.ledger.cited),
            ("Spread of what was measured", self.ledger.spread),
        ];
        for (heading, entries) in ledgers {
            if entries.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n{heading}:");
            for entry in entries {
                for (line, part) in text::wrap(entry, 74).iter().enumerate() {
                    let _ = writeln!(text, "  {} {part}", if line == 0 { "-" } else { " " });
                }
            }
        }
        text
    }
}

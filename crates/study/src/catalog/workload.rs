//! A workload: what it does, what it stands for, parameters.

use crate::Error;
use crate::figures::{readable, short};
use serde::Serialize;
use std::fmt::Write;
use terrace_model::text;
use terrace_workload::ParameterInfo;

/// All that is known of a workload with its parameters.
#[derive(Debug, Serialize)]
pub struct WorkloadPage {
    /// Name.
    pub name: &'static str,
    /// In a line.
    pub summary: &'static str,
    /// In paragraphs.
    pub description: &'static str,
    /// How many accesses it makes.
    pub accesses: u64,
    /// Whether that is exact.
    pub accesses_exact: bool,
    /// What it has of memory.
    pub footprint_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// As resolved, `key=value`.
    pub arguments: Vec<String>,
    /// Every parameter.
    pub parameters: Vec<ParameterInfo>,
}

impl WorkloadPage {
    /// A workload by its name, with parameters or without.
    ///
    /// # Errors
    /// No workload of this name, or one that does not take these parameters.
    pub fn of(spec: &str) -> Result<WorkloadPage, Error> {
        let workload = terrace_workload::open(spec)?;
        let info = workload.info();
        Ok(WorkloadPage {
            name: info.name,
            summary: info.summary,
            description: info.description,
            accesses: workload.accesses(),
            accesses_exact: info.exact,
            footprint_bytes: workload.footprint(),
            threads: workload.threads(),
            arguments: workload.header().arguments,
            parameters: info.parameters(),
        })
    }

    /// The page as text of 80 columns.
    pub fn to_text(&self) -> String {
        let mut text = text::hanging("", &format!("{}: {}", self.name, self.summary), 78);
        text.push('\n');
        for paragraph in self.description.split("\n\n") {
            for line in text::wrap(paragraph, 80) {
                let _ = writeln!(text, "{line}");
            }
            text.push('\n');
        }
        let about = if self.accesses_exact { "" } else { "about " };
        let _ = writeln!(text, "Accesses   {about}{}", short(self.accesses as f64));
        let _ = writeln!(text, "Footprint  {}", readable(self.footprint_bytes));
        let _ = writeln!(text, "\nParameters (default, unit):");
        for parameter in &self.parameters {
            let unit =
                if parameter.unit.is_empty() { String::new() } else { format!("  ({})", parameter.unit) };
            let _ = writeln!(text, "  {}={}{unit}", parameter.name, parameter.default);
            for line in text::wrap(&parameter.explanation_with_range(), 74) {
                let _ = writeln!(text, "      {line}");
            }
        }
        let words = &self.arguments;
        if !words.is_empty() {
            let _ = writeln!(text, "\nAs given:");
            for line in text::wrap(&words.join(" "), 78) {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }
}

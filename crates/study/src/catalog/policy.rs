//! A policy: idea, source, what is left open, what it needs, parameters.

use crate::Error;
use serde::Serialize;
use std::fmt::Write;
use terrace_model::text;
use terrace_policy::{ParameterInfo, registry};

/// All that is known of a policy.
#[derive(Debug, Serialize)]
pub struct PolicyPage {
    /// Name.
    pub name: &'static str,
    /// In a line.
    pub summary: String,
    /// Markdown.
    pub document: String,
    /// What the parameter `algorithm` chooses from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub algorithms: Vec<AlgorithmPage>,
    /// What a machine has to have.
    pub needs: Vec<Need>,
    /// The input is run twice: first to count the accesses of every page.
    pub first_pass: bool,
    /// Every parameter.
    pub parameters: Vec<ParameterPage>,
}

/// A variant of a policy.
#[derive(Debug, Serialize)]
pub struct AlgorithmPage {
    /// The word that chooses the variant.
    pub name: &'static str,
    /// In a line.
    pub summary: String,
    /// Markdown.
    pub document: String,
}

/// A capability that a policy needs.
#[derive(Debug, Serialize)]
pub struct Need {
    /// The capability's word.
    pub name: &'static str,
    /// In a line.
    pub meaning: &'static str,
}

/// A parameter of a policy.
#[derive(Debug, Serialize)]
pub struct ParameterPage {
    /// The value in force.
    pub value: String,
    /// The parameter's declaration.
    #[serde(flatten)]
    pub info: ParameterInfo,
}

impl PolicyPage {
    /// A policy with some parameters changed.
    ///
    /// # Errors
    /// No policy of this name, or one that does not take these parameters.
    pub fn of(name: &str, sets: &[(String, String)]) -> Result<PolicyPage, Error> {
        let entry = registry::find(name)?;
        if let Some(renamed) = entry.renamed(name) {
            tracing::warn!("{renamed}");
        }
        let mut given = toml::Table::new();
        for (key, value) in sets {
            registry::set(&mut given, key, value);
        }
        let effective = entry.effective(&given)?;
        let needs = entry.needs(&given)?;
        let parameters = entry.parameters().into_iter().map(|info| ParameterPage {
            value: effective.get(&info.name).map_or_else(|| info.default.clone(), terrace_policy::text_of),
            info,
        });
        Ok(PolicyPage {
            name: entry.name(),
            summary: entry.summary(),
            document: entry.document(),
            algorithms: entry
                .algorithms()
                .iter()
                .map(|one| AlgorithmPage { name: one.name, summary: one.summary(), document: one.document() })
                .collect(),
            needs: needs
                .capabilities
                .iter()
                .map(|need| Need { name: need.name(), meaning: need.meaning() })
                .collect(),
            first_pass: needs.first_pass,
            parameters: parameters.collect(),
        })
    }

    /// The page as text of 80 columns.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for paragraph in format!("{}: {}", self.name, self.document).split("\n\n") {
            for line in text::wrap(&paragraph.replace("**", ""), 80) {
                let _ = writeln!(text, "{line}");
            }
            text.push('\n');
        }
        if !self.algorithms.is_empty() {
            text.push_str("Algorithms:\n");
            let lines = self.algorithms.iter().map(|one| (one.name, one.summary.as_str()));
            text.push_str(&text::two_columns(lines));
            text.push('\n');
        }
        if self.needs.is_empty() && !self.first_pass {
            text.push_str("Needs nothing of the machine beyond its tiers.\n");
        } else if !self.needs.is_empty() {
            text.push_str("Needs:\n");
            text.push_str(&text::two_columns(self.needs.iter().map(|need| (need.name, need.meaning))));
        }
        if self.first_pass {
            text.push_str("Needs a first pass over the same input, to count every page's accesses.\n");
        }
        if self.parameters.is_empty() {
            text.push_str("\nNo parameters.\n");
            return text;
        }
        text.push_str("\nParameters:\n");
        for parameter in &self.parameters {
            let ParameterPage { value, info } = parameter;
            let changed =
                if *value == info.default { String::new() } else { format!("  (default {})", info.default) };
            let _ = writeln!(text, "  {}={value}{changed}", info.name);
            for line in text::wrap(&info.explanation_with_range(), 74) {
                let _ = writeln!(text, "      {line}");
            }
        }
        text
    }
}

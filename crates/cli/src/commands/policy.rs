//! `terrace policy`: the memory-management policies.

use crate::error::{Blame, CommandResult};
use crate::options::{ResultOptions, parse_set};
use crate::output;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fmt::Write;
use terrace_policy::{Entry, ParameterInfo, registry};

const EXAMPLES: &str = "\
Examples:
  terrace policy list
  terrace policy show ambix
  terrace policy show ambix --set period=\"4 s\" --set switch=false
  terrace policy show thermostat --json - | jq .parameters";

/// List and show the policies that place and move pages between tiers
///
/// A policy decides where new pages go and which pages move. Each comes from a
/// published source; its page says which, what the source leaves open, and what
/// was chosen instead. Its name is also a design: `terrace sim
/// --design ambix`, where os.policy.KEY sets a parameter.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the policies, one line each
    List(ResultOptions),
    /// Show a policy: idea, source, what is left open, what it needs, parameters
    Show {
        /// A name of `terrace policy list`
        #[arg(value_name = "NAME")]
        name: String,
        /// Show the policy with this parameter changed. Repeatable
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_set)]
        sets: Vec<(String, String)>,
        #[command(flatten)]
        results: ResultOptions,
    },
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::List(results) => list(&results),
        Action::Show { name, sets, results } => show(&name, &sets, &results),
    }
}

#[derive(Serialize)]
struct ListDocument {
    policies: Vec<ListEntry>,
}

#[derive(Serialize)]
struct ListEntry {
    name: &'static str,
    summary: String,
}

fn list(results: &ResultOptions) -> CommandResult {
    let policies: Vec<ListEntry> =
        registry::all().iter().map(|e| ListEntry { name: e.name(), summary: e.summary() }).collect();
    results.print(|| output::two_columns(policies.iter().map(|p| (p.name, p.summary.as_str()))))?;
    results.write_rows(&ListDocument { policies }, "policies")?;
    Ok(())
}

#[derive(Serialize)]
struct ShowDocument {
    name: &'static str,
    summary: String,
    /// Markdown.
    document: String,
    /// What the parameter `algorithm` chooses from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    algorithms: Vec<Algorithm>,
    needs: Vec<Need>,
    /// The input is run twice: first to count the accesses of every page.
    first_pass: bool,
    parameters: Vec<Parameter>,
}

#[derive(Serialize)]
struct Algorithm {
    name: &'static str,
    summary: String,
    /// Markdown.
    document: String,
}

#[derive(Serialize)]
struct Need {
    name: &'static str,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Parameter {
    /// With `--set` applied.
    value: String,
    #[serde(flatten)]
    info: ParameterInfo,
}

fn show(name: &str, sets: &[(String, String)], results: &ResultOptions) -> CommandResult {
    let entry = registry::find(name).or_usage()?;
    let document = describe(entry, sets)?;
    results.write(&document)?;
    results.print(|| text(&document))
}

fn describe(entry: &Entry, sets: &[(String, String)]) -> Result<ShowDocument, crate::error::Failure> {
    let mut given = toml::Table::new();
    for (key, value) in sets {
        registry::set(&mut given, key, value);
    }
    let effective = entry.effective(&given).or_usage()?;
    let needs = entry.needs(&given).or_usage()?;
    let parameters = entry.parameters().into_iter().map(|info| Parameter {
        value: effective.get(&info.name).map_or_else(|| info.default.clone(), plain),
        info,
    });
    Ok(ShowDocument {
        name: entry.name(),
        summary: entry.summary(),
        document: entry.document(),
        algorithms: entry
            .algorithms()
            .iter()
            .map(|one| Algorithm { name: one.name, summary: one.summary(), document: one.document() })
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

/// A TOML value as `--set` takes it.
fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text(policy: &ShowDocument) -> String {
    let mut text = String::new();
    for paragraph in format!("{}: {}", policy.name, policy.document).split("\n\n") {
        for line in output::wrap(&paragraph.replace("**", ""), 80) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    if !policy.algorithms.is_empty() {
        text.push_str("Algorithms:\n");
        let lines = policy.algorithms.iter().map(|one| (one.name, one.summary.as_str()));
        text.push_str(&output::two_columns(lines));
        text.push('\n');
    }
    if policy.needs.is_empty() && !policy.first_pass {
        text.push_str("Needs nothing of the machine beyond its tiers.\n");
    } else if !policy.needs.is_empty() {
        text.push_str("Needs:\n");
        text.push_str(&output::two_columns(policy.needs.iter().map(|need| (need.name, need.meaning))));
    }
    if policy.first_pass {
        text.push_str("Needs a first pass over the same input, to count every page's accesses.\n");
    }
    if policy.parameters.is_empty() {
        text.push_str("\nNo parameters.\n");
        return text;
    }
    text.push_str("\nParameters:\n");
    for parameter in &policy.parameters {
        let Parameter { value, info } = parameter;
        let changed =
            if *value == info.default { String::new() } else { format!("  (default {})", info.default) };
        let _ = writeln!(text, "  {}={value}{changed}", info.name);
        for line in output::wrap(&output::parameter_help(info), 74) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}

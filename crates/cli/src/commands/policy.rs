//! `terrace policy`: the memory-management policies.

use crate::error::CommandResult;
use crate::options::{ResultOptions, parse_set};
use clap::{Args, Subcommand};
use terrace_study::catalog::{self, PolicyPage};

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
        Action::List(results) => results.list("policies", catalog::policies()),
        Action::Show { name, sets, results } => {
            let page = PolicyPage::of(&name, &sets)?;
            results.write(&page)?;
            results.print(|| page.to_text())
        }
    }
}

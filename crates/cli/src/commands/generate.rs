//! `terrace completions` and `terrace man`: files for the shell and for `man`, made from the same help texts.

use super::Cli;
use crate::error::{CommandResult, Failure};
use crate::output::{self, OutputFolder};
use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use std::path::Path;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  terrace completions bash > ~/.local/share/bash-completion/completions/terrace
  terrace completions zsh > \"${fpath[1]}/_terrace\"
  terrace completions fish > ~/.config/fish/completions/terrace.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  terrace man ~/.local/share/man/man1
  man terrace-compare";

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_long_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Write the manual pages into a folder
///
/// One page for terrace and one for each subcommand: terrace.1,
/// terrace-compare.1, terrace-trace-info.1 …
#[derive(Debug, Args)]
#[command(after_long_help = MAN_EXAMPLES)]
pub struct ManArguments {
    /// The folder; made where missing
    #[arg(value_name = "FOLDER")]
    folder: OutputFolder,
}

/// Prints the completion script.
pub fn completions(arguments: CompletionsArguments) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "terrace", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Writes the pages.
pub fn man(arguments: ManArguments) -> CommandResult {
    let folder: &Path = &arguments.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("making the folder {}", folder.display()))
        .map_err(Failure::Run)?;
    write_pages(folder, Cli::command())
}

fn write_pages(folder: &Path, command: Command) -> CommandResult {
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("writing the manual pages into {}", folder.display()))
        .map_err(Failure::Run)
}

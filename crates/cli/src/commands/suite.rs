//! `terrace suite`: real programs as inputs.

use crate::error::{CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output;
use crate::progress::{Terminal, note, short};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fmt::Write;
use std::process::Command;
use terrace_study::figures::readable;
use terrace_study::mix::{self, Bundle};
use terrace_study::suite::{self, Entry, Manifest, Source, State, Suite};

const EXAMPLES: &str = "\
Examples:
  terrace suite list
  terrace suite show mcf
  terrace suite install mcf gcc
  terrace suite record mcf gcc
  terrace compare native-4k vbi-full --suite mcf --suite gcc
  terrace compare native-4k vbi-full --mix vbi-w4

Recordings lie in $XDG_CACHE_HOME/terrace/suite (~/.cache where that is not
set), with a manifest of versions, figures and the SHA-256. Each is made on
this machine, from this machine's programs: figures differ between machines.";

/// List, install, record and show the suite of real programs
///
/// Programs of Debian and kernels of our own that stand for those of published
/// evaluations. Each makes its own input, has a region of interest of a stated
/// length, and is an input of every study by `--suite NAME`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the programs and how far each is, and the mixes of them
    List(ResultOptions),
    /// Install the packages that programs need (apt-get, as root or by sudo)
    Install {
        /// Programs; none: all that lack something
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Print the command instead of running it
        #[arg(long)]
        print_command: bool,
    },
    /// Make inputs and record programs that are not recorded yet
    Record {
        /// Programs; none: all whose packages are installed
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Record also what is recorded already
        #[arg(long)]
        again: bool,
    },
    /// Show what a program stands for, how it differs, and its figures
    Show {
        /// The program
        #[arg(value_name = "NAME")]
        name: String,
        /// Compare the recording with its checksum
        #[arg(long)]
        verify: bool,
        #[command(flatten)]
        results: ResultOptions,
    },
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let suite = Suite::of_user()?;
    match arguments.action {
        Action::List(results) => list(&suite, &results),
        Action::Install { names, print_command } => install(&suite, &names, print_command),
        Action::Record { names, again } => record(&suite, &names, again),
        Action::Show { name, verify, results } => show(&suite, &name, verify, &results),
    }
}

#[derive(Serialize)]
struct Listed {
    name: String,
    summary: String,
    stands_for: Vec<String>,
    differs: String,
    packages: Vec<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<Manifest>,
}

#[derive(Serialize)]
struct ListDocument {
    programs: Vec<Listed>,
    mixes: Vec<ListedMix>,
}

#[derive(Serialize)]
struct ListedMix {
    name: String,
    stands_for: String,
    programs: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    differs: String,
}

fn listed(suite: &Suite, entry: Entry) -> Listed {
    let state = suite.state(&entry);
    Listed {
        state: word(&state),
        recording: if let State::Recorded(manifest) = state { Some(*manifest) } else { None },
        name: entry.name,
        summary: entry.summary,
        stands_for: entry.stands_for,
        differs: entry.differs,
        packages: entry.packages,
    }
}

fn word(state: &State) -> &'static str {
    match state {
        State::Lacks(_) => "not installed",
        State::Ready => "not recorded",
        State::Outdated => "outdated",
        State::Recorded(_) => "recorded",
        State::BuiltIn => "built in",
    }
}

fn list(suite: &Suite, results: &ResultOptions) -> CommandResult {
    let programs: Vec<Listed> = suite::entries().into_iter().map(|entry| listed(suite, entry)).collect();
    let mut text = String::new();
    for program in &programs {
        let _ = writeln!(text, "{:<10} {:<13} {}", program.name, program.state, program.summary);
    }
    let mixes: Vec<ListedMix> = mix::bundles()
        .into_iter()
        .map(|Bundle { name, stands_for, programs, differs }| ListedMix {
            name,
            stands_for,
            programs,
            differs,
        })
        .collect();
    text += "\nMixes, side by side on one machine (--mix NAME)\n";
    for mix in &mixes {
        let _ = writeln!(text, "{:<10} {}", mix.name, mix.programs.join(" "));
    }
    let _ = writeln!(text, "hatric-N   sixteen programs drawn by N, 1 to {}", mix::DRAWN);
    results.write_rows(&ListDocument { programs, mixes }, "programs")?;
    results.print(|| text)
}

/// The entries of these names; all where there is none.
fn chosen(names: &[String]) -> Result<Vec<Entry>, Failure> {
    if names.is_empty() {
        return Ok(suite::entries());
    }
    names.iter().map(|name| Ok(suite::find(name)?)).collect()
}

fn install(suite: &Suite, names: &[String], print_command: bool) -> CommandResult {
    let mut packages: Vec<String> = Vec::new();
    for entry in chosen(names)? {
        // What is named is printed even where it is there.
        if matches!(suite.state(&entry), State::Lacks(_)) || (print_command && !names.is_empty()) {
            packages.extend(
                entry.packages.into_iter().filter(|package| !packages.contains(package)).collect::<Vec<_>>(),
            );
        }
    }
    if packages.is_empty() {
        return output::print_line("all packages are installed");
    }
    let mut words: Vec<String> =
        ["apt-get", "install", "-y", "--no-install-recommends"].map(str::to_owned).into();
    words.extend(packages);
    if !rustix::process::geteuid().is_root() {
        words.insert(0, "sudo".to_owned());
    }
    let shown = output::shell_join(&words);
    if print_command {
        return output::print_line(&shown);
    }
    note(&shown);
    let status = Command::new(&words[0]).args(&words[1..]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::run(format!("{shown} ended with {status}"))),
        Err(error) => Err(Failure::run(format!("{}: {error}; install by other means: {shown}", words[0]))),
    }
}

fn record(suite: &Suite, names: &[String], again: bool) -> CommandResult {
    let terminal = Terminal::install();
    let mut failed = Vec::new();
    let mut recorded = 0;
    for entry in chosen(names)? {
        match suite.state(&entry) {
            State::Recorded(_) if !again => continue,
            State::BuiltIn if names.is_empty() => continue,
            State::Lacks(_) if names.is_empty() => {
                note(&format!("{}: left out, not installed", entry.name));
                continue;
            }
            _ => {}
        }
        match suite::record(suite, &entry, &terminal) {
            Ok(manifest) => {
                recorded += 1;
                note(&format!("{}: {}", entry.name, in_short(&manifest)));
            }
            Err(error @ terrace_study::Error::Stopped(_)) => return Err(error.into()),
            // The next one may do; what failed is said at the end.
            Err(error) if names.len() != 1 => failed.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    if !failed.is_empty() {
        return Err(Failure::run(failed.join("\n")));
    }
    if recorded == 0 {
        note("nothing to record; --again records anew");
    }
    Ok(())
}

fn in_short(manifest: &Manifest) -> String {
    let figures = &manifest.figures;
    format!(
        "{} accesses, {} touched, {:.2} page walks per 1000 instructions",
        short(figures.accesses as f64),
        readable(figures.footprint_bytes),
        figures.walks_per_kilo_instruction
    )
}

fn show(suite: &Suite, name: &str, verify: bool, results: &ResultOptions) -> CommandResult {
    let entry = suite::find(name)?;
    let state = suite.state(&entry);
    if verify {
        match &state {
            State::Recorded(manifest) => suite::verify(suite, &entry, manifest)?,
            _ => {
                return Err(Failure::usage(format!(
                    "{name} is {}; there is no recording to verify",
                    word(&state)
                )));
            }
        }
    }
    let text = describe(suite, &entry, &state);
    results.write(&listed(suite, entry))?;
    results.print(|| text)
}

fn describe(suite: &Suite, entry: &Entry, state: &State) -> String {
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
    rows.push(("state", word(state).to_owned()));
    if let State::Recorded(manifest) = state {
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
    format!("{}: {}\n\n{}", entry.name, entry.summary, output::two_columns(rows))
}

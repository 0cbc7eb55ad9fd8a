//! `terrace sweep`: designs with many values of their parameters on many inputs.

use crate::error::{Blame, CommandResult, Failure};
use crate::output::{self, OutputFolder};
use crate::progress::{self, Terminal};
use clap::Args;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use terrace_model::text;
use terrace_report::write_atomically;
use terrace_study::sweep::{Store, Sweep, table};
use terrace_study::{Error, Progress};

const EXAMPLES: &str = "\
Examples:
  terrace sweep sweep.toml -o results
  terrace sweep sweep.toml -o results --print-commands | parallel
  terrace sweep sweep.toml -o /shared/results --print-commands > list
  sbatch --array=1-$(wc -l < list) --wrap \\
      'sh -c \"$(sed -n \"$SLURM_ARRAY_TASK_ID\"p list)\"'

A file of a sweep. Every value of a list is tried with every value of the
others:
  designs = [\"native-4k\", \"ambix\"]
  machines = [\"zen4-cxl\"]              # default: the designs' own
  traces = [\"app.trace\"]
  workloads = [\"kv,requests=1e5\"]
  mixes = [\"mcf,gups,bytes=1GiB\"]        # side by side, as --mix

  [set]                                # parameters of designs
  \"translation.l2.latency\" = [\"9 cycles\", \"18 cycles\"]
  \"ambix:os.policy.period\" = \"1 s\"     # of one design alone

  [[workload]]                         # parameters of a workload
  name = \"gups\"
  set = { bytes = [\"64 MiB\", \"1 GiB\"], seed = [1, 2, 3] }

  fidelity, scale, time_scale, whole and fast_forward are as on the command
  line of `terrace sim`.";

/// Run designs with many values of their parameters on many inputs
///
/// Runs on all cores, and decodes each input once for as many runs as there are
/// cores. Every finished run is kept in DIRECTORY/runs: the same command goes on
/// where it was stopped, and runs only what is new of a file that was extended.
/// At the end all runs are in results.csv and results.parquet, a row each.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The file of the sweep
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Directory of the runs and the results
    #[arg(short, long, value_name = "DIRECTORY", default_value = "terrace-sweep", help_heading = "Output")]
    output: OutputFolder,

    /// Print a command for each group of runs that is missing, a line each, in
    /// place of running them: for Slurm, parallel or a shell. All may run at the
    /// same time, on all machines that see the directory. The sweep without this
    /// option then collects the results
    #[arg(long, conflicts_with = "only")]
    print_commands: bool,

    /// Runs in a group: they share one decoding of their input. Default: as many
    /// as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    group: Option<u32>,

    /// Run these alone, as --print-commands names them, and write no results
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    only: Vec<String>,
}

/// Carries out the sweep.
pub fn run(arguments: Arguments) -> CommandResult {
    let Arguments { file, output, print_commands, group, only } = arguments;
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let sweep = Sweep::parse(&text, &shown)?;
    let store = Store::open(&output)?;
    let missing = match only.is_empty() {
        true => sweep.missing(&store)?,
        false => sweep.named(&only)?,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let groups = sweep.groups(&missing, group.map_or(cores, |group| group as usize));
    if print_commands {
        let commands = sweep.commands(&groups, &shown, &output.display().to_string());
        return commands.iter().try_for_each(|command| output::print_line(command));
    }

    let terminal = Terminal::install();
    let asked = if only.is_empty() { sweep.points().len() } else { only.len() };
    let before = asked - missing.len();
    if before > 0 {
        progress::note(&format!("{before} of {asked} runs are there already"));
    }
    let failures: Mutex<Vec<String>> = Mutex::default();
    let unwritten: Mutex<Option<Error>> = Mutex::default();
    sweep.run(&groups, &terminal, &|point, outcome| match outcome {
        Ok(record) => {
            if let Err(error) = store.put(point, &record) {
                terminal.stop().request();
                unwritten.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
        Err(failure) => failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure),
    });
    if let Some(error) = unwritten.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    for failure in &failures {
        progress::note(failure);
    }
    let left = match only.is_empty() {
        true => sweep.missing(&store)?.len(),
        false => failures.len(),
    };
    if only.is_empty() {
        let done = sweep.done(&store)?;
        let columns = done.columns();
        write_atomically(&output.join("results.csv"), columns.to_csv().as_bytes()).or_run()?;
        write_atomically(&output.join("results.parquet"), &columns.to_parquet()).or_run()?;
        output::print(&machines(&sweep.machines()?))?;
        output::print(&table(&columns))?;
        output::print(&done.caveats())?;
        output::print_line(&format!("\nResults: {}", output.join("results.csv").display()))?;
    }
    match left {
        0 => Ok(()),
        _ if terminal.stop().requested() => {
            Err(Failure::run(format!("stopped; {} of {asked} runs are complete", asked - left)))
        }
        _ => Err(Failure::run(format!("{} of {asked} runs succeeded", asked - left))),
    }
}

/// Machines that are shown; a sweep over a capacity has one for each.
const SHOWN: usize = 4;

fn machines(all: &[String]) -> String {
    let shown = all.iter().take(SHOWN);
    let mut text: String = shown.map(|machine| text::hanging("", machine, 78)).collect();
    if all.len() > SHOWN {
        text += &format!("and {} more machines, as the table's parameters make them\n", all.len() - SHOWN);
    }
    text + "\n"
}

//! `terrace calibrate`: this machine, measured.

use crate::error::{Blame, CommandResult, Failure};
use crate::output::{self, OutputFile};
use clap::Args;
use std::path::Path;
use terrace_calibrate::preset::{self, Base};
use terrace_calibrate::{Budget, Processor, measure, today};
use terrace_sim::design::Library;
use terrace_sim::memory::Device;

const EXAMPLES: &str = "\
Examples:
  terrace calibrate
  terrace compare native-4k native-thp --machine here -- ./app
  terrace calibrate --output - | less";

/// Measure this machine, and write it as a machine preset
///
/// Measures page faults by page size, zeroing, the latency of each cache and of
/// memory, the misses that a core keeps in flight, and TLB shootdowns. What
/// cannot be measured is that of the nearest preset. Each value states its
/// median, its quartiles and the number of repetitions.
///
/// Takes about a minute and 1 GiB of memory, changes no setting of the system,
/// and needs no privileges. Other programs that run meanwhile disturb the
/// values. The other commands take the result as --machine here.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Where to write the preset; - is standard output [default:
    /// $XDG_DATA_HOME/terrace/machines/here.toml]
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,

    /// Preset to take what is not measured from [default: by the processor]
    #[arg(long, value_name = "NAME")]
    extends: Option<String>,

    /// Measure with the least work: quickly, and without meaning
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Measures, and writes the preset.
pub fn run(arguments: Arguments) -> CommandResult {
    let to = match (arguments.output, preset::here()) {
        (Some(to), _) => to,
        (None, Some(own)) => {
            let folder = own.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(folder)
                .map_err(|error| Failure::run(format!("cannot make {}: {error}", folder.display())))?;
            terrace_report::try_to_write(&own).or_run()?;
            own.into()
        }
        (None, None) => {
            return Err(Failure::usage("no place for the preset: set HOME, or name a file with --output"));
        }
    };
    let name = arguments.extends.unwrap_or_else(|| Processor::here().nearest_preset().to_owned());
    let base = base(&name)?;
    let budget = if arguments.tiny { Budget::TINY } else { Budget::FULL };
    let measured = measure(budget, &mut |what| eprintln!("measuring {what}")).or_run()?;
    let text = preset::write(&measured, &base, &today());
    output::write_text(&to, &text)?;
    if to.is_stdout() {
        return Ok(());
    }
    if measured.is_disturbed() {
        eprintln!(
            "Note: other programs ran meanwhile, which bends the values; measure again on an idle machine"
        );
    }
    eprintln!("Wrote {}. Use it with: terrace compare --machine here", to.display());
    Ok(())
}

/// What the preset that the machine extends says of its first tier and its last level.
fn base(name: &str) -> Result<Base, Failure> {
    let design = Library::embedded().design("native-4k", Some(name), &[]).or_usage()?.design;
    let tier = &design.tiers[0];
    let device = Device::new(&design.devices[&tier.device]).map_err(Failure::usage)?;
    Ok(Base {
        name: name.to_owned(),
        tier: tier.name.clone(),
        device_ns: device.idle_read_latency().as_secs() * 1e9,
        llc_cycles: design.cache.llc.latency.0,
        frequency: design.core.frequency.0,
    })
}

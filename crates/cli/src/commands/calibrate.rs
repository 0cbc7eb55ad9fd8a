//! `terrace calibrate`: this machine, measured.

use crate::error::{Blame, CommandResult, Failure};
use crate::output::{self, OutputFile};
use crate::progress;
use clap::Args;
use std::path::Path;
use std::time::Instant;
use terrace_calibrate::preset::{self, Array, Base, BaseTier};
use terrace_calibrate::{Budget, Processor, measure, today};
use terrace_model::{PageSize, Time};
use terrace_sim::design::{Associativity, Library};
use terrace_sim::memory::Device;

const EXAMPLES: &str = "\
Examples:
  terrace calibrate
  terrace compare native-4k native-thp --machine here -- ./app
  terrace calibrate --output - | less";

/// Measure this machine, and write it as a machine preset
///
/// Measures page faults by page size, zeroing, latency and bandwidth of each
/// cache and of the memory of each node, copies by threads, TLBs and page
/// walks, the misses that a core keeps in flight, prefetching, TLB shootdowns,
/// moves between nodes and compression. Each value states its median, its
/// quartiles and the number of repetitions. What cannot be measured is that of
/// the nearest preset, and the file says of each such key why.
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

    /// Measure less often and in a quarter of the memory: in seconds, and less
    /// exactly
    #[arg(long)]
    quick: bool,

    /// Measure with the least work: quickly, and without meaning
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Measures, and writes the preset.
pub fn run(arguments: Arguments) -> CommandResult {
    let is_own = arguments.output.is_none();
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
    let budget = match (arguments.tiny, arguments.quick) {
        (true, _) => Budget::TINY,
        (false, true) => Budget::QUICK,
        (false, false) => Budget::FULL,
    };
    let mut part = (String::new(), Instant::now());
    let mut next = |what: &str| {
        let (before, begin) = std::mem::replace(&mut part, (what.to_owned(), Instant::now()));
        if !before.is_empty() {
            tracing::info!("{before} took {:.1} s", begin.elapsed().as_secs_f64());
        }
    };
    let measured = measure(budget, &mut |what| {
        next(what);
        progress::row(&format!("measuring {what}"));
    })
    .or_run()?;
    next("");
    let text = preset::write(&measured, &base, &today());
    output::write_text(&to, &text)?;
    if to.is_stdout() {
        return Ok(());
    }
    if measured.is_disturbed() {
        progress::row(
            "Note: other programs ran meanwhile, which bends the values; measure again on an idle machine",
        );
    }
    let machine = if is_own { "here".to_owned() } else { to.display().to_string() };
    progress::row(&format!("Wrote {}. Use it with: terrace compare --machine {machine}", to.display()));
    Ok(())
}

/// What the preset that the machine extends says.
fn base(name: &str) -> Result<Base, Failure> {
    // A device for nodes that it has no tier for.
    let spare = [("device.spare.preset", "ddr5-4800"), ("device.spare.channels", "4")];
    let spare = spare.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let design = Library::embedded().design("native-4k", Some(name), &spare).or_usage()?.design;
    let tier = |name: &str, device: &str, path: Time| {
        let device = Device::new(&design.devices[device]).map_err(Failure::usage)?;
        Ok::<BaseTier, Failure>(BaseTier {
            name: name.to_owned(),
            path_ns: path.as_secs() * 1e9,
            device_ns: device.idle_read_latency().as_secs() * 1e9,
            peak_read: device.peak_read_bandwidth().0,
        })
    };
    let array = |sizes: &[PageSize], entries, ways| Array {
        sizes: sizes.iter().map(|size| size.name().to_owned()).collect(),
        entries,
        ways: match ways {
            Associativity::Ways(ways) => Some(ways),
            Associativity::Full(_) => None,
        },
    };
    let tlbs = &design.translation;
    Ok(Base {
        name: name.to_owned(),
        tiers: design
            .tiers
            .iter()
            .map(|one| tier(&one.name, &one.device, one.path_latency))
            .collect::<Result<_, _>>()?,
        spare: tier("spare", "spare", Time::ZERO)?,
        reserved: design.os.reserved.0,
        cache_cycles: [&design.cache.l1, &design.cache.l2, &design.cache.llc].map(|level| level.latency.0),
        frequency: design.core.frequency.0,
        threads: design.core.threads,
        has_groups: !design.core.groups.is_empty(),
        first_tlbs: tlbs.l1d.iter().map(|(size, tlb)| array(&[*size], tlb.entries, tlb.ways)).collect(),
        second_tlbs: tlbs.l2.array.iter().map(|one| array(&one.sizes, one.entries, one.ways)).collect(),
        walkers: tlbs.walkers,
        has_streams: design.cache.prefetcher.streams > 0 && design.cache.prefetcher.degree > 0,
    })
}

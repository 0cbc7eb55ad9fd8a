//! `terrace memory`: memories that have aged, in files.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::{DesignOptions, ResultOptions};
use crate::output;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use terrace_report::MemoryPicture;
use terrace_sim::design::Aging;
use terrace_sim::{MemoryFigures, RegionFigures, Snapshot};
use terrace_study::memory_picture::{bytes, panel};

const EXAMPLES: &str = "\
Examples:
  terrace memory age -o aged.mem --machine skylake-6140 \\
      --set tier.dram.capacity=\"16 GiB\" --set os.memory.max_order=10 \\
      --set os.memory.free_lists=last-freed-first \\
      --set os.memory.grouping=true \\
      --set os.memory.aging.kind=page-cache --set os.memory.aging.fmfi=0.95
  terrace memory show aged.mem --svg aged.svg
  terrace sim --design trident --workload gups \\
      --machine skylake-6140 \\
      --set tier.dram.capacity=\"16 GiB\" --set os.memory.max_order=10 \\
      --set os.memory.free_lists=last-freed-first \\
      --set os.memory.grouping=true \\
      --set os.memory.aging.kind=snapshot \\
      --set os.memory.aging.file=aged.mem

A run that begins with a saved memory needs the capacity and the os.memory keys
that it was saved with.";

/// Age a memory once and keep it in a file, or look at one
///
/// Large pages and contiguity are worth what free memory is like. A memory that
/// has served other programs is fragmented; os.memory.aging says how it came to
/// that. Aging takes longer than many runs: saved, it is done once.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Age the first tier's memory as os.memory.aging says, and save it
    Age(AgeArguments),
    /// Show how a saved memory is fragmented
    Show(ShowArguments),
}

#[derive(Debug, Args)]
struct AgeArguments {
    /// The file to write; what stands there is replaced when all is done
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,

    /// The design whose memory ages: a name of `terrace design list` or
    /// `terrace policy list`, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "native-4k", help_heading = "Design")]
    design: String,

    #[command(flatten)]
    designs: DesignOptions,

    /// Divide the tier's capacity by N, for runs with the same --scale
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Design",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(terrace_sim::design::LARGEST_SCALE)))]
    scale: u32,

    #[command(flatten)]
    results: ResultOptions,
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// A file that `terrace memory age` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Draw what lies where
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::Age(arguments) => age(&arguments),
        Action::Show(arguments) => show(&arguments),
    }
}

fn age(arguments: &AgeArguments) -> CommandResult {
    let changes = arguments.designs.changes();
    changes.check_names([arguments.design.as_str()])?;
    let job = changes.resolve(&arguments.design, None)?;
    let design = job.design.design.scaled(arguments.scale).map_err(Failure::usage)?;
    if design.os.memory.aging == Aging::None {
        return Err(Failure::usage(
            "os.memory.aging: nothing ages this memory; add --set os.memory.aging.kind=page-cache or =builds",
        ));
    }
    let snapshot = Snapshot::aged(&design).map_err(Failure::usage)?;
    let mut content = Vec::new();
    snapshot.write(&mut content)?;
    terrace_report::write_atomically(&arguments.output, &content).or_run()?;
    let figures = snapshot.figures().map_err(Failure::run)?;
    tell(&arguments.output, &figures, &arguments.results)
}

fn show(arguments: &ShowArguments) -> CommandResult {
    let name = arguments.file.display();
    let snapshot = Snapshot::read(&arguments.file).map_err(Failure::usage)?;
    let fault = |problem: String| Failure::usage(format!("{name}: {problem}"));
    let figures = snapshot.figures().map_err(fault)?;
    if let Some(path) = &arguments.svg {
        let runs = snapshot.runs().map_err(fault)?;
        let picture = MemoryPicture {
            title: format!("{name}: a memory of {}", bytes(figures.frames)),
            rows: vec![vec![panel("as it was saved", &figures, &runs)]],
            ..MemoryPicture::default()
        };
        output::write_file(path, &picture.to_svg())?;
    }
    tell(&arguments.file, &figures, &arguments.results)
}

fn tell(path: &Path, figures: &MemoryFigures, results: &ResultOptions) -> CommandResult {
    results.write(&Document::of(path, figures))?;
    results.print(|| text(path, figures))
}

#[derive(Serialize)]
struct Document {
    file: String,
    frames: u64,
    free: u64,
    kernel: u64,
    cached: u64,
    orders: Vec<Order>,
    regions: Vec<Region>,
}

#[derive(Serialize)]
struct Order {
    order: u32,
    free_blocks: u64,
    fragmentation_index: f64,
}

#[derive(Serialize)]
struct Region {
    size: &'static str,
    total: u64,
    without_unmovable: u64,
    free: u64,
}

impl Document {
    fn of(path: &Path, figures: &MemoryFigures) -> Document {
        let orders = figures.orders.iter().map(|order| Order {
            order: order.order,
            free_blocks: order.blocks,
            fragmentation_index: order.fragmentation,
        });
        let regions = regions(figures).map(|(size, region)| Region {
            size,
            total: region.total,
            without_unmovable: region.movable,
            free: region.free,
        });
        Document {
            file: path.display().to_string(),
            frames: figures.frames,
            free: figures.free,
            kernel: figures.kernel,
            cached: figures.cached,
            orders: orders.collect(),
            regions: regions.into(),
        }
    }
}

fn regions(figures: &MemoryFigures) -> [(&'static str, RegionFigures); 2] {
    [("1 GiB", figures.giant), ("2 MiB", figures.huge)]
}

fn text(path: &Path, figures: &MemoryFigures) -> String {
    let share = |frames: u64| format!("{:.1}%", frames as f64 / figures.frames.max(1) as f64 * 100.0);
    let mut out =
        output::hanging("", &format!("{}: {} of memory", path.display(), bytes(figures.frames)), 78);
    out.push('\n');
    for (name, frames) in [("free", figures.free), ("kernel", figures.kernel), ("page cache", figures.cached)]
    {
        let _ = writeln!(out, "{name:<12}{:>12}{:>8}", bytes(frames), share(frames));
    }
    out.push_str("\norder       block  free blocks    free memory     FMFI\n");
    for order in &figures.orders {
        let _ = writeln!(
            out,
            "{:>5}{:>12}{:>13}{:>15}{:>9.3}",
            order.order,
            bytes(1 << order.order),
            order.blocks,
            bytes(order.blocks << order.order),
            order.fragmentation,
        );
    }
    out.push_str("\nregions       all   without unmovable    free\n");
    for (size, region) in regions(figures) {
        let _ = writeln!(out, "{size:<8}{:>9}{:>20}{:>8}", region.total, region.movable, region.free);
    }
    out + "\nFMFI: the share of free memory in blocks too small for a request of that order.\n\
           Without unmovable: compaction could empty them.\n"
}

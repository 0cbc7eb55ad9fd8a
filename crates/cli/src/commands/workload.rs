//! `terrace workload`: the built-in workloads.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use crate::progress::Busy;
use crate::{output, progress};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use terrace_study::catalog::{self, WorkloadPage};
use terrace_study::figures::readable;
use terrace_workload::{
    DeviceChoice, GpuOutcome, GpuRun, LaneTraffic, NativePages, NativeRun, WorkloadError,
};

const EXAMPLES: &str = "\
Examples:
  terrace workload list
  terrace workload show kv
  terrace workload run gups,bytes=1GiB,updates=1e7
  terrace workload run gups,bytes=1GiB,updates=1e7 --pages 2m
  terrace workload run gpu-stream --gpu
  terrace sim --design native-2m --workload gups,bytes=1GiB,updates=1e7

The last two make the same accesses: one on this machine's memory, one in the
simulated machine, so that a prediction can be checked against a clock.";

/// List, show and run the built-in workloads
///
/// Each stands for a published benchmark, is deterministic by its seed, emits
/// its events to the simulator and runs natively with the same accesses.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the workloads
    List(ResultOptions),
    /// Show what a workload does, what it stands for, and its parameters
    Show {
        /// Name, with parameters or without: gups or gups,bytes=1GiB
        #[arg(value_name = "NAME[,KEY=VALUE…]")]
        spec: String,
        #[command(flatten)]
        results: ResultOptions,
    },
    /// Run a workload natively on this machine's memory and time it
    Run {
        /// Name with parameters, such as gups,bytes=1GiB,updates=1e7
        #[arg(value_name = "NAME[,KEY=VALUE…]")]
        spec: String,
        /// Pages that back the workload's memory
        #[arg(long, value_name = "SIZE", default_value = "system", conflicts_with = "gpu")]
        pages: PagesOption,
        /// Run a workload's kernels on a GPU, and check their result. Without a
        /// GPU it fails, and says what is missing
        #[arg(long)]
        gpu: bool,
        /// The device of OpenCL that runs them: the first GPU, "any" for the
        /// first of any kind, or part of a name
        #[arg(long, value_name = "DEVICE", default_value = "gpu", requires = "gpu")]
        device: DeviceChoice,
        #[command(flatten)]
        results: ResultOptions,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PagesOption {
    /// What the system gives a program that asks for nothing
    System,
    /// 4 KiB only
    #[value(name = "4k")]
    Base,
    /// 2 MiB where the system can, transparently
    #[value(name = "2m")]
    TransparentHuge,
    /// 2 MiB from the kernel's pool (hugetlb)
    #[value(name = "2m-pool")]
    PooledHuge,
    /// 1 GiB from the kernel's pool (hugetlb)
    #[value(name = "1g")]
    PooledGiant,
}

impl From<PagesOption> for NativePages {
    fn from(option: PagesOption) -> NativePages {
        match option {
            PagesOption::System => NativePages::System,
            PagesOption::Base => NativePages::Base,
            PagesOption::TransparentHuge => NativePages::TransparentHuge,
            PagesOption::PooledHuge => NativePages::PooledHuge,
            PagesOption::PooledGiant => NativePages::PooledGiant,
        }
    }
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::List(results) => results.list("workloads", catalog::workloads()),
        Action::Show { spec, results } => {
            let page = WorkloadPage::of(&spec)?;
            results.write(&page)?;
            results.print(|| page.to_text())
        }
        Action::Run { spec, gpu: true, device, results, .. } => run_on_gpu(&spec, &device, &results),
        Action::Run { spec, pages, results, .. } => run_natively(&spec, pages.into(), &results),
    }
}

#[derive(Serialize)]
struct RunDocument {
    workload: String,
    seconds: f64,
    setup_seconds: f64,
    accesses: u64,
    init_accesses: u64,
    accesses_per_second: f64,
    bytes_touched: u64,
    /// These bytes by the size of the pages that they lie in.
    bytes_by_page_size: BytesByPageSize,
    /// As text: JSON numbers lose precision beyond 2^53.
    checksum: String,
}

#[derive(Serialize)]
struct BytesByPageSize {
    #[serde(rename = "4k")]
    base: u64,
    #[serde(rename = "2m")]
    huge: u64,
    #[serde(rename = "1g")]
    giant: u64,
}

fn run_natively(spec: &str, pages: NativePages, results: &ResultOptions) -> CommandResult {
    let workload = terrace_workload::open(spec).or_usage()?;
    tracing::info!(spec, footprint = workload.footprint(), "native run begins");
    let busy = Busy::new(spec.split(',').next().unwrap_or_default());
    let run = workload.run_native(pages);
    drop(busy);
    let run: NativeRun = run.map_err(|error| Failure::Run(error.into()))?;
    let rate = if run.seconds > 0.0 { run.accesses as f64 / run.seconds } else { 0.0 };
    if results.is_wanted() {
        let document = RunDocument {
            workload: spec.to_owned(),
            seconds: run.seconds,
            setup_seconds: run.setup_seconds,
            accesses: run.accesses,
            init_accesses: run.init_accesses,
            accesses_per_second: rate,
            bytes_touched: run.bytes_touched,
            bytes_by_page_size: BytesByPageSize {
                base: run.pages.base,
                huge: run.pages.huge,
                giant: run.pages.giant,
            },
            checksum: format!("{:016x}", run.checksum),
        };
        results.write(&document)?;
    }
    if results.owns_stdout() {
        return Ok(());
    }
    let text = format!(
        "{spec} on this machine\n\
         run        {:.3} s, {} accesses, {} accesses/s\n\
         set-up     {:.3} s, {} accesses\n\
         resident   {}\n\
         pages      {}\n\
         checksum   {:016x}\n",
        run.seconds,
        progress::short(run.accesses as f64),
        progress::short(rate),
        run.setup_seconds,
        progress::short(run.init_accesses as f64),
        readable(run.bytes_touched),
        run.pages.shares(),
        run.checksum,
    );
    output::print(&text)
}

#[derive(Serialize)]
struct GpuDocument {
    workload: String,
    /// None where there is no such device; `next` then says what to do.
    device: Option<String>,
    next: Option<String>,
    seconds: f64,
    kernels: Vec<KernelDocument>,
    /// Loads of single lanes, as the stream for the simulator has them.
    loads: u64,
    stores: u64,
    bytes: u64,
    /// Lines of 128 bytes, for each instruction of a warp.
    lines: u64,
    /// As text: JSON numbers lose precision beyond 2^53.
    checksum: String,
    /// Data structures that differ from what the host computed.
    different: Vec<String>,
}

#[derive(Serialize)]
struct KernelDocument {
    name: &'static str,
    launches: u64,
    seconds: f64,
}

fn run_on_gpu(spec: &str, device: &DeviceChoice, results: &ResultOptions) -> CommandResult {
    let workload = terrace_workload::open(spec).or_usage()?;
    let busy = Busy::new(spec.split(',').next().unwrap_or_default());
    let outcome = workload.run_on_gpu(device);
    let outcome = outcome.map_err(|error| match error {
        WorkloadError::NoKernels { .. } => Failure::Usage(error.into()),
        _ => Failure::Run(error.into()),
    })?;
    let traffic = LaneTraffic::of(&mut *workload.source()).or_run()?;
    drop(busy);
    let (run, next) = match outcome {
        GpuOutcome::Ran(run) => (Some(run), None),
        GpuOutcome::NoDevice(reason) => (None, Some(reason)),
    };
    if results.is_wanted() {
        results.write(&gpu_document(spec, run.as_ref(), next.as_deref(), &traffic))?;
    }
    if !results.owns_stdout() {
        run.iter().try_for_each(|run| output::print(&gpu_text(spec, run, &traffic)))?;
    }
    if let Some(next) = next {
        return Err(Failure::run(format_args!("{spec} did not run on a GPU: {next}")));
    }
    match run.filter(|run| !run.different.is_empty()) {
        Some(run) => Err(Failure::run(format_args!(
            "{spec}: {} on {} differ from what the host computed",
            run.different.join(", "),
            run.device
        ))),
        None => Ok(()),
    }
}

fn gpu_document(spec: &str, run: Option<&GpuRun>, next: Option<&str>, traffic: &LaneTraffic) -> GpuDocument {
    let kernels = run.iter().flat_map(|run| &run.kernels).map(|kernel| KernelDocument {
        name: kernel.name,
        launches: kernel.launches,
        seconds: kernel.seconds,
    });
    GpuDocument {
        workload: spec.to_owned(),
        device: run.map(|run| run.device.clone()),
        next: next.map(str::to_owned),
        seconds: run.map_or(0.0, GpuRun::seconds),
        kernels: kernels.collect(),
        loads: traffic.loads,
        stores: traffic.stores,
        bytes: traffic.bytes,
        lines: traffic.lines,
        checksum: run.map_or(String::new(), |run| format!("{:016x}", run.checksum)),
        different: run.map_or(Vec::new(), |run| run.different.clone()),
    }
}

fn gpu_text(spec: &str, run: &GpuRun, traffic: &LaneTraffic) -> String {
    let seconds = run.seconds();
    let rate = |bytes: u64| match seconds > 0.0 {
        true => format!("{:.1} GB/s", bytes as f64 / seconds * 1e-9),
        false => "too short to measure".to_owned(),
    };
    let mut text = format!("{spec} on {} ({})\n", run.device, run.platform);
    for kernel in &run.kernels {
        let launches = if kernel.launches == 1 { "launch" } else { "launches" };
        let (name, times, ms) = (kernel.name, kernel.launches, kernel.seconds * 1e3);
        text += &format!("kernel     {name}: {times} {launches}, {ms:.3} ms\n");
    }
    let is_equal =
        if run.different.is_empty() { "as the host computes it" } else { "not as the host computes it" };
    text += &format!(
        "accesses   {} loads and {} stores of single lanes, as in the simulator\n\
         bytes      {} of lanes, {}\n\
         lines      {} in lines of 128 bytes, {}\n\
         result     {is_equal}, checksum {:016x}\n",
        progress::short(traffic.loads as f64),
        progress::short(traffic.stores as f64),
        readable(traffic.bytes),
        rate(traffic.bytes),
        readable(traffic.line_bytes()),
        rate(traffic.line_bytes()),
        run.checksum,
    );
    text
}

//! Options that several commands share, with the help they show.

use crate::error::{Blame, CommandResult, Failure};
use crate::output::{self, OutputFile};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_model::text::two_columns;
use terrace_recorder::{Every, RecordOptions};
use terrace_report::Columns;
use terrace_sim::Fidelity;
use terrace_study::catalog::Listed;
use terrace_study::designs::LARGEST_TIME_SCALE;
use terrace_study::shares::parse_price;
use terrace_study::{Changes, Setting, Simulation, Trained};

pub use terrace_study::designs::parse_set;

/// Where a simulation's events come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub struct InputOptions {
    /// A trace: Terrace's own, or of another tool (see `terrace trace
    /// --help`); the content decides. Repeatable where a command takes
    /// several inputs
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,

    /// A built-in workload with its parameters, such as
    /// gups,bytes=1GiB,seed=7 (see `terrace workload list`)
    #[arg(long, value_name = "NAME[,KEY=VALUE…]")]
    pub workload: Vec<String>,

    /// A recorded program of the suite (see `terrace suite list`). Repeatable
    /// where a command takes several inputs
    #[arg(long, value_name = "NAME")]
    pub suite: Vec<String>,

    /// Read every whole chunk before the damage of a truncated or corrupt
    /// trace, instead of refusing it
    #[arg(long)]
    pub salvage: bool,

    /// A command to record while it runs: everything after `--`
    #[arg(last = true, value_name = "COMMAND", help_heading = "Input")]
    pub command: Vec<std::ffi::OsString>,
}

/// Programs side by side.
#[derive(Debug, Default, Args)]
pub struct MixOption {
    /// Programs side by side on one machine, separated by commas: programs of
    /// the suite, workloads with their parameters, traces; or a bundle of
    /// `terrace suite list`. Repeatable where a command takes several inputs
    #[arg(long, value_name = "PROGRAMS|BUNDLE", help_heading = "Input")]
    pub mix: Vec<String>,
}

/// What a recording takes from the program.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordingOptions {
    /// Record an OpenCL program without a GPU: its kernels run in software, on
    /// Oclgrind
    #[arg(long)]
    pub gpu: bool,

    /// Leave out the first N accesses (pages they touch count as resident)
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    pub skip: u64,

    /// End the recording after N accesses; the program runs on unobserved
    #[arg(long, value_name = "N", value_parser = parse_some)]
    pub limit: Option<u64>,

    /// Record the first LENGTH accesses of every PERIOD, such as 1e9:1e7
    #[arg(long, value_name = "PERIOD:LENGTH", value_parser = parse_every)]
    pub every: Option<Every>,

    /// End the program at --limit, with all recorded processes that it has started, instead of letting it run on
    #[arg(long, requires = "limit")]
    pub end_at_limit: bool,

    /// Record only between the markers that the program issues (terrace/marker.h)
    #[arg(long)]
    pub region: bool,

    /// Record each access's instruction address
    #[arg(long)]
    pub program_counters: bool,

    /// Record allocations and frees of data structures, by call site
    /// (dynamically linked programs)
    #[arg(long)]
    pub allocations: bool,

    /// Do not derive which load an access's address depends on. Faster, but
    /// pointer chases then look like independent accesses
    #[arg(long)]
    pub no_dependences: bool,

    /// Do not follow programs that the command starts by exec
    #[arg(long)]
    pub no_follow_exec: bool,
}

impl RecordingOptions {
    /// As the recorder takes them.
    pub fn to_record_options(&self) -> RecordOptions {
        RecordOptions {
            gpu: self.gpu,
            skip: self.skip,
            limit: self.limit,
            every: self.every,
            end_at_limit: self.end_at_limit,
            region: self.region,
            dependences: !self.no_dependences,
            program_counters: self.program_counters,
            allocations: self.allocations,
            follow_exec: !self.no_follow_exec,
            ..RecordOptions::default()
        }
    }
}

/// The machine under a design and changes to both.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Design")]
pub struct DesignOptions {
    /// Put the designs on this machine: a name of `terrace machine list`, a
    /// TOML file, or `here`: the machine that `terrace calibrate` measured
    #[arg(long, value_name = "NAME|FILE", value_parser = parse_machine)]
    pub machine: Option<String>,

    /// Change one parameter, such as os.pages=2m or tier.dram.capacity="8 GiB"
    /// (`terrace design show NAME` lists the keys); of one design alone with
    /// its name before the key, as in ambix:os.policy.period=1s. Repeatable
    #[arg(long = "set", value_name = "[DESIGN:]KEY=VALUE", value_parser = Setting::parse)]
    pub sets: Vec<Setting>,

    /// Divide the policies' periods, and the amounts they move per period, by
    /// N: for a run that is shorter than the service it stands for. How often
    /// accesses are sampled stays (--set os.policy.sample_period=…)
    // `hasten` was its name.
    #[arg(long, alias = "hasten", value_name = "N", default_value_t = 1, value_parser = parse_time_scale)]
    pub time_scale: u32,
}

impl DesignOptions {
    /// As studies take them.
    pub fn changes(&self) -> Changes {
        Changes { machine: self.machine.clone(), sets: self.sets.clone(), time_scale: self.time_scale }
    }
}

/// What another run found out about the program's data structures.
#[derive(Debug, Args)]
pub struct HintsOption {
    /// Place data structures by what `terrace profile` counted on another input
    /// of the program, instead of on this one; for designs with the policy
    /// `annotated`
    #[arg(long, value_name = "FILE", help_heading = "Design")]
    pub hints: Option<PathBuf>,
}

impl HintsOption {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// A file that is none of hints.
    pub fn read(&self) -> Result<Option<Trained>, Failure> {
        Ok(self.hints.as_deref().map(Trained::read).transpose()?)
    }
}

/// The machine that a word names: `here` stands for the preset that `terrace calibrate` wrote.
pub fn parse_machine(word: &str) -> Result<String, String> {
    terrace_study::designs::machine_word(word).map_err(|error| error.to_string())
}

/// How closely, and how large a machine, to simulate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Simulation")]
pub struct SimulationOptions {
    /// How much of the machine is simulated
    #[arg(long, value_enum, default_value_t = Level::Full, value_name = "LEVEL")]
    pub fidelity: Level,

    /// Divide tier capacities, TLB reach, last-level cache and periods of
    /// policies by N (1 to 16), for an input whose footprint was divided by N;
    /// every output says so
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(terrace_sim::design::LARGEST_SCALE)))]
    pub scale: u32,

    /// Count the whole input. By default the statistics cover its region of
    /// interest, where it marks one; that of a built-in workload begins when
    /// its data is in place
    #[arg(long)]
    pub whole: bool,

    /// Simulate only the operating system until the region of interest begins,
    /// as --fidelity pages does: many times faster where a program fills much
    /// memory first. TLBs and caches begin the region empty
    #[arg(long, conflicts_with = "whole")]
    pub fast_forward: bool,
}

/// The names of the fidelity levels on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Cores, TLBs, walks, caches, memory devices, operating system
    Full,
    /// TLBs, page-walk cache and walks; no data caches, no timing of memory
    Translation,
    /// Page residency and tier traffic only: for billions of accesses
    Pages,
}

impl Level {
    /// As the simulator takes it.
    pub fn to_fidelity(self) -> Fidelity {
        match self {
            Level::Full => Fidelity::Full,
            Level::Translation => Fidelity::Translation,
            Level::Pages => Fidelity::Pages,
        }
    }
}

/// `--fidelity` of a command that answers with these levels alone.
pub fn only(fidelity: clap::Arg, levels: &str) -> clap::Arg {
    fidelity.hide_possible_values(true).long_help(format!("How much of the machine is simulated: {levels}"))
}

impl SimulationOptions {
    /// As studies take them.
    pub fn to_simulation(&self) -> Simulation {
        Simulation {
            fidelity: self.fidelity.to_fidelity(),
            scale: self.scale,
            whole: self.whole,
            fast_forward: self.fast_forward,
        }
    }
}

/// What the tiers cost.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Design")]
pub struct PriceOption {
    /// Price of a tier's memory, where the fastest tier's is 1; `slow` stands
    /// for every other tier. Repeatable
    #[arg(long, value_name = "TIER=PRICE", value_parser = parse_price)]
    pub price: Vec<(String, f64)>,
}

/// What every command has that simulates one input many times.
#[derive(Debug, Args)]
pub struct StudyOptions {
    #[command(flatten)]
    pub designs: DesignOptions,

    #[command(flatten)]
    pub price: PriceOption,

    #[command(flatten)]
    pub input: InputOptions,

    #[command(flatten)]
    pub simulation: SimulationOptions,

    #[command(flatten)]
    pub recording: RecordingOptions,

    #[command(flatten)]
    pub results: ResultOptions,
}

/// Where the machine-readable result goes.
#[derive(Debug, Args)]
pub struct ResultOptions {
    /// Write the result as JSON to FILE, or to standard output for -
    #[arg(long, value_name = "FILE|-", help_heading = "Output")]
    json: Option<OutputFile>,

    /// Write the result as a table to FILE, which ends in .parquet or .csv
    #[arg(long, value_name = "FILE", value_parser = parse_table, help_heading = "Output")]
    table: Option<OutputFile>,
}

impl ResultOptions {
    /// Whether standard output belongs to JSON, so that nothing else may be printed there.
    pub fn owns_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(OutputFile::is_stdout)
    }

    /// Prints a text for people, unless standard output belongs to JSON.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self, text: impl FnOnce() -> String) -> CommandResult {
        if self.owns_stdout() { Ok(()) } else { output::print(&text()) }
    }

    /// Shows names with their summaries, for `list` of a command; `key` is their name in documents.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn list(&self, key: &str, entries: Vec<Listed>) -> CommandResult {
        self.write_rows(&BTreeMap::from([(key, &entries)]), key)?;
        self.print(|| two_columns(entries.iter().map(|entry| (entry.name.as_str(), entry.summary.as_str()))))
    }

    /// Whether anything is to be written.
    pub fn is_wanted(&self) -> bool {
        self.json.is_some() || self.table.is_some()
    }

    /// Writes `content` where that was asked for; as a table it is one row.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write<T: Serialize>(&self, content: &T) -> CommandResult {
        self.write_document(content, None)
    }

    /// As [`ResultOptions::write`]; the table has a row per object of the list `rows`.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write_rows<T: Serialize>(&self, content: &T, rows: &str) -> CommandResult {
        self.write_document(content, Some(rows))
    }

    fn write_document<T: Serialize>(&self, content: &T, rows: Option<&str>) -> CommandResult {
        let json = || terrace_report::document(content);
        let table = || serde_json::to_value(content).map(|value| Columns::of_document(&value, rows));
        self.write_both(|| json().or_run(), || table().or_run())
    }

    /// Writes the texts of results that have their own document and their own table.
    ///
    /// # Errors
    /// What cannot be written or made.
    pub fn write_both(
        &self,
        json: impl FnOnce() -> Result<String, Failure>,
        table: impl FnOnce() -> Result<Columns, Failure>,
    ) -> CommandResult {
        if let Some(destination) = &self.json {
            output::write_text(destination, &json()?)?;
        }
        if let Some(path) = &self.table {
            let columns = table()?;
            let bytes = if is_parquet(path) { columns.to_parquet() } else { columns.to_csv().into_bytes() };
            terrace_report::write_atomically(path, &bytes).or_run()?;
        }
        Ok(())
    }
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
}

fn parse_table(text: &str) -> Result<OutputFile, String> {
    let path = OutputFile::from(PathBuf::from(text));
    if is_parquet(&path) || path.extension().is_some_and(|extension| extension == "csv") {
        return Ok(path);
    }
    Err("the name says how the table is written; it ends in .parquet or .csv".to_owned())
}

/// As [`parse_count`], of at least one.
pub fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("0 leaves nothing; give at least 1".to_owned()),
        count => Ok(count),
    }
}

fn parse_time_scale(text: &str) -> Result<u32, String> {
    let divisor = parse_count(text).ok().and_then(|count| u32::try_from(count).ok());
    let possible = divisor.filter(|divisor| (1..=LARGEST_TIME_SCALE).contains(divisor));
    possible.ok_or_else(|| format!("\"{text}\" is not in 1..={LARGEST_TIME_SCALE}, such as 1000 or 1e3"))
}

/// Counts of accesses: `250000`, `1e6`, `1_000_000`, `10M`.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let error = || format!("\"{text}\" is not a count, such as 250000, 1e6, 1_000_000 or 10M");
    let plain = text.replace('_', "");
    let (number, factor) = match plain.char_indices().last() {
        Some((at, 'k')) => (&plain[..at], 1e3),
        Some((at, 'M')) => (&plain[..at], 1e6),
        Some((at, 'G')) => (&plain[..at], 1e9),
        _ => (plain.as_str(), 1.0),
    };
    if factor == 1.0
        && let Ok(exact) = number.parse::<u64>()
    {
        return Ok(exact);
    }
    let value = number.parse::<f64>().map_err(|_| error())? * factor;
    if value >= 0.0 && value <= 2f64.powi(63) && value.fract() == 0.0 {
        Ok(value as u64)
    } else {
        Err(error())
    }
}

fn parse_every(text: &str) -> Result<Every, String> {
    let (period, length) =
        text.split_once(':').ok_or_else(|| format!("\"{text}\" is not PERIOD:LENGTH, such as 1e9:1e7"))?;
    let (period, length) = (parse_count(period)?, parse_count(length)?);
    if length == 0 || length > period {
        return Err(format!("LENGTH ({length}) must be between 1 and PERIOD ({period})"));
    }
    Ok(Every { period, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_several_spellings() {
        for text in ["1000000", "1e6", "1_000_000", "1M", "1000k", "0.001G"] {
            assert_eq!(parse_count(text), Ok(1_000_000), "{text}");
        }
        assert_eq!(parse_count("18446744073709551615"), Ok(u64::MAX));
        for text in ["", "-1", "1.5", "ten", "1e30", "nan", "M"] {
            assert!(parse_count(text).unwrap_err().contains("such as"), "{text}");
        }
    }

    #[test]
    fn every_needs_a_length_within_its_period() {
        let every = parse_every("1e6:1e3").unwrap();
        assert_eq!((every.period, every.length), (1_000_000, 1000));
        for text in ["1e6", "10:11", "10:0", "x:1"] {
            assert!(parse_every(text).is_err(), "{text}");
        }
    }
}

//! Options that several commands share, with the help they show.

use crate::error::{Blame, Failure};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use terrace_recorder::{Every, RecordOptions};
use terrace_sim::Fidelity;
use terrace_sim::design::{Library, Resolved};

/// Where a simulation's events come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub struct InputOptions {
    /// A trace: Terrace's own, Valgrind lackey, ChampSim or R|W text; the
    /// content decides. Repeatable where a command takes several inputs
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,

    /// A built-in workload with its parameters, such as
    /// gups,bytes=1GiB,seed=7 (see `terrace workload list`)
    #[arg(long, value_name = "NAME[,KEY=VALUE…]")]
    pub workload: Vec<String>,

    /// Read every whole chunk before the damage of a truncated or corrupt
    /// trace, instead of refusing it
    #[arg(long)]
    pub salvage: bool,

    /// A command to record while it runs: everything after `--`
    #[arg(last = true, value_name = "COMMAND", help_heading = "Input")]
    pub command: Vec<std::ffi::OsString>,
}

/// What a recording takes from the program.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordingOptions {
    /// Leave out the first N accesses (pages they touch count as resident)
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    pub skip: u64,

    /// End the recording after N accesses; the program runs on unobserved
    #[arg(long, value_name = "N", value_parser = parse_some)]
    pub limit: Option<u64>,

    /// Record the first LENGTH accesses of every PERIOD, such as 1e9:1e7
    #[arg(long, value_name = "PERIOD:LENGTH", value_parser = parse_every)]
    pub every: Option<Every>,

    /// End the program at --limit instead of letting it run on
    #[arg(long, requires = "limit")]
    pub end_at_limit: bool,

    /// Record only between the markers that the program issues (terrace.h)
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

    /// The options as words of a command that repeats the recording.
    pub fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.skip > 0 {
            words.extend(["--skip".to_owned(), self.skip.to_string()]);
        }
        if let Some(limit) = self.limit {
            words.extend(["--limit".to_owned(), limit.to_string()]);
        }
        if let Some(every) = self.every {
            words.extend(["--every".to_owned(), format!("{}:{}", every.period, every.length)]);
        }
        let switches = [
            (self.end_at_limit, "--end-at-limit"),
            (self.region, "--region"),
            (self.program_counters, "--program-counters"),
            (self.allocations, "--allocations"),
            (self.no_dependences, "--no-dependences"),
            (self.no_follow_exec, "--no-follow-exec"),
        ];
        words.extend(switches.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
        words
    }
}

/// One `--set`: a parameter, its new value, and the design that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The design as the command line names it; none: all designs.
    pub design: Option<String>,
    /// Dotted key.
    pub key: String,
    /// Value as text.
    pub value: String,
}

impl Setting {
    /// A setting for all designs.
    pub fn of_all(key: impl Into<String>, value: impl Into<String>) -> Setting {
        Setting { design: None, key: key.into(), value: value.into() }
    }

    /// Reads `KEY=VALUE` or `DESIGN:KEY=VALUE`. Errors: no key.
    pub fn parse(text: &str) -> Result<Setting, String> {
        let (key, value) = parse_set(text)?;
        // The last colon, as a file's path may have one too; keys have none.
        match key.rsplit_once(':') {
            None => Ok(Setting { design: None, key, value }),
            Some((design, key)) if !design.is_empty() && !key.is_empty() => {
                Ok(Setting { design: Some(design.to_owned()), key: key.to_owned(), value })
            }
            Some(_) => Err(format!("\"{text}\" is not DESIGN:KEY=VALUE, such as ambix:os.policy.period=1s")),
        }
    }

    /// Whether it is for the design that `word` names: by that word, or for a file by its name without folder and
    /// ending.
    pub fn is_for(&self, word: &str) -> bool {
        let Some(design) = &self.design else { return true };
        let stem = || Path::new(word).file_stem().and_then(|stem| stem.to_str());
        design == word || (word.ends_with(".toml") && stem() == Some(design))
    }

    fn pair(&self) -> (String, String) {
        (self.key.clone(), self.value.clone())
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(design) = &self.design {
            write!(f, "{design}:")?;
        }
        write!(f, "{}={}", self.key, self.value)
    }
}

/// The machine under a design and changes to both.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Design")]
pub struct DesignOptions {
    /// Put the designs on this machine: a name of `terrace machine list`, or a
    /// TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,

    /// Change one parameter, such as os.pages=2m or tier.dram.capacity="8 GiB"
    /// (`terrace design show NAME` lists the keys); of one design alone with
    /// its name before the key, as in ambix:os.policy.period=1s. Repeatable
    #[arg(long = "set", value_name = "[DESIGN:]KEY=VALUE", value_parser = Setting::parse)]
    pub sets: Vec<Setting>,

    /// Divide the policies' periods, and the amounts they move per period, by
    /// N: for a run that is shorter than the service it stands for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hasten: u32,
}

impl DesignOptions {
    /// The options as words of a command that repeats the run.
    pub fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(machine) = &self.machine {
            words.extend(["--machine".to_owned(), machine.clone()]);
        }
        for setting in &self.sets {
            words.extend(["--set".to_owned(), setting.to_string()]);
        }
        if self.hasten != 1 {
            words.extend(["--hasten".to_owned(), self.hasten.to_string()]);
        }
        words
    }

    /// The settings for the design that `word` names, those for all designs included, as if they were for all.
    pub fn sets_of(&self, word: &str) -> Vec<Setting> {
        let here = self.sets.iter().filter(|setting| setting.is_for(word));
        here.map(|setting| Setting::of_all(&setting.key, &setting.value)).collect()
    }

    /// Refuses settings for designs that are not among `words`.
    ///
    /// # Errors
    /// The first of them, with the names that there are.
    pub fn check_names<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
        let words: Vec<&str> = words.into_iter().collect();
        let astray = self.sets.iter().find(|setting| !words.iter().any(|word| setting.is_for(word)));
        match astray {
            None => Ok(()),
            Some(setting) => Err(Failure::usage(format!(
                "--set {setting}: no design of this run is called \"{}\"; there {} {}",
                setting.design.as_deref().unwrap_or_default(),
                if words.len() == 1 { "is" } else { "are" },
                words.join(", ")
            ))),
        }
    }

    /// The design that `word` names, on `machine` where the command line names none.
    ///
    /// # Errors
    /// Unknown names and keys, values that cannot be.
    pub fn resolve(&self, word: &str, machine: Option<&str>) -> Result<Job, Failure> {
        let machine = self.machine.clone().or_else(|| machine.map(str::to_owned));
        let options = DesignOptions { machine, sets: self.sets_of(word), hasten: self.hasten };
        let library = Library::embedded();
        let sets: Vec<_> = options.sets.iter().map(Setting::pair).collect();
        let mut design = library.design(word, options.machine.as_deref(), &sets).or_usage()?;
        if let Some(policy) = design.design.os.policy.as_ref().filter(|_| options.hasten > 1) {
            let hastened = terrace_policy::find(&policy.name)
                .and_then(|entry| entry.scaled(&policy.parameters, options.hasten))
                .or_usage()?;
            let changed = hastened.iter().filter(|(key, value)| policy.parameters.get(*key) != Some(*value));
            let sets = changed.map(|(key, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (format!("os.policy.{key}"), text)
            });
            let sets: Vec<_> = options.sets.iter().map(Setting::pair).chain(sets).collect();
            design = library.design(word, options.machine.as_deref(), &sets).or_usage()?;
        }
        terrace_sim::Snapshot::check(&design.design).map_err(Failure::usage)?;
        Ok(Job { word: word.to_owned(), words: options.to_words(), design })
    }
}

/// A design as a command named it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name or file.
    pub word: String,
    /// The options that went into it, as words of a command that repeats the run.
    pub words: Vec<String>,
    /// What it resolved to.
    pub design: Resolved,
}

/// How closely, and how large a machine, to simulate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Simulation")]
pub struct SimulationOptions {
    /// How much of the machine is simulated
    #[arg(long, value_enum, default_value_t = Level::Full, value_name = "LEVEL")]
    pub fidelity: Level,

    /// Divide tier capacities, TLB reach and last-level cache by N (1 to 16),
    /// for an input whose footprint was divided by N; every output says so
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

    /// As the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Full => "full",
            Level::Translation => "translation",
            Level::Pages => "pages",
        }
    }
}

impl SimulationOptions {
    /// The options as words of a command that repeats the run.
    pub fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.fidelity != Level::Full {
            words.extend(["--fidelity".to_owned(), self.fidelity.name().to_owned()]);
        }
        if self.scale != 1 {
            words.extend(["--scale".to_owned(), self.scale.to_string()]);
        }
        if self.whole {
            words.push("--whole".to_owned());
        }
        if self.fast_forward {
            words.push("--fast-forward".to_owned());
        }
        words
    }
}

/// Where the machine-readable result goes.
#[derive(Debug, Args)]
pub struct JsonOption {
    /// Write the result as JSON to FILE, or to standard output for -
    #[arg(long, value_name = "FILE|-", help_heading = "Output")]
    pub json: Option<String>,
}

impl JsonOption {
    /// Whether standard output belongs to JSON, so that nothing else may be printed there.
    pub fn owns_stdout(&self) -> bool {
        self.json.as_deref() == Some("-")
    }
}

/// As [`parse_count`], of at least one.
fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("0 leaves nothing; give at least 1".to_owned()),
        count => Ok(count),
    }
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

/// `KEY=VALUE` of `--set`.
pub fn parse_set(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("\"{text}\" is not KEY=VALUE, such as os.pages=2m")),
    }
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
    fn a_setting_is_for_all_designs_or_for_one() {
        let one = Setting::parse("ambix:os.policy.period = 1 s").unwrap();
        assert_eq!(one.to_string(), "ambix:os.policy.period=1 s");
        assert!(one.is_for("ambix") && !one.is_for("nimble"));
        let file = Setting::parse("C:/my.toml:os.pages=2m").unwrap();
        assert!(file.is_for("C:/my.toml") && !file.is_for("my"));
        let all = Setting::parse("os.note=a:b=c").unwrap();
        assert_eq!((all.design.as_deref(), all.key.as_str(), all.value.as_str()), (None, "os.note", "a:b=c"));
        assert!(all.is_for("ambix"));
        assert!(Setting::parse("my:os.pages=2m").unwrap().is_for("designs/my.toml"));
        for text in [":os.pages=2m", "ambix:=1", "ambix:os.pages"] {
            assert!(Setting::parse(text).is_err(), "{text}");
        }
        let options = DesignOptions { machine: None, sets: vec![all, one], hasten: 1 };
        assert_eq!(options.sets_of("nimble").len(), 1);
        assert_eq!(options.sets_of("ambix")[1], Setting::of_all("os.policy.period", "1 s"));
        assert!(options.check_names(["nimble", "ambix"]).is_ok());
        assert!(options.check_names(["nimble"]).is_err());
    }

    #[test]
    fn every_needs_a_length_within_its_period() {
        let every = parse_every("1e6:1e3").unwrap();
        assert_eq!((every.period, every.length), (1_000_000, 1000));
        for text in ["1e6", "10:11", "10:0", "x:1"] {
            assert!(parse_every(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_set_may_hold_further_equal_signs() {
        assert_eq!(parse_set("a.b = c=d"), Ok(("a.b".to_owned(), "c=d".to_owned())));
        assert!(parse_set("=x").is_err() && parse_set("x").is_err());
    }
}

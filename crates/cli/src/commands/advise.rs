//! `terrace advise`: how much of a program's memory can be slow, under which policy, and what that saves; or, with
//! `--pages`, whether it should have huge pages.

use crate::error::{CommandResult, Failure};
use crate::input;
use crate::options::{HintsOption, StudyOptions, only};
use crate::progress::Terminal;
use clap::Args;
use terrace_study::advise::{Advise, POLICIES};
use terrace_study::pages::AdvisePages;
use terrace_study::record::check_ending;
use terrace_study::shares::parse_share;

const EXAMPLES: &str = "\
Examples:
  terrace advise --slowdown 3% --price slow=0.33 -- ./app --its-options
  terrace advise --slowdown 5% --price slow=0.4 --trace app.trace
  terrace advise --workload kv,requests=2e6 --time-scale 100
  terrace advise --pages -- ./app --its-options
  terrace advise --pages --tlb spot --tlb zen5-turin --tlb my-tlb.toml \\
      --trace app.trace
  terrace advise --policies ambix,tpp --resolution 1% --seeds 5 \\
      --machine xeon-5218-dcpmm --trace app.trace

A command after -- runs once, under the recorder, into a temporary file.
The periods of most policies are seconds: where the run holds only a few of
them, the answer says so, and which --time-scale makes it long enough.";

/// Say how much memory can be slow, or whether huge pages are right
///
/// Runs the input with everything in the fastest tier; then, for each policy,
/// finds the smallest fastest tier with which the run is no slower than
/// tolerated. The share is searched by halving the interval: more fast memory
/// is taken never to be slower. The answer comes with what is uncertain about
/// it.
///
/// With --pages it answers another question: what 2 MiB and 1 GiB pages would
/// bring this program on one tier, what they would cost in memory, copies and
/// slow faults, and which regions of the program deserve which size.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, mut_arg("fidelity", |arg| only(arg, "full; with --pages also translation")))]
pub struct Arguments {
    /// Ask about huge pages instead: are they right for this program, where, and
    /// of which size
    #[arg(long, help_heading = "Question", conflicts_with_all = ["slowdown", "resolution", "seeds", "price", "hints"])]
    pages: bool,

    /// With --pages: memory that large pages may hold beyond what the program
    /// touches, as a share of that; default: 10%
    #[arg(long, value_name = "SHARE", value_parser = parse_bloat, help_heading = "Question")]
    bloat: Option<f64>,

    /// With --pages: show what the pages would bring with this TLB too, that of
    /// a design (colt, rmm, direct-segment, spot, or a TOML file: all that it has
    /// under [translation]) or of another machine; default: colt and rmm under 4k
    /// and ranger. Repeatable
    #[arg(long, value_name = "DESIGN|MACHINE", help_heading = "Question")]
    tlb: Vec<String>,

    /// Tolerated slowdown against everything in the fastest tier
    #[arg(long, value_name = "SHARE", default_value = "3%", value_parser = parse_share, help_heading = "Question")]
    slowdown: f64,

    /// Policies to choose from, separated by commas (`terrace policy list`);
    /// default: first-touch,ambix,nimble,tpp,hemem,memtis,colloid,thermostat,
    /// with --pages thp,trident,ranger as far as they exist
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Question")]
    policies: Vec<String>,

    /// Step of the search, as a share of what the input has resident
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_resolution, help_heading = "Question")]
    resolution: f64,

    /// Runs of the recommended policy with different seeds, of the policy and
    /// of a built-in workload
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100), help_heading = "Question")]
    seeds: u64,

    /// Leave out how far the answer could be off: with --pages a second run of
    /// each way with assumed constants 25 % away, and a third with another seed
    /// where there is one; else two runs of the recommendation
    #[arg(long, help_heading = "Simulation")]
    no_intervals: bool,

    #[command(flatten)]
    hints: HintsOption,

    #[command(flatten)]
    study: StudyOptions,
}

fn parse_resolution(text: &str) -> Result<f64, String> {
    match parse_share(text)? {
        share if (0.001..=0.5).contains(&share) => Ok(share),
        _ => Err("a step is between 0.1% and 50%".to_owned()),
    }
}

/// A share that may exceed 1, such as `10%`, `0.1`, `2`.
fn parse_bloat(text: &str) -> Result<f64, String> {
    let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |number| (number, 100.0));
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value / unit),
        _ => Err(format!("\"{text}\" is not a share, such as 10% or 0.1")),
    }
}

/// Carries out the search.
pub fn run(arguments: Arguments) -> CommandResult {
    // Clap drops what an option requires where that conflicts with another one that is there.
    for (is_given, option) in [(arguments.bloat.is_some(), "--bloat"), (!arguments.tlb.is_empty(), "--tlb")] {
        if is_given && !arguments.pages {
            let about = format!("{option} is about huge pages: add --pages, or leave {option} out");
            return Err(Failure::usage(about));
        }
    }
    let terminal = Terminal::for_an_answer();
    let (changes, simulation) =
        (arguments.study.designs.changes(), arguments.study.simulation.to_simulation());
    let input = || {
        input::prepare_one(
            &arguments.study.input,
            &arguments.study.recording,
            "advise",
            "compare takes several",
        )
    };
    let (text, trouble) = if arguments.pages {
        let question = AdvisePages {
            changes,
            simulation,
            policies: arguments.policies,
            tlbs: arguments.tlb,
            bloat: arguments.bloat.unwrap_or(0.1),
            intervals: !arguments.no_intervals,
        };
        question.check()?;
        let advice = question.run(input()?, &terminal)?;
        arguments.study.results.write_rows(&advice, "ways")?;
        (advice.to_text(), advice.trouble)
    } else {
        let named = !arguments.policies.is_empty();
        let question = Advise {
            changes,
            simulation,
            policies: if named { arguments.policies } else { POLICIES.map(str::to_owned).into() },
            slowdown: arguments.slowdown,
            resolution: arguments.resolution,
            seeds: arguments.seeds,
            prices: arguments.study.price.price,
            hints: arguments.hints.read()?,
            intervals: !arguments.no_intervals,
        };
        // Everything that can be wrong is found before anything is recorded.
        question.check()?;
        let advice = question.run(input()?, &terminal)?;
        arguments.study.results.write_rows(&advice, "policies")?;
        (advice.to_text(), advice.trouble)
    };
    arguments.study.results.print(|| text)?;
    Ok(check_ending(trouble.as_deref())?)
}

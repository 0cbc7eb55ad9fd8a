//! Native runs and their summary: medians, speed-ups with intervals, and how they agree with what was predicted.

use super::{Agreement, CheckResult, Compared, Interval, Pool, SHORT, SURE, Way};
use std::ffi::OsString;
use std::path::Path;
use terrace_calibrate::native::{self, Program};
use terrace_report::{MachineTier, RunRecord, SMALLEST_DIFFERENCE};

/// Interpreters that hash with another seed in each run: how their names begin, and the variable that sets the seed.
const SEEDED: [(&str, &str); 2] = [("python", "PYTHONHASHSEED"), ("perl", "PERL_HASH_SEED")];

/// What a way was predicted to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Simulated {
    /// Processor time.
    pub seconds: f64,
    /// Page faults.
    pub faults: u64,
}

impl Simulated {
    /// The simulated time of all cores, without the time for which one had nothing to do.
    pub fn of(run: &RunRecord) -> Simulated {
        let busy: f64 = run.cycle_components().iter().map(|part| part.cycles).sum();
        let seconds = run.seconds_simulated * busy / run.cycles.max(1) as f64;
        Simulated { seconds, faults: run.stats.integer("os.faults") }
    }
}

/// What was measured, of each way.
#[derive(Default)]
pub(super) struct Native {
    /// Counted runs.
    pub runs: Vec<Vec<native::Run>>,
    /// Share of the anonymous memory in huge pages.
    pub huge_shares: Vec<f64>,
}

impl Native {
    /// Median number of page faults on base pages.
    pub fn base_faults(&self) -> u64 {
        self.median(0, &|run| run.faults as f64) as u64
    }

    fn median(&self, at: usize, value: &dyn Fn(&native::Run) -> f64) -> f64 {
        median(self.runs[at].iter().map(value).collect())
    }

    fn way(&self, at: usize, simulated: Simulated) -> Way {
        let of = |value| self.median(at, value);
        Way {
            processor_seconds: of(&native::Run::processor),
            elapsed_seconds: of(&|run| run.elapsed),
            faults: of(&|run| run.faults as f64) as u64,
            predicted_seconds: simulated.seconds,
            predicted_faults: simulated.faults,
            huge_share: self.huge_shares[at],
        }
    }

    /// The way against base pages. `simulated` has the ways in their order, as often as constants were changed.
    fn compared(&self, at: usize, simulated: &[Simulated]) -> Compared {
        let ratios = self.runs[0].iter().zip(&self.runs[at]);
        let ratios = ratios.map(|(base, huge)| base.processor() / huge.processor());
        let (measured, confidence) = median_interval(ratios.collect());
        let speedups = simulated.chunks(self.runs.len()).map(|ways| ways[0].seconds / ways[at].seconds);
        let of = |value: f64| Interval { value, low: value, high: value };
        let predicted = speedups.map(of).reduce(|all, one| Interval {
            low: all.low.min(one.low),
            high: all.high.max(one.high),
            ..all
        });
        let predicted = predicted.unwrap_or(of(f64::NAN));
        let sign = agreement(&measured, confidence, predicted.value);
        Compared { measured, confidence, predicted, error: predicted.value / measured.value - 1.0, sign }
    }

    /// The answer, `free` bytes having been free in the pool.
    pub fn into_result(
        self,
        program: String,
        machine: String,
        machine_tiers: Vec<MachineTier>,
        simulated: &[Simulated],
        native: &Program,
        free: u64,
    ) -> CheckResult {
        let (base, huge) = (self.way(0, simulated[0]), self.way(1, simulated[1]));
        let hugetlb = (self.runs.len() > 2)
            .then(|| Pool { way: self.way(2, simulated[2]), compared: self.compared(2, simulated) });
        let mut remarks = Vec::new();
        if base.processor_seconds < SHORT {
            remarks.push(format!(
                "the program takes {:.0} ms of processors, so short that its start weighs; give it more to do",
                base.processor_seconds * 1e3
            ));
        }
        remarks.extend(other_each_time(&native.name(), |variable| std::env::var_os(variable)));
        if huge.huge_share < 0.5 && native.preloads() {
            remarks.push(format!(
                "only {:.0} % of its memory lay in huge pages natively: this system gives them where they are asked for, and \
                 what a program maps without the C library is not reached",
                huge.huge_share * 100.0
            ));
        }
        if let Some(pool) = hugetlb.filter(|pool| pool.way.huge_share < 0.5) {
            remarks.push(format!(
                "only {:.0} % of its memory lay in pages of the pool, which had {} MiB free: the C library's allocator takes \
                 them, from glibc 2.35 on, and nothing else of a program does",
                pool.way.huge_share * 100.0,
                free >> 20
            ));
        }
        let pairs = self.runs[0].len();
        let compared = self.compared(1, simulated);
        CheckResult { program, machine, machine_tiers, pairs, base, huge, compared, hugetlb, remarks }
    }
}

/// What to know of a program whose memory is laid out differently in each run, by a seed. `variable` looks into the
/// environment.
fn other_each_time(program: &str, variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let name = Path::new(program).file_name()?.to_str()?;
    let (_, seed) = SEEDED.iter().find(|(beginning, _)| name.starts_with(beginning))?;
    let is_set = variable(seed).is_some_and(|value| !value.is_empty() && value != "random");
    (!is_set).then(|| {
        format!(
            "{name} hashes with another seed in each run, so its memory is laid out differently in each, and in the recorded \
             one; {seed}=0 in the environment makes them alike"
        )
    })
}

/// Whether the prediction is on the side of 1 on which the measurement is, which holds the truth with such a `confidence`.
fn agreement(measured: &Interval, confidence: f64, predicted: f64) -> Agreement {
    if !measured.is_clear() || confidence < SURE {
        return Agreement::Undecided;
    }
    let is_none = |speedup: f64| (speedup - 1.0).abs() < SMALLEST_DIFFERENCE;
    if is_none(predicted) && !is_none(measured.value) {
        return Agreement::Missed;
    }
    if (measured.value > 1.0) == (predicted > 1.0) { Agreement::Right } else { Agreement::Wrong }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The median of independent values, between two of them that enclose the true median at least 95 % of the time, or as often
/// as so few values can; and how often that is. The number of values below the true median is binomial.
fn median_interval(mut values: Vec<f64>) -> (Interval, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The chance that at most `below` of all values lie below the median.
    let tail = |below: usize| {
        let mut term = 0.5_f64.powi(count as i32);
        let mut sum = term;
        for at in 1..=below {
            term *= (count + 1 - at) as f64 / at as f64;
            sum += term;
        }
        sum
    };
    let mut inside = 0;
    while inside + 1 < count.div_ceil(2) && 1.0 - 2.0 * tail(inside + 1) >= 0.95 {
        inside += 1;
    }
    let confidence = 1.0 - 2.0 * tail(inside).min(0.5);
    let interval =
        Interval { value: median(values.clone()), low: values[inside], high: values[count - 1 - inside] };
    (interval, confidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Unit;

    #[test]
    fn the_interval_of_a_median_by_the_binomial_distribution() {
        let of = |count: u32| median_interval((1..=count).map(f64::from).collect());
        // Five: one half to the fifth, twice, is outside.
        let (five, confidence) = of(5);
        assert_eq!((five.value, five.low, five.high), (3.0, 1.0, 5.0));
        assert!((confidence - 0.9375).abs() < 1e-12, "{confidence}");
        // Nine: (1 + 9) / 512, twice, is less than 5 %, and (1 + 9 + 36) / 512 is not.
        let (nine, confidence) = of(9);
        assert_eq!((nine.value, nine.low, nine.high), (5.0, 2.0, 8.0));
        assert!((confidence - (1.0 - 20.0 / 512.0)).abs() < 1e-12, "{confidence}");
        let (one, confidence) = of(1);
        assert_eq!((one.low, one.high, confidence), (1.0, 1.0, 0.0));
        assert_eq!(of(2).0.value, 1.5);
    }

    /// Runs of so many seconds of processors.
    fn runs(seconds: [f64; 5]) -> Vec<native::Run> {
        seconds.map(|user| native::Run { user, ..native::Run::default() }).into()
    }

    #[test]
    fn a_prediction_agrees_where_a_clear_difference_was_predicted_too() {
        let measured = |low: f64, value: f64, high: f64| Interval { value, low, high };
        let faster = measured(1.09, 1.13, 1.27);
        for (measured, confidence, predicted, expected) in [
            (faster, 0.96, 1.2, Agreement::Right),
            (faster, 0.96, 0.9, Agreement::Wrong),
            (faster, 0.96, 1.004, Agreement::Missed),
            (faster, 0.875, 1.2, Agreement::Undecided),
            (measured(0.8, 0.9, 0.95), 0.96, 0.98, Agreement::Right),
            (measured(0.99, 1.1, 1.2), 0.96, 1.1, Agreement::Undecided),
            (measured(1.001, 1.004, 1.006), 0.96, 1.002, Agreement::Right),
        ] {
            assert_eq!(agreement(&measured, confidence, predicted), expected, "{measured:?} {predicted}");
        }
    }

    #[test]
    fn every_way_is_compared_with_base_pages_and_has_its_own_prediction() {
        let native = Native {
            runs: vec![runs([6.0; 5]), runs([3.0, 2.0, 4.0, 3.0, 3.0]), runs([7.0, 8.0, 12.0, 8.0, 8.0])],
            huge_shares: vec![0.0, 0.9, 0.25],
        };
        // In their order, then again with constants that speak against huge pages, then for them.
        let seconds = [8.0, 4.0, 10.0, 8.0, 5.0, 16.0, 8.0, 2.0, 8.0];
        let simulated = seconds.map(|seconds| Simulated { seconds, faults: seconds as u64 });
        let program = Program::new(&["true".into()]).unwrap();
        let result =
            native.into_result("app".into(), "here".into(), Vec::new(), &simulated, &program, 64 << 20);
        let of = |interval: &Interval| (interval.value, interval.low, interval.high);
        assert_eq!(of(&result.compared.measured), (2.0, 1.5, 3.0));
        assert_eq!(of(&result.compared.predicted), (2.0, 1.6, 4.0));
        assert_eq!((result.compared.sign, result.compared.error), (Agreement::Right, 0.0));
        let pool = result.hugetlb.unwrap();
        assert_eq!(of(&pool.compared.measured), (0.75, 0.5, 6.0 / 7.0));
        assert_eq!(of(&pool.compared.predicted), (0.8, 0.5, 1.0));
        assert_eq!((pool.compared.sign, pool.way.predicted_faults), (Agreement::Right, 10));
        assert!(
            result
                .remarks
                .iter()
                .any(|one| one
                    .starts_with("only 25 % of its memory lay in pages of the pool, which had 64 MiB")),
            "{:?}",
            result.remarks
        );
        let text = result.to_text();
        assert!(text.contains("\nhugetlb pool "), "{text}");
        // Two sentences, each with its subject.
        assert!(text.contains("is on the right side. The predicted speed-up is off by +0.0 %.\n"), "{text}");
        assert!(
            text.contains(
                "\nOn the pool's pages, in which 25.0% of its memory lay:\n\nMeasured:   0.750 times"
            ),
            "{text}"
        );
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["measured"]["value"], 2.0, "as before there was a pool");
        assert_eq!(json["hugetlb"]["measured"]["value"], 0.75);
        assert_eq!(json["hugetlb"]["huge_share"], 0.25);
    }

    #[test]
    fn two_cores_at_work_at_a_time_take_twice_the_processor_time() {
        let mut run = RunRecord { seconds_simulated: 2.0, cycles: 1000, ..RunRecord::default() };
        for (part, cycles) in [("base", 1000), ("os", 300), ("idle", 700)] {
            run.stats.count(format!("core.cycles.{part}"), cycles, Unit::Cycles);
        }
        run.stats.count("os.faults", 7, Unit::Count);
        assert_eq!(Simulated::of(&run), Simulated { seconds: 2.6, faults: 7 });
    }

    #[test]
    fn a_seed_of_each_run_s_own_is_said() {
        let said = |program: &str, value: Option<&str>| {
            let found = other_each_time(program, |_| value.map(OsString::from));
            found.is_some_and(|said| said.starts_with("python3 hashes") && said.contains("PYTHONHASHSEED=0"))
        };
        assert!(
            said("/usr/bin/python3", None) && said("python3", Some("random")) && said("python3", Some(""))
        );
        assert!(!said("python3", Some("0")) && !said("./python3.d/app", None) && !said("sort", None));
    }

    #[test]
    fn remarks_on_few_pairs_of_a_short_program_fit_80_columns() {
        let pairs = || runs([0.01; 5])[..2].to_vec();
        let native = Native { runs: vec![pairs(), pairs()], huge_shares: vec![0.0, 1.0] };
        let simulated = [0.01, 0.0103].map(|seconds| Simulated { seconds, faults: 1 });
        let program = Program::new(&["true".into()]).unwrap();
        let result = native.into_result("app".into(), "here".into(), Vec::new(), &simulated, &program, 0);
        let text = result.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = "So few pairs do not tell faster from slower: take five or more. The predicted speed-up is off by -2.9 %.";
        assert!(plain.contains(said), "{text}");
        assert!(
            plain.contains("the program takes 10 ms of processors, so short that its start weighs"),
            "{text}"
        );
    }

    #[test]
    fn without_a_pool_there_is_one_verdict() {
        let native = Native { runs: vec![runs([1.0; 5]), runs([1.0; 5])], huge_shares: vec![0.0, 1.0] };
        let simulated = [Simulated { seconds: 1.0, faults: 1 }; 2];
        let program = Program::new(&["true".into()]).unwrap();
        let result = native.into_result("app".into(), "here".into(), Vec::new(), &simulated, &program, 0);
        assert!(result.hugetlb.is_none() && !result.to_text().contains("pool"));
        assert_eq!(serde_json::to_value(&result).unwrap()["hugetlb"], serde_json::Value::Null);
    }
}

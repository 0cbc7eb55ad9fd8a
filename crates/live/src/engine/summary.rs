//! What an engine has done, in one line.

use terrace_model::Stats;

/// The shortest run of which a share of processor time is said: what Terrace took before it began to manage is no share of
/// a shorter one.
const SHORTEST: f64 = 0.1;

/// What was moved and what it cost, from an engine's statistics.
pub fn summary(policy: &str, statistics: &Stats) -> String {
    let mib = |name: &str| format!("{:.1} MiB", statistics.number(name) * 4096.0 / f64::from(1 << 20));
    let seconds = |name: &str| statistics.number(name) / 1e9;
    let run_time = seconds("live.run_time");
    let share = match run_time >= SHORTEST {
        true => format!(" ({:.1} %)", 100.0 * seconds("live.cpu_time") / run_time),
        false => String::new(),
    };
    format!(
        "{policy}: {} promoted, {} demoted, {} pieces failed; {:.2} s of processor time in {run_time:.1} s{share}",
        mib("vmstat.pgpromote_success"),
        mib("vmstat.pgdemote_policy"),
        statistics.integer("vmstat.pgmigrate_fail"),
        seconds("live.cpu_time"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Unit;

    #[test]
    fn a_short_run_has_no_share() {
        let said = |run_time: u64| {
            let mut stats = Stats::new();
            stats.count("vmstat.pgpromote_success", 512, Unit::Pages);
            stats.count("live.cpu_time", 30_000_000, Unit::Nanoseconds);
            stats.count("live.run_time", run_time, Unit::Nanoseconds);
            summary("nimble", &stats)
        };
        let moved = "nimble: 2.0 MiB promoted, 0.0 MiB demoted, 0 pieces failed; 0.03 s of processor time in";
        assert_eq!(said(1_000_000_000), format!("{moved} 1.0 s (3.0 %)"));
        assert_eq!(said(20_000_000), format!("{moved} 0.0 s"));
    }
}

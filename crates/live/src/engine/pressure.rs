//! The latency guard: pressure-stall information of the targets' memory, and when to hold back because of it.

use crate::kernel::{Kernel, read_text};
use std::path::PathBuf;
use std::time::Duration;

/// Watches how much time tasks lose waiting for memory (`memory.pressure`, or `/proc/pressure/memory`).
#[derive(Clone, Debug)]
pub struct Guard {
    file: PathBuf,
    /// Share of time that may be lost before moves stop.
    limit: f64,
    last: Option<(Duration, u64)>,
    holding: bool,
}

impl Guard {
    /// Watches `file`; moves stop while more than `limit` of the time is lost, until it is less than half of that.
    pub fn new(file: PathBuf, limit: f64) -> Guard {
        Guard { file, limit, last: None, holding: false }
    }

    /// Whether it held back when it was last asked.
    pub fn is_holding(&self) -> bool {
        self.holding
    }

    /// Whether to hold back, at time `now`. A kernel without this information never holds anything back.
    pub fn holds(&mut self, kernel: &dyn Kernel, now: Duration) -> bool {
        let Some(stalled) = read_text(kernel, &self.file).ok().and_then(|text| stalled_micros(&text)) else {
            return false;
        };
        if let Some((then, before)) = self.last {
            let passed = now.saturating_sub(then).as_secs_f64();
            if passed <= 0.0 {
                return self.holding;
            }
            let share = stalled.saturating_sub(before) as f64 / 1e6 / passed;
            let level = if self.holding { self.limit / 2.0 } else { self.limit };
            if self.holding != (share > level) {
                self.holding = !self.holding;
                tracing::info!(share, limit = self.limit, holding = self.holding, "memory pressure");
            }
        }
        self.last = Some((now, stalled));
        self.holding
    }
}

/// `total` of the line `some`: microseconds in which at least one task waited for memory.
fn stalled_micros(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rooted;

    #[test]
    fn pressure_holds_back_and_lets_go_at_half() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        let kernel = Rooted::new(root.path());
        let mut guard = Guard::new("/proc/pressure/memory".into(), 0.1);
        let mut at = |second: u64, total: u64| {
            let text =
                format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0 total=9\n");
            std::fs::write(root.path().join("proc/pressure/memory"), text).unwrap();
            guard.holds(&kernel, Duration::from_secs(second))
        };
        assert!(!at(0, 5_000_000), "what was lost before does not count");
        assert!(!at(1, 5_090_000));
        assert!(at(2, 5_290_000));
        assert!(at(3, 5_360_000), "7 % is less than the limit, but more than half of it");
        assert!(!at(4, 5_400_000));
    }

    #[test]
    fn without_the_file_nothing_is_held() {
        let mut guard = Guard::new("/proc/pressure/memory".into(), 0.1);
        assert!(!guard.holds(&Rooted::new("/nonexistent"), Duration::ZERO));
        assert_eq!(stalled_micros("some total=x"), None);
    }
}

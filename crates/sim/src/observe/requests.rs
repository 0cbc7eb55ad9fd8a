//! How long requests take, from their begin to their end as the input marks them.

use hdrhistogram::Histogram;
use terrace_model::{Stats, Time, Unit};

/// Latencies are kept to three significant digits.
const DIGITS: u8 = 3;

/// The requests of a run.
#[derive(Debug, Default)]
pub struct Requests {
    /// When each stream's request began.
    begun: Vec<Option<Time>>,
    /// In nanoseconds.
    latency: Option<Histogram<u64>>,
}

impl Requests {
    /// A stream begins a request; one that it has not ended is forgotten.
    pub fn begin(&mut self, stream: usize, now: Time) {
        if self.begun.len() <= stream {
            self.begun.resize(stream + 1, None);
        }
        self.begun[stream] = Some(now);
    }

    /// A stream ends its request; an end without a beginning is none.
    pub fn end(&mut self, stream: usize, now: Time) {
        let Some(begun) = self.begun.get_mut(stream).and_then(Option::take) else { return };
        let latency = self
            .latency
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("the histogram knows three digits"));
        latency.record(now.saturating_sub(begun).as_nanos() as u64).expect("the histogram grows as it needs");
    }

    /// The region of interest begins: what was before does not count, nor do requests under way.
    pub fn forget(&mut self) {
        *self = Requests::default();
    }

    /// Into a statistics tree; nothing where there were none.
    pub fn count_into(&self, stats: &mut Stats) {
        let Some(latency) = &self.latency else { return };
        stats.count("requests.count", latency.len(), Unit::Count);
        stats.real("requests.latency.mean", latency.mean(), Unit::Nanoseconds);
        for (name, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
            let value = latency.value_at_quantile(quantile);
            stats.count(format!("requests.latency.{name}"), value, Unit::Nanoseconds);
        }
        stats.count("requests.latency.max", latency.max(), Unit::Nanoseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_requests_that_overlap_in_time() {
        let mut requests = Requests::default();
        let at = Time::from_nanos;
        for i in 0..1000 {
            // Two streams: the first takes 100 ns each time, the second 1 to 1000 ns.
            requests.begin(0, at(i * 2000));
            requests.begin(1, at(i * 2000));
            requests.end(0, at(i * 2000 + 100));
            requests.end(1, at(i * 2000 + i + 1));
            requests.end(1, at(i * 2000 + 1999));
        }
        let mut stats = Stats::new();
        requests.count_into(&mut stats);
        let value = |name: &str| stats.get(&format!("requests.{name}")).unwrap().value.as_f64();
        assert_eq!(value("count"), 2000.0);
        assert!((value("latency.mean") - (100.0 + 500.5) / 2.0).abs() < 1.0);
        // 1,000 of the 2,000 are 100, and 99 less; 95 % of all are up to 900.
        assert_eq!(value("latency.p50"), 100.0);
        assert!((value("latency.p95") - 900.0).abs() <= 1.0, "{}", value("latency.p95"));
        assert_eq!(value("latency.max"), 1000.0);
        requests.forget();
        let mut none = Stats::new();
        requests.count_into(&mut none);
        assert_eq!(none.iter().count(), 0);
    }
}

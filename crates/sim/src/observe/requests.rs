//! How long requests take, from their begin to their end as the input marks them.
//!
//! Where clients keep a thread busy, each with one request under way, the thread serves them in turn: the request that it
//! ends was sent when the same client had the answer before, as many answers ago as there are clients. A request then takes
//! from that answer to its own, its wait for the others included. The first of each client only fill the queue and do not
//! count.

use hdrhistogram::Histogram;
use std::collections::VecDeque;
use terrace_model::{Stats, Time, Unit};

/// Latencies are kept to three significant digits.
const DIGITS: u8 = 3;

/// The requests of a stream.
#[derive(Debug, Default)]
struct Stream {
    /// When the one under way began.
    begun: Option<Time>,
    /// Clients that wait in turn; 0 where nobody waits.
    clients: usize,
    /// When the latest requests ended, one of each client.
    answers: VecDeque<Time>,
}

impl Stream {
    /// How long the request took that ends now; nothing where it does not count.
    fn end(&mut self, now: Time) -> Option<Time> {
        let begun = self.begun.take()?;
        if self.clients == 0 {
            return Some(now.saturating_sub(begun));
        }
        self.answers.push_back(now);
        let sent = if self.answers.len() > self.clients { self.answers.pop_front() } else { None };
        sent.map(|sent| now.saturating_sub(sent))
    }
}

/// The requests of a run.
#[derive(Debug, Default)]
pub struct Requests {
    streams: Vec<Stream>,
    /// In nanoseconds.
    latency: Option<Histogram<u64>>,
}

impl Requests {
    fn stream(&mut self, stream: usize) -> &mut Stream {
        if self.streams.len() <= stream {
            self.streams.resize_with(stream + 1, Stream::default);
        }
        &mut self.streams[stream]
    }

    /// From now on a stream's requests come from so many clients.
    pub fn clients(&mut self, stream: usize, clients: u64) {
        let own = self.stream(stream);
        own.clients = usize::try_from(clients).unwrap_or(usize::MAX);
        own.answers.clear();
    }

    /// A stream begins a request; one that it has not ended is forgotten.
    pub fn begin(&mut self, stream: usize, now: Time) {
        self.stream(stream).begun = Some(now);
    }

    /// A stream ends its request; an end without a beginning is none.
    pub fn end(&mut self, stream: usize, now: Time) {
        let Some(took) = self.streams.get_mut(stream).and_then(|own| own.end(now)) else { return };
        let latency = self
            .latency
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("the histogram knows three digits"));
        latency.record(took.as_nanos() as u64).expect("the histogram grows as it needs");
    }

    /// The region of interest begins: what was before does not count, nor do requests under way. The clients stay.
    pub fn forget(&mut self) {
        self.latency = None;
        for stream in &mut self.streams {
            stream.begun = None;
            stream.answers.clear();
        }
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

    fn mean(requests: &Requests) -> (f64, f64) {
        let mut stats = Stats::new();
        requests.count_into(&mut stats);
        let value = |name: &str| stats.get(&format!("requests.{name}")).unwrap().value.as_f64();
        (value("count"), value("latency.mean"))
    }

    #[test]
    fn a_request_waits_for_those_of_all_other_clients() {
        // A thread serves a request in 10 ns: 50 clients wait 500 ns each, and one client 10 ns.
        for (clients, latency) in [(50, 500.0), (1, 10.0)] {
            let mut requests = Requests::default();
            requests.clients(0, clients);
            for i in 0..200 {
                requests.begin(0, Time::from_nanos(10 * i));
                requests.end(0, Time::from_nanos(10 * (i + 1)));
                if i == 99 {
                    requests.forget();
                }
            }
            assert_eq!(
                mean(&requests),
                (100.0 - clients as f64, latency),
                "the first of each fill the queue"
            );
        }
    }

    #[test]
    fn one_slow_request_delays_all_that_wait() {
        // Four clients, 10 ns each; one request of 100 ns is in the waits of four.
        let (mut requests, mut now) = (Requests::default(), 0);
        requests.clients(0, 4);
        for i in 0..24 {
            requests.begin(0, Time::from_nanos(now));
            now += if i == 12 { 100 } else { 10 };
            requests.end(0, Time::from_nanos(now));
        }
        assert_eq!(mean(&requests), (20.0, (16.0 * 40.0 + 4.0 * 130.0) / 20.0));
    }

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

//! What shootdowns cost here, and what the simulated kernel says they cost.

use crate::Error;
use serde::Serialize;
use terrace_calibrate::{Call, Calls, Effort, Processor, Spread, measure_calls};
use terrace_sim::design::{Library, Resolved};
use terrace_sim::{ShootdownCall, shootdown_benchmark};

/// One line of the result. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The call that takes a page away.
    pub call: &'static str,
    /// Threads that have the page.
    pub threads: usize,
    /// Median of the repetitions.
    pub median: f64,
    /// Quartiles of the repetitions.
    pub quartiles: [f64; 2],
    /// How often it was measured.
    pub repetitions: usize,
    /// By the simulated kernel.
    pub predicted: f64,
    /// Predicted over measured, less one; none where the prediction was fitted.
    pub error: Option<f64>,
}

/// A call that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// The call.
    pub call: &'static str,
    /// Why.
    pub reason: String,
}

/// What taking one page away from all threads of a process costs, measured and predicted.
#[derive(Clone, Debug, Serialize)]
pub struct Shootdowns {
    /// The microbenchmark's name.
    pub microbenchmark: &'static str,
    /// This machine's.
    pub processor: String,
    /// Whether this is a virtual machine.
    pub virtual_machine: bool,
    /// Processors that this process may use.
    pub processors: usize,
    /// The share of them that it got.
    pub processor_share: f64,
    /// The preset whose costs predict.
    pub machine: String,
    /// The points.
    pub rows: Vec<Row>,
    /// What is not among them.
    pub left_out: Vec<LeftOut>,
    /// Other programs ran meanwhile.
    #[serde(skip)]
    pub disturbed: bool,
}

/// Measures and predicts. `machine`: the preset whose costs predict; without one the nearest to the processor. `said` is
/// called with what is measured.
///
/// # Errors
/// No such machine, or a kernel that lets nothing be measured.
pub fn measure(
    machine: Option<&str>,
    effort: Effort,
    said: &mut dyn FnMut(&str),
) -> Result<Shootdowns, Error> {
    let processor = Processor::here();
    let machine = machine.unwrap_or_else(|| processor.nearest_preset());
    // A wrong name is said before anything is measured.
    design(machine, 1)?;
    let measured = measure_calls(effort, &mut |what| said(what))
        .map_err(|error| Error::failed(format!("shootdowns were not measured: {error}")))?;
    let threads = measured.points.iter().map(|point| point.threads).max().unwrap_or(1);
    let Resolved { design, .. } = design(machine, threads)?;
    let rows = rows(&measured, |call, threads| {
        shootdown_benchmark(&design, simulated(call), threads).map(|time| time.as_secs() * 1e9)
    })
    .map_err(Error::failed)?;
    let left_out = measured.left_out.iter();
    Ok(Shootdowns {
        microbenchmark: "shootdown",
        processor: processor.name,
        virtual_machine: processor.guest,
        processors: measured.processors,
        processor_share: measured.processor_share,
        machine: design.machine,
        rows,
        left_out: left_out
            .map(|(call, reason)| LeftOut { call: call.name(), reason: reason.clone() })
            .collect(),
        disturbed: measured.is_disturbed(),
    })
}

/// Native translation with Linux's shootdowns, on as many cores as there are threads.
fn design(machine: &str, threads: usize) -> Result<Resolved, Error> {
    let sets = [("core.count", threads.to_string()), ("translation.coherence", "\"software\"".to_owned())];
    let sets = sets.map(|(key, value)| (key.to_owned(), value));
    Ok(Library::embedded().design("native-4k", Some(machine), &sets)?)
}

fn simulated(call: Call) -> ShootdownCall {
    match call {
        Call::Munmap => ShootdownCall::Munmap,
        Call::Mprotect => ShootdownCall::Mprotect,
        Call::DontNeed => ShootdownCall::DontNeed,
        Call::MovePages => ShootdownCall::MovePages,
    }
}

/// The measured points with predictions: what a call takes beside its shootdown is fitted to one thread, and what further
/// threads add is what the simulated scheme says.
fn rows(measured: &Calls, simulate: impl Fn(Call, usize) -> Result<f64, String>) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for call in Call::ALL {
        let mut of_call = measured.points.iter().filter(|point| point.call == call);
        let Some(alone) = of_call.clone().find(|point| point.threads == 1) else { continue };
        let call_itself = alone.time.median - simulate(call, 1)?;
        of_call.try_for_each(|point| {
            let Spread { median, low, high, count } = point.time;
            let predicted = call_itself + simulate(call, point.threads)?;
            let error = (point.threads > 1).then(|| predicted / median - 1.0);
            let (call, threads) = (call.name(), point.threads);
            rows.push(Row {
                call,
                threads,
                median,
                quartiles: [low, high],
                repetitions: count,
                predicted,
                error,
            });
            Ok::<(), String>(())
        })?;
    }
    Ok(rows)
}

impl Shootdowns {
    /// The points as a table of 80 columns.
    pub fn to_text(&self) -> String {
        let place = if self.virtual_machine { "a virtual machine" } else { "bare metal" };
        let mut text = format!(
            "One page of 4 KiB taken away from all threads of a process\n\
             {}, {place}, {} processors; predicted by the costs of {}\n\n\
             {:<14} {:>7} {:>12} {:>19} {:>13} {:>7}\n",
            self.processor,
            self.processors,
            self.machine,
            "call",
            "threads",
            "measured, ns",
            "quartiles",
            "predicted, ns",
            "error"
        );
        for row in &self.rows {
            let error = row.error.map_or("fitted".to_owned(), |error| format!("{:+.0} %", 100.0 * error));
            let quartiles = format!("{:.0} to {:.0}", row.quartiles[0], row.quartiles[1]);
            text += &format!(
                "{:<14} {:>7} {:>12.0} {quartiles:>19} {:>13.0} {error:>7}\n",
                row.call, row.threads, row.median, row.predicted
            );
        }
        text += "\nThreads: each on a processor of its own. The one-thread rows fit what a call\n\
                 takes by itself; the other rows are predictions.\n";
        for LeftOut { call, reason } in &self.left_out {
            text += &format!("{call}: left out, {reason}.\n");
        }
        if self.processors == 1 {
            text += "This process may use one processor, so there is nothing to predict.\n";
        }
        if self.disturbed {
            text += "Note: other programs ran meanwhile, which bends the values.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_calibrate::Point;

    #[test]
    fn the_one_thread_point_alone_is_fitted() {
        let point = |call, threads, median| {
            let time = Spread { median, low: median - 1.0, high: median + 1.0, count: 9 };
            Point { call, threads, time }
        };
        let mut measured = Calls {
            points: vec![
                point(Call::Munmap, 1, 900.0),
                point(Call::DontNeed, 1, 700.0),
                point(Call::Munmap, 4, 4000.0),
                point(Call::DontNeed, 4, 1000.0),
            ],
            left_out: vec![(Call::MovePages, "one node".to_owned())],
            processors: 4,
            processor_share: 1.0,
        };
        let simulate = |_, threads: usize| Ok(140.0 + 1000.0 * (threads as f64 - 1.0));
        let found = rows(&measured, simulate).unwrap();
        let found: Vec<_> =
            found.iter().map(|row| (row.call, row.threads, row.predicted, row.error)).collect();
        let expected = [
            ("munmap", 1, 900.0, None),
            ("munmap", 4, 3900.0, Some(-0.025)),
            ("MADV_DONTNEED", 1, 700.0, None),
            ("MADV_DONTNEED", 4, 3700.0, Some(2.7)),
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!((found.0, found.1, found.2), (expected.0, expected.1, expected.2));
            assert!(
                found.3.zip(expected.3).is_none_or(|(one, other)| (one - other).abs() < 1e-9),
                "{found:?}"
            );
        }
        assert_eq!(found.len(), expected.len());
        // Other thread counts change no prediction of a third.
        measured.points[2].time.median *= 5.0;
        assert_eq!(rows(&measured, simulate).unwrap()[1].predicted, 3900.0);
    }
}

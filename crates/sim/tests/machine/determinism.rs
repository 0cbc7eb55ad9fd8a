//! Equal inputs give equal outcomes, and a region of interest is exactly what lies between its marks.

use crate::support::*;
use terrace_model::{Unit, Value};
use terrace_sim::design::Design;
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{EventSource, KernelAccess, MarkKind};

fn cases() -> Vec<(Design, &'static str, Fidelity)> {
    let mut cases = Vec::new();
    for (name, machine, spec) in [
        ("native-4k", "vbi-table1", "gups,bytes=8 MiB,updates=15e3"),
        ("native-thp", "zen4-cxl", "kv,keys=4e3,requests=1e4,threads=5"),
        ("weighted-interleave", "haswell-32", "stream,bytes=3 MiB,iterations=1,threads=40"),
        ("vivt", "vbi-table1", "kv,keys=2e3,requests=5e3,threads=6"),
        ("colt", "vbi-table1", "kv,keys=2e3,requests=5e3,threads=6"),
        ("rmm", "zen4-cxl", "kv,keys=2e3,requests=5e3,threads=3"),
        ("direct-segment", "vbi-table1", "gups,bytes=8 MiB,updates=15e3"),
        ("spot", "zen4-cxl", "gups,bytes=8 MiB,updates=15e3"),
    ] {
        for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
            if name != "vivt" || fidelity != Fidelity::Translation {
                cases.push((design(name, machine, &[]), spec, fidelity));
            }
        }
    }
    cases
}

#[test]
fn equal_inputs_give_equal_outcomes_alone_and_beside_each_other() {
    let cases = cases();
    let once = || -> Vec<Outcome> {
        cases.iter().map(|(design, spec, fidelity)| run(design, &mut *workload(spec), *fidelity)).collect()
    };
    let expected = once();
    let at_once: Vec<Vec<Outcome>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(once)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for outcomes in &at_once {
        for ((outcome, expected), (design, spec, fidelity)) in outcomes.iter().zip(&expected).zip(&cases) {
            assert!(outcome.accesses > 0);
            assert_eq!(outcome, expected, "{} on {spec} at {fidelity:?}", design.name);
        }
    }
}

/// Two batches where there was one: the same stream with its batches cut in halves.
struct Halves {
    inner: Box<dyn EventSource>,
    rest: Option<terrace_trace::Batch>,
}

impl EventSource for Halves {
    fn header(&self) -> &terrace_trace::Header {
        self.inner.header()
    }

    fn next_batch(
        &mut self,
    ) -> Result<Option<std::sync::Arc<terrace_trace::Batch>>, terrace_trace::SourceError> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest.into()));
        }
        let Some(batch) = self.inner.next_batch()? else { return Ok(None) };
        let mut first = (*batch).clone();
        let at = first.len() / 2;
        let mut rest =
            terrace_trace::Batch { stream: first.stream, after: first.after, ..Default::default() };
        rest.addr = first.addr.split_off(at);
        rest.size = first.size.split_off(at);
        rest.kind = first.kind.split_off(at);
        rest.depends_on = first.depends_on.split_off(at);
        rest.instructions = first.instructions.split_off(at);
        let cut = first.events.partition_point(|event| event.before as usize <= at);
        rest.events = first.events.split_off(cut);
        for event in &mut rest.events {
            event.before -= at as u32;
        }
        self.rest = (!rest.is_empty()).then_some(rest);
        Ok(Some(first.into()))
    }
}

#[test]
fn where_batches_end_decides_nothing() {
    for (name, spec) in
        [("native-4k", "gups,bytes=8 MiB,updates=15e3"), ("perfect-tlb", "kv,keys=4e3,requests=1e4")]
    {
        let design = design(name, "vbi-table1", &[]);
        for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
            let whole = run(&design, &mut *workload(spec), fidelity);
            let halves = run(&design, &mut Halves { inner: workload(spec), rest: None }, fidelity);
            assert_eq!(whole, halves, "{name} on {spec} at {fidelity:?}");
        }
    }
}

/// Counters with a difference, the states (pages) apart.
fn is_counter(name: &str, unit: Unit) -> bool {
    matches!(unit, Unit::Count | Unit::Bytes)
        && !name.contains("resident_bytes.")
        && name != "core.cores_used"
}

/// A prefix, a region and a suffix, each with events and misses of its own.
fn program(parts: usize, marks: bool) -> Program {
    let mut random = Random(7);
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    for part in 0..parts {
        if marks && part == 1 {
            program.mark(MarkKind::RegionBegin);
        }
        if marks && part == 2 {
            program.mark(MarkKind::RegionEnd);
        }
        program.map(DATA + GIB + part as u64 * MIB, MIB);
        for _ in 0..5000 {
            let addr = DATA + random.below(64 * MIB / 8) * 8;
            if random.below(3) == 0 {
                program.write(addr)
            } else {
                program.read(addr)
            };
        }
        program.kernel(DATA + GIB + part as u64 * MIB, 10_000, KernelAccess::Write);
        program.unmap(DATA + part as u64 * MIB, 128 * KIB);
    }
    program
}

#[test]
fn a_region_counts_what_lies_between_its_marks() {
    for name in ["native-4k", "native-thp", "perfect-tlb", "vivt"] {
        let design = design(name, "vbi-table1", &[]);
        for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
            if name == "vivt" && fidelity == Fidelity::Translation {
                continue;
            }
            let what = format!("{name} at {fidelity:?}");
            let before = program(1, false).run(&design, fidelity);
            let until = program(2, false).run(&design, fidelity);
            let region = program(3, true).run(&design, fidelity);
            let mut compared = 0;
            for (name, stat) in region.stats.iter() {
                let Value::Integer(value) = stat.value else { continue };
                let end = count(&until, name);
                if stat.unit == Unit::Pages || name.starts_with("os.resident_bytes.") {
                    assert_eq!(value, end, "{what}: {name} is a state");
                } else if is_counter(name, stat.unit) {
                    assert_eq!(value, end - count(&before, name), "{what}: {name}");
                } else {
                    continue;
                }
                compared += 1;
            }
            assert!(compared > 15, "{what}");
            assert_eq!(region.accesses, 5000, "{what}");
            assert_eq!(region.accesses, until.accesses - before.accesses, "{what}");
            assert_eq!(region.instructions, until.instructions - before.instructions, "{what}");
            // What is in flight at a mark belongs to what comes after it: at most a reorder buffer of misses and a full
            // store buffer.
            let apart = region.cycles.abs_diff(until.cycles - before.cycles);
            assert!(apart < 3000, "{what}: {apart} cycles");
            assert!(region.notes.iter().any(|note| note.contains("5,000 of 15,000")), "{:?}", region.notes);
        }
    }
}

#[test]
fn without_an_end_the_region_goes_to_the_end_and_whole_counts_all() {
    let design = design("native-4k", "vbi-table1", &[]);
    let mut open = Program::new();
    open.map(DATA, MIB).read(DATA).mark(MarkKind::RegionBegin).read(DATA).read(DATA + PAGE);
    let outcome = open.run(&design, Fidelity::Full);
    assert_eq!((outcome.accesses, count(&outcome, "os.faults")), (2, 1));
    let whole = open.run_whole(&design, Fidelity::Full);
    assert_eq!((whole.accesses, count(&whole, "os.faults")), (3, 2));

    // Marks change nothing that is simulated.
    let marked = program(3, true).run_whole(&design, Fidelity::Full);
    let plain = program(3, false).run(&design, Fidelity::Full);
    assert_eq!(marked.stats, plain.stats);
    assert_eq!(marked.cycles, plain.cycles);
}

#[test]
fn the_last_end_counts_where_threads_end_one_after_the_other() {
    let mut program = Program::new();
    program.map(DATA, MIB).read(DATA).mark(MarkKind::RegionBegin).read(DATA + PAGE);
    program.mark(MarkKind::RegionEnd).read(DATA + 2 * PAGE).mark(MarkKind::RegionEnd).read(DATA + 3 * PAGE);
    let outcome = program.run(&design("native-4k", "vbi-table1", &[]), Fidelity::Full);
    assert_eq!((outcome.accesses, count(&outcome, "os.faults")), (2, 2));
}

#[test]
fn a_run_stopped_from_outside_reports_what_it_has() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let progress = Box::new(move |accesses: u64| {
        if accesses > 20_000 {
            seen.store(true, Ordering::Relaxed);
        }
    });
    // Two threads, so that cores take turns and the engine looks.
    let options = Options { stop: Some(stop), progress: Some(progress), whole: true, ..Options::default() };
    let design = design("native-4k", "vbi-table1", &[]);
    let spec = "gups,bytes=16 MiB,updates=2e5,threads=2";
    let outcome = run_with(&design, &mut *workload(spec), options).unwrap();
    assert!(outcome.stopped);
    assert!((20_000..100_000).contains(&outcome.accesses), "{}", outcome.accesses);
}

#[test]
fn samples_are_those_of_the_whole_run_also_where_a_region_is_counted() {
    let design = design("hemem", "zen4-cxl", &[("os.policy.sample_period", "2")]);
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    let pages = || (0..16_384).map(|page| DATA + page * PAGE);
    pages().for_each(|page| _ = program.write(page));
    // More than the caches hold, so that these reads reach memory.
    pages().for_each(|page| _ = program.read(page + 2048));
    program.mark(MarkKind::RegionBegin);
    pages().for_each(|page| _ = program.read(page + 1024));
    let of = |whole| {
        let options = Options { whole, ..Options::default() };
        let outcome = run_with(&design, &mut program.source(), options).unwrap();
        (outcome.samples, count(&outcome, "policy.samples"))
    };
    let ((samples, of_region), all) = (of(false), of(true));
    assert!(0 < of_region && of_region < samples, "{of_region} of {samples}");
    assert_eq!(all, (samples, samples));
}

//! What policies see: accessed and dirty bits, hint faults, counted pages, samples, low water.

use super::*;

/// What scans of page 0 show over time, every 20 us.
fn bits_seen(clear: Clear, write: bool) -> Vec<(bool, bool)> {
    let (seen, log) = shared(Vec::new());
    let design = machine(100, 100);
    probe(
        &looping(1, 200, write),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::NONE),
        move |now, _, memory| {
            let mut hand = ScanHand::default();
            memory.scan(Scope::All, &mut hand, clear, &mut |view| {
                log.lock().unwrap().push((view.accessed, view.dirty));
                Step::Clear
            });
            every(now, 20_000)
        },
    );
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() >= 5, "{seen:?}");
    seen
}

#[test]
fn a_translation_in_a_tlb_hides_accesses_until_it_is_dropped() {
    let seen = bits_seen(Clear::ACCESSED, false);
    assert_eq!(seen[0], (true, false));
    assert!(seen[1..].iter().all(|bits| *bits == (false, false)), "{seen:?}");
    let seen = bits_seen(Clear::ACCESSED.flushed(true), false);
    assert!(seen.iter().all(|bits| *bits == (true, false)), "{seen:?}");
    // Stores: a TLB entry that knows the page dirty does not set the bit again.
    let seen = bits_seen(Clear::BOTH, true);
    assert_eq!(seen[0], (true, true));
    assert!(seen[1..].iter().all(|bits| *bits == (false, false)), "{seen:?}");
    let seen = bits_seen(Clear::BOTH.flushed(true), true);
    assert!(seen.iter().all(|bits| *bits == (true, true)), "{seen:?}");
}

#[test]
fn hint_faults_come_once_and_store_hints_let_loads_pass() {
    for (how, write, faults) in [
        (Watch::Hint, false, 1),
        (Watch::Hint, true, 1),
        (Watch::HintStore, false, 0),
        (Watch::HintStore, true, 1),
    ] {
        let design = machine(100, 100);
        let (_, signals) = order(&looping(1, 300, write), &design, FAST, 100_000, move |memory| {
            memory.watch(&[page(0)], how);
        });
        assert_eq!(signals.len(), faults, "{how:?} {write}: {signals:?}");
        if let [Signal::HintFault { page: faulted, write: stored, latency, .. }] = signals[..] {
            assert_eq!((faulted, stored), (page(0), write));
            assert!(latency < Time::from_nanos(10_000), "{latency:?}");
        }
    }
}

#[test]
fn counted_pages_fault_once_per_tlb_miss() {
    let (counted, log) = shared(0);
    let design = machine(100, 100);
    let mut rounds = 0;
    let outcome = probe(
        &looping(1, 1000, false),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::NONE),
        move |now, _, memory| {
            // Flushing the page's translation makes one TLB miss per round.
            let mut hand = ScanHand::default();
            memory.counts(&mut |count| *log.lock().unwrap() += count.accesses);
            match rounds {
                0 => {}
                1 => memory.watch(&[page(0)], Watch::Count),
                _ => {
                    let clear = Clear::ACCESSED.flushed(true);
                    memory.scan(Scope::All, &mut hand, clear, &mut |_| Step::Clear);
                }
            }
            rounds += 1;
            if rounds == 12 { NextTick::Never } else { every(now, 20_000) }
        },
    );
    // One by the watch's own shootdown and one by each of the nine flushes whose misses were read.
    assert_eq!(*counted.lock().unwrap(), 10);
    // The last flush's miss came after the last reading.
    assert_eq!(count(&outcome, "policy.count_faults"), 11);
}

#[test]
fn exact_sampling_tells_every_line_that_was_read_from_memory() {
    let (signaled, log) = shared(0u64);
    let design = machine(100, 100);
    let outcome = probe(
        &looping(40, 2000, false),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::NONE),
        move |now, signals, memory| {
            if now == Moment::START {
                memory.sample_accesses(1);
            }
            for signal in signals {
                if let Signal::Access { count, write: false, .. } = signal {
                    *log.lock().unwrap() += u64::from(*count);
                }
            }
            every(now, 50_000)
        },
    );
    let read = count(&outcome, "tier.local.bytes_by.demand") / 64;
    assert!(read > 300);
    let signaled = *signaled.lock().unwrap();
    // What came after the last tick was not reported any more.
    assert!(signaled <= read && signaled + 60 >= read, "{signaled} of {read}");
}

#[test]
fn low_water_is_signaled_once_per_fall() {
    let design = machine(40, 100);
    let (signaled, log) = shared(Vec::new());
    probe(
        &looping(60, 2000, false),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::of(&[SignalKind::Allocated])),
        move |now, signals, memory| {
            if now == Moment::START {
                memory.wake_below(FAST, Bytes(16 * PAGE));
            }
            for signal in signals {
                match signal {
                    Signal::LowWater { tier, free } => log.lock().unwrap().push((*tier, free.0 / PAGE)),
                    Signal::Allocated { size, .. } => assert_eq!(*size, PageSize::Base),
                    _ => {}
                }
            }
            NextTick::Never
        },
    );
    assert_eq!(*signaled.lock().unwrap(), [(FAST, 15)]);
}

#[test]
fn a_tick_beyond_the_end_of_time_never_comes() {
    let run = |next: NextTick| {
        let (calls, log) = shared(0);
        let outcome = probe(
            &looping(40, 2000, false),
            &machine(20, 100),
            Fidelity::Full,
            (FAST, SignalSet::NONE),
            move |_, _, _| {
                *log.lock().unwrap() += 1;
                next
            },
        );
        let calls = *calls.lock().unwrap();
        (calls, outcome.cycles)
    };
    let never = run(NextTick::Never);
    assert_eq!(never.0, 1);
    for nanos in [u64::MAX, 1 << 62, u64::MAX / 1_000_000, 17_000_000_000_000] {
        assert_eq!(run(NextTick::At(Moment(nanos))), never, "{nanos} ns");
    }
}

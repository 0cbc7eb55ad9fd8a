//! Whatever a policy orders, nothing is lost or doubled, and a run is the same again.

use super::*;

/// A policy that does everything at random, wrong things included.
fn chaos(seed: u64) -> impl FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send {
    let mut random = terrace_policy::Random::new(seed);
    let mut answered = std::collections::BTreeMap::<Ticket, u64>::new();
    move |now, signals, memory| {
        for signal in signals {
            if let Signal::Done { ticket, cost, .. } = signal {
                let left = answered.get_mut(ticket).expect("an answer to an order that was given");
                assert!(*left > 0, "{ticket:?} was answered too often");
                *left -= 1;
                assert!(cost.copied % PAGE == 0);
            }
        }
        for tier in &memory.topology().tiers {
            assert!(tier.used <= tier.capacity);
        }
        let mut pages = Vec::new();
        let mut hand = ScanHand { next: PageId::new(0, random.below(1 << 34)) };
        let clear = Clear { accessed: true, dirty: true, flush: random.below(2) == 0 };
        memory.scan(Scope::All, &mut hand, clear, &mut |view| {
            pages.push(view.page);
            if random.below(2) == 0 { Step::Clear } else { Step::Keep }
        });
        if pages.is_empty() {
            return every(now, 2000);
        }
        let one = |random: &mut terrace_policy::Random| {
            let page = pages[random.below(pages.len() as u64) as usize];
            if random.below(20) == 0 { page.plus(random.below(600)) } else { page }
        };
        let count = random.below(12);
        let how = MoveOptions {
            huge: if random.below(2) == 0 { HugePages::Whole } else { HugePages::SplitFirst },
            threads: random.below(6) as u16,
            in_flight: NonZeroU32::new(random.below(9) as u32),
            copy: CopyBy::Bytes,
            empties_lists: random.below(2) == 0,
        };
        let tier = |random: &mut terrace_policy::Random| TierId(random.below(3) as u8);
        let ticket = match random.below(9) {
            0 | 1 => {
                let moves: Vec<Move> =
                    (0..count).map(|_| Move { page: one(&mut random), to: tier(&mut random) }).collect();
                memory.migrate(&moves, how)
            }
            2 => {
                let pairs: Vec<Exchange> =
                    (0..count).map(|_| Exchange { one: one(&mut random), other: one(&mut random) }).collect();
                memory.exchange(&pairs, how)
            }
            3 => {
                let sizes = [PageSize::Base, PageSize::Huge, PageSize::Giant];
                let resizes: Vec<Resize> = (0..count)
                    .map(|_| {
                        let to = sizes[random.below(3) as usize];
                        Resize { page: one(&mut random).aligned(to), to }
                    })
                    .collect();
                memory.resize(&resizes)
            }
            4 => {
                let dropped: Vec<PageId> = (0..count.min(2)).map(|_| one(&mut random)).collect();
                answered.insert(memory.drop_zeros(&dropped), dropped.len() as u64);
                return every(now, 1000 + random.below(30_000));
            }
            5..=7 => {
                let Some(physical) = memory.physical() else { panic!("frames are shown") };
                let (first, frames) = physical.tier_frames(TierId(random.below(2) as u8));
                let block =
                    |random: &mut terrace_policy::Random| Frame(first.0 + random.below(frames / 512) * 512);
                match random.below(3) {
                    0 => physical.isolate(block(&mut random), PageSize::Huge, random.below(2) == 0),
                    1 => {
                        let blocks: Vec<Frame> = (0..count).map(|_| block(&mut random)).collect();
                        answered.insert(physical.zero(&blocks, PageSize::Huge), count);
                    }
                    _ => {
                        let frame = |random: &mut terrace_policy::Random| match random.below(3) {
                            0 => block(random),
                            _ => Frame(first.0 + random.below(frames)),
                        };
                        let moves: Vec<Relocate> = (0..count)
                            .map(|_| Relocate {
                                from: frame(&mut random),
                                to: frame(&mut random),
                                exchange: random.below(2) == 0,
                            })
                            .collect();
                        answered.insert(physical.relocate(&moves, how), count);
                    }
                }
                return every(now, 1000 + random.below(30_000));
            }
            _ => {
                let hows = [Watch::Off, Watch::Hint, Watch::HintStore, Watch::Count];
                let watched: Vec<PageId> = (0..count).map(|_| one(&mut random)).collect();
                memory.watch(&watched, hows[random.below(4) as usize]);
                memory.counts(&mut |_| {});
                return every(now, 1000 + random.below(30_000));
            }
        };
        answered.insert(ticket, count);
        every(now, 1000 + random.below(30_000))
    }
}

/// Threads and processes that map, touch, unmap, move and fork memory while a policy is at work on it.
fn churn(seed: u64) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    let base = |area: u64| DATA + area * 8 * MIB;
    for area in 0..4 {
        program.map(base(area), 6 * MIB);
    }
    program.on(1).spawn(0, 1, None);
    let mut processes = 1;
    for step in 0..40 {
        for stream in 0..2 {
            program.on(stream);
            for _ in 0..150 {
                let addr = base(random.below(4)) + random.below(6 * MIB / 64) * 64;
                let write = random.below(3) == 0;
                let kind =
                    if write { terrace_trace::AccessKind::Write } else { terrace_trace::AccessKind::Read };
                program.access(addr, 8, kind, 0, 100 + random.below(3000));
            }
        }
        program.on(0);
        let area = base(random.below(4));
        let part = (area + random.below(1500) * PAGE, (1 + random.below(800)) * PAGE);
        match random.below(6) {
            0 => _ = program.unmap(part.0, part.1).map(part.0, part.1),
            1 => _ = program.remap((area, 2 * MIB), (area + 4 * MIB, 2 * MIB)).map(area, 2 * MIB),
            2 => {
                let range = AddressRange::new(part.0, part.1);
                program.event(Event::Advise { range, advice: terrace_trace::Advice::DontNeed });
            }
            3 => _ = program.kernel(part.0, part.1, terrace_trace::KernelAccess::Write),
            4 if processes < 4 => {
                let child = 1 + processes;
                program.on(child).spawn(processes, 0, Some(0));
                for page in 0..40 {
                    program.write(area + page * PAGE);
                }
                if step % 2 == 0 {
                    program.exit(true);
                }
                processes += 1;
            }
            _ => {}
        }
    }
    program
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Frames are counted anew while the policy works (in builds with debug assertions, as these are).
    #[test]
    fn nothing_is_lost_or_doubled_whatever_a_policy_orders(
        seed: u64,
        huge: bool,
        shared_cores: bool,
        level in 0usize..3,
    ) {
        let fidelity = [Fidelity::Full, Fidelity::Translation, Fidelity::Pages][level];
        let pages = if huge { PagePolicy::Thp } else { PagePolicy::Base };
        let mut design = with_pages(machine(3000, 60_000), pages);
        if shared_cores {
            design.os.kernel_threads = KernelThreads::MachineCores;
        }
        let run = || {
            probe(&churn(seed), &design, fidelity, (FAST, SignalSet::of(SignalKind::ALL)), chaos(seed))
        };
        let outcome = run();
        prop_assert!(count(&outcome, "policy.calls") > 10);
        // Whatever the policy does, the program makes the accesses that it makes.
        prop_assert_eq!(outcome.accesses, churn(seed).run_whole(&design, fidelity).accesses);
        prop_assert_eq!(outcome, run());
    }
}

/// Every policy there is, with short periods, at every fidelity that offers what it needs.
#[test]
fn every_policy_runs_and_runs_the_same_again() {
    let spec = "kv,keys=10e3,requests=12e3,value=256 B";
    for entry in terrace_policy::all() {
        let sets = [
            ("os.reserved", "0 B"),
            ("os.zero_stores", "non-temporal"),
            ("os.policy.name", entry.name()),
            // The machine's own last level takes longer to make than such a run.
            ("cache.llc.capacity", "704 KiB"),
        ];
        let mut design = design("first-touch", "xeon-5218-dcpmm", &sets);
        design.tiers[0].capacity = Bytes::kib(1536);
        let chosen = design.os.policy.as_mut().unwrap_or_else(|| panic!("{}", entry.name()));
        for (key, value) in &mut chosen.parameters {
            let short =
                ["period", "interval", "scan", "scan_period", "aggregation", "quantum", "adapt_period"];
            if short.contains(&key.as_str()) {
                *value = toml::Value::String("1 ms".to_owned());
            }
            if key == "sampling" || key == "delay" {
                *value = toml::Value::String("100 us".to_owned());
            }
        }
        let needs = entry.needs(&chosen.parameters).unwrap();
        let mut profile = None;
        if needs.first_pass {
            let mut plain = design.clone();
            plain.os.policy = None;
            let options = Options { count_accesses: true, ..Options::default() };
            let first = run_with(&plain, &mut workload(spec), options).unwrap();
            profile = first.profile.map(Arc::new);
            assert!(profile.as_ref().unwrap().pages.len() > 100);
        }
        for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
            let run = || {
                let profile = profile.clone();
                run_with(&design, &mut workload(spec), Options { fidelity, profile, ..Options::default() })
            };
            match run() {
                Ok(outcome) => assert_eq!(outcome, run().unwrap(), "{}", entry.name()),
                Err(error) => {
                    let error = error.to_string();
                    assert!(fidelity != Fidelity::Full, "{error}");
                    assert!(error.contains("does not start: it needs"), "{error}");
                }
            }
        }
    }
}

#[test]
fn an_input_that_ends_in_the_middle_of_orders_ends_well() {
    let design = machine(2000, 4000);
    let mut source = endless("gups,bytes=8 MiB,updates=2e4");
    let policy: Box<dyn Policy> = Box::new(Probe { signals: SignalSet::NONE, first: SLOW, on: chaos(3) });
    let options = Options { policy: Some(Box::new(move |_| Ok(policy))), whole: true, ..Options::default() };
    let source: &mut dyn EventSource = &mut source;
    let outcome = run_with(&design, source, options).unwrap();
    let pages = counts(&outcome, ["tier.local.pages", "tier.remote.pages", "os.page_table_pages"]);
    let resident: u64 =
        ["4k", "2m", "1g"].iter().map(|size| count(&outcome, &format!("os.resident_bytes.{size}"))).sum();
    // Blocks of moves under way are taken but hold no page yet.
    assert!(pages[0] + pages[1] - pages[2] >= resident / PAGE);
}

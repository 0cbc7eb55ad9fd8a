//! Whatever programs do to their address spaces, no frame is lost, and levels of fidelity agree on what is there.

use crate::support::*;
use proptest::prelude::*;
use terrace_model::{AddressRange, Bytes};
use terrace_sim::design::{Design, PagePolicy, Placement};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{AccessKind, Advice, Event, KernelAccess, MapKind};

/// What a program does next; addresses are pages of a window of 8 MiB, lengths pages.
#[derive(Clone, Debug)]
enum Step {
    Map(u64, u64, MapKind),
    Unmap(u64, u64),
    Remap(u64, u64, u64, u64),
    Advise(u64, u64, Advice),
    Touch(u64, u64, bool),
    Kernel(u64, u64, bool),
    Resident(u64, u64),
    Exec,
}

const WINDOW: u64 = 8 * MIB / PAGE;

/// Pages near the borders of 2 MiB as often as others.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![0..WINDOW, (0u64..4, 0u64..3).prop_map(|(huge, off)| (huge * 512 + 511 + off) % WINDOW)]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..8, 500u64..520, 1u64..1600, Just(512)]
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(MapKind::Anonymous),
        1 => Just(MapKind::Heap),
        1 => Just(MapKind::PrivateFile),
        1 => Just(MapKind::SharedAnonymous),
    ];
    let advice = prop_oneof![
        3 => Just(Advice::DontNeed),
        1 => Just(Advice::HugePage),
        1 => Just(Advice::NoHugePage),
        1 => Just(Advice::Free),
    ];
    prop_oneof![
        4 => (page(), length(), kind).prop_map(|(at, pages, kind)| Step::Map(at, pages, kind)),
        3 => (page(), length()).prop_map(|(at, pages)| Step::Unmap(at, pages)),
        2 => (page(), length(), page(), length()).prop_map(|(a, b, c, d)| Step::Remap(a, b, c, d)),
        2 => (page(), length(), advice).prop_map(|(at, pages, advice)| Step::Advise(at, pages, advice)),
        9 => (page(), length(), any::<bool>()).prop_map(|(at, pages, write)| Step::Touch(at, pages, write)),
        1 => (page(), length(), any::<bool>()).prop_map(|(at, pages, write)| Step::Kernel(at, pages, write)),
        1 => (page(), any::<u64>()).prop_map(|(at, bits)| Step::Resident(at, bits)),
        1 => Just(Step::Exec),
    ]
}

fn address(page: u64) -> u64 {
    DATA + page * PAGE
}

fn apply(program: &mut Program, step: &Step) {
    let range = |at: u64, pages: u64| AddressRange::new(address(at), pages * PAGE);
    match *step {
        Step::Map(at, pages, kind) => {
            program.map_kind(address(at), pages * PAGE, kind);
        }
        Step::Unmap(at, pages) => {
            program.unmap(address(at), pages * PAGE);
        }
        Step::Remap(at, pages, to, new) => {
            // Linux refuses a target that overlaps the source.
            let apart = to + new <= at || at + pages <= to || to == at;
            if apart {
                // A kernel that chooses the target itself chooses a free one.
                if to != at {
                    program.unmap(address(to), new * PAGE);
                }
                program.remap((address(at), pages * PAGE), (address(to), new * PAGE));
            }
        }
        Step::Advise(at, pages, advice) => {
            program.event(Event::Advise { range: range(at, pages), advice });
        }
        Step::Touch(at, pages, write) => {
            let kind = if write { AccessKind::Write } else { AccessKind::Read };
            for page in (at..at + pages).step_by(1 + pages as usize / 12) {
                program.access(address(page) + 8 * (page % 512), 8, kind, 0, 1);
            }
        }
        Step::Kernel(at, pages, write) => {
            let kind = if write { KernelAccess::Write } else { KernelAccess::Read };
            program.kernel(address(at) + 100, (pages % 5) * PAGE, kind);
        }
        Step::Resident(at, bits) => {
            program.event(Event::Resident { start: address(at), bitmap: vec![bits & bits >> 7] });
        }
        Step::Exec => {
            program.event(Event::Exec { name: String::new() });
        }
    }
}

fn machine(pages: PagePolicy, interleave: bool) -> Design {
    let mut design = with_pages(small(), pages);
    design.os.reserved = Bytes(0);
    // Small enough to run short of aligned blocks.
    design.tiers[0].capacity = Bytes::mib(13);
    design.tiers[1].capacity = Bytes::mib(700);
    if interleave {
        design.os.placement = Placement::Interleave;
    }
    design
}

fn policies() -> impl Strategy<Value = PagePolicy> {
    prop_oneof![Just(PagePolicy::Base), Just(PagePolicy::Huge), Just(PagePolicy::Thp)]
}

fn whole(design: &Design, program: &Program, fidelity: Fidelity) -> Outcome {
    let options = Options { fidelity, whole: true, ..Options::default() };
    run_with(design, &mut program.source(), options).unwrap()
}

fn resident(outcome: &Outcome) -> u64 {
    let of = ["4k", "2m", "1g"].map(|size| count(outcome, &format!("os.resident_bytes.{size}")));
    of.iter().sum::<u64>() / PAGE
}

fn owned(outcome: &Outcome) -> Result<(), TestCaseError> {
    let used = count(outcome, "tier.dram.pages") + count(outcome, "tier.pcm.pages");
    prop_assert_eq!(
        used,
        resident(outcome) + count(outcome, "os.page_table_pages"),
        "every frame has an owner"
    );
    Ok(())
}

const SHARED: [&str; 13] = [
    "os.faults",
    "os.faults_by_size.4k",
    "os.faults_by_size.2m",
    "os.resident_bytes.4k",
    "os.resident_bytes.2m",
    "os.huge_fallbacks",
    "os.splits",
    "os.shootdowns.count",
    "os.pages_freed",
    "os.page_table_pages",
    "os.unmapped_accesses",
    "tier.dram.pages",
    "tier.pcm.pages",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn one_process_loses_no_frame_and_levels_agree(
        steps in prop::collection::vec(step(), 1..60), pages in policies(), interleave: bool
    ) {
        let design = machine(pages, interleave);
        let mut program = Program::new();
        for step in &steps {
            apply(&mut program, step);
        }
        let pages = whole(&design, &program, Fidelity::Pages);
        owned(&pages)?;
        let translation = whole(&design, &program, Fidelity::Translation);
        prop_assert_eq!(counts(&translation, SHARED), counts(&pages, SHARED));
        let perfect = with_scheme(design.clone(), "perfect-tlb");
        let full = whole(&perfect, &program, Fidelity::Full);
        prop_assert_eq!(counts(&full, SHARED), counts(&pages, SHARED));
        program.exit(true);
        let ended = whole(&design, &program, Fidelity::Translation);
        owned(&ended)?;
        prop_assert_eq!((resident(&ended), count(&ended, "os.page_table_pages")), (0, 0));
    }

    /// Processes that fork and end, one after the other in an order that the input fixes, on one core.
    #[test]
    fn forks_lose_no_frame(
        steps in prop::collection::vec((0u32..4, step()), 1..60), interleave: bool
    ) {
        let design = machine(PagePolicy::Base, interleave);
        let mut program = Program::new();
        let mut alive = vec![0u32];
        let mut spawned = 1;
        for (who, step) in &steps {
            let stream = alive[*who as usize % alive.len()];
            program.on(stream);
            apply(&mut program, step);
            program.event(Event::Free { object: 0 });
            if *who == 3 && spawned < 5 {
                program.on(spawned).spawn(spawned, 0, Some(stream)).event(Event::Free { object: 0 });
                alive.push(spawned);
                spawned += 1;
            } else if *who == 2 && alive.len() > 1 {
                let at = alive.iter().position(|&other| other == stream).unwrap();
                alive.remove(at);
                program.on(stream).exit(true);
            }
        }
        let running = whole(&design, &program, Fidelity::Pages);
        prop_assert_eq!(count(&running, "input.order_violations"), 0);
        owned(&running)?;
        for stream in alive {
            program.on(stream).exit(true);
        }
        for fidelity in [Fidelity::Pages, Fidelity::Translation] {
            let ended = whole(&design, &program, fidelity);
            owned(&ended)?;
            prop_assert_eq!((resident(&ended), count(&ended, "os.page_table_pages")), (0, 0));
        }
    }
}

//! Published systems beside a GPU: annotated placement, and pages that move while kernels run.

use crate::gpu_support::{BASE, Script};
use crate::machines::bound;
use terrace_model::AddressRange;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, Outcome, simulate};
use terrace_trace::{Batch, Event, Header, VecSource};

const PAGE: u64 = 4096;

/// A program of kernels over structures of whole pages, which lie one after the other.
#[derive(Clone)]
struct Program {
    batches: Vec<Batch>,
}

/// What a warp does.
#[derive(Clone, Copy)]
enum Do {
    Load(u64),
    Compute(u64),
}

/// Kernels over structures.
struct Kernels(Script);

impl Kernels {
    fn new(structures: &[(&str, u64)]) -> Kernels {
        let pages: u64 = structures.iter().map(|(_, pages)| pages).sum();
        let mut script = Script::new(pages * PAGE);
        let mut first = BASE;
        for (site, (name, pages)) in structures.iter().enumerate() {
            let site = site as u32;
            script.event(Event::Site { site, name: (*name).to_owned() });
            let range = AddressRange::new(first, pages * PAGE);
            script.event(Event::Alloc { object: site.into(), site, range });
            first += pages * PAGE;
        }
        Kernels(script)
    }

    /// A warp loads a line, 32 lanes of four bytes each.
    fn load(&mut self, line: u64) {
        self.0.lanes(line * 128, 4, false, 1);
    }

    /// A kernel in which groups of one warp load the lines given.
    fn kernel(mut self, lines: impl IntoIterator<Item = u64>, loads: usize) -> Kernels {
        self.0.kernel();
        let lines: Vec<u64> = lines.into_iter().collect();
        for group in lines.chunks(loads) {
            self.0.group(32);
            self.0.warp(0);
            group.iter().for_each(|line| self.load(*line));
        }
        self
    }

    /// A kernel of one warp: lines to load, and between them instructions to execute.
    fn warp(mut self, steps: &[Do]) -> Kernels {
        self.0.kernel();
        self.0.group(32);
        self.0.warp(0);
        for step in steps {
            match *step {
                Do::Compute(instructions) => self.0.event(Event::Compute { instructions }),
                Do::Load(line) => self.load(line),
            }
        }
        self
    }

    fn finish(mut self) -> Program {
        Program { batches: self.0.take() }
    }
}

impl Program {
    fn run(&self, design: &Design, options: Options) -> Outcome {
        let mut source = VecSource::new(Header::default(), self.batches.clone());
        simulate(design, &mut source, options).unwrap()
    }

    /// With a first pass over the same program.
    fn run_twice(&self, design: &Design) -> Outcome {
        let mut bare = design.clone();
        bare.os.policy = None;
        let profile = self.run(&bare, Options { count_accesses: true, ..Options::default() }).profile;
        self.run(design, Options { profile: profile.map(Into::into), ..Options::default() })
    }
}

fn design(name: &str, changes: &[(&str, &str)]) -> Design {
    let changes: Vec<(String, String)> =
        changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Library::embedded().design(name, None, &changes).unwrap().design
}

/// Frames of the GPU's memory are for data alone.
const BARE: [(&str, &str); 2] = [("os.reserved", "0 B"), ("os.page_table_tier", "ddr")];

/// A design whose tables lie in the CPU's memory.
fn bare(name: &str, changes: &[(&str, &str)]) -> Design {
    design(name, &[&BARE[..], changes].concat())
}

fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats.integer(name)
}

/// Lines of a page.
const LINES: u64 = PAGE / 128;

/// 40 pages that are read once, 20 that are read ten times in a row, and 20 that are read three times, caches between.
fn three_structures() -> Program {
    let cold = 0..40 * LINES;
    // Each line again and again: the SM's cache serves all but the first.
    let cached = (40 * LINES..60 * LINES).flat_map(|line| [line; 10]);
    Kernels::new(&[("cold", 40), ("cached", 20), ("warm", 20)])
        .kernel(cold, 8)
        .kernel(cached, 40)
        // Each kernel begins with empty caches of SMs; the slices are smaller than this.
        .kernel(60 * LINES..80 * LINES, 8)
        .kernel(60 * LINES..80 * LINES, 8)
        .kernel(60 * LINES..80 * LINES, 8)
        .finish()
}

/// A fast tier of 24 pages: the root and the tables lie elsewhere. Slices of L2 that hold next to nothing.
const SMALL: [(&str, &str); 4] = [
    ("tier.gddr.capacity", "96 KiB"),
    ("os.reserved", "0 B"),
    ("os.page_table_tier", "ddr"),
    ("gpu.l2.capacity", "1 KiB"),
];

#[test]
fn the_profile_counts_by_structure_what_is_issued_and_what_reaches_memory() {
    let program = three_structures();
    let options = Options { count_accesses: true, ..Options::default() };
    let profile = program.run(&design("gpu-local", &SMALL[3..]), options).profile.unwrap();
    let mut found: Vec<(&str, u64, u64, u64)> = profile
        .objects
        .iter()
        .map(|(site, one)| (profile.names[site].as_str(), one.bytes, one.issued.reads, one.heat.reads))
        .collect();
    found.sort_unstable();
    let lanes = |lines: u64| 32 * lines;
    assert_eq!(
        found,
        [
            ("cached", 20 * PAGE, lanes(20 * LINES * 10), 20 * LINES),
            ("cold", 40 * PAGE, lanes(40 * LINES), 40 * LINES),
            ("warm", 20 * PAGE, lanes(20 * LINES * 3), 20 * LINES * 3),
        ]
    );
}

#[test]
fn hot_structures_get_the_room_there_is() {
    let program = three_structures();
    // What is issued: the cached structure is the hottest by the byte, and the warm one gets what is left.
    let outcome = program.run_twice(&design("gpu-annotated", &SMALL));
    let line = 128;
    assert_eq!(
        bytes_read(&outcome),
        [(20 * LINES + 4 * LINES * 3) * line, (40 * LINES + 16 * LINES * 3) * line,]
    );
    assert_eq!(
        outcome.notes[1..3],
        [
            "hint BO, in the fast tier: cached, warm in part (16 KiB of 80 KiB)",
            "hint CO, in the slow tier: cold"
        ]
    );
    // What reaches memory: the warm structure is the hottest.
    let memory = [&SMALL[..], &[("os.policy.count", "memory")]].concat();
    assert_eq!(
        bytes_read(&program.run_twice(&design("gpu-annotated", &memory))),
        [(20 * LINES * 3 + 4 * LINES) * line, (40 * LINES + 16 * LINES) * line,]
    );
    // Room for 71.8 % of everything: all structures are drawn, whatever is hot.
    let wide = [("tier.gddr.capacity", "512 KiB"), ("os.reserved", "0 B"), ("os.page_table_tier", "ddr")];
    let outcome = program.run_twice(&design("gpu-annotated", &wide));
    assert_eq!(count(&outcome, "policy.own.hinted_both"), 80);
}

/// Two structures of eight pages. A warp loads one line of page 4, computes for so many cycles, and loads a line of each
/// page of the first structure.
fn eight_pages(cycles: u64) -> Program {
    let mut steps = vec![Do::Load(4 * LINES), Do::Compute(cycles)];
    steps.extend((0..8).map(|page| Do::Load(page * LINES)));
    Kernels::new(&[("a", 8), ("b", 8)]).warp(&steps).finish()
}

fn bytes_read(outcome: &Outcome) -> [u64; 2] {
    ["gddr", "ddr"].map(|tier| count(outcome, &format!("tier.{tier}.bytes_read")))
}

#[test]
fn a_page_that_was_missed_moves_and_costs_a_shootdown() {
    let outcome = eight_pages(200_000).run(&bare("gpu-migrate-th", &[]), Options::default());
    // Page 4 is copied and read again where it is now; the others are missed too late.
    let moved = count(&outcome, "policy.own.moved");
    assert!((1..8).contains(&moved), "{moved}");
    // Four pages at a time are under way, each with a shootdown before its copy begins.
    let copied = count(&outcome, "tier.gddr.bytes_written") / PAGE;
    let shootdowns = count(&outcome, "gpu.tlb.shootdowns");
    assert!(
        moved <= copied && copied <= shootdowns && shootdowns <= moved + 4,
        "{moved} {copied} {shootdowns}"
    );
    assert_eq!(count(&outcome, "gpu.tlb.shootdowns_avoided"), 0);
    let stalled = count(&outcome, "gpu.tlb.shootdown_time");
    assert_eq!(stalled, count(&outcome, "gpu.tlb.shootdowns") * 100_000 / 1400);
    assert!(bytes_read(&outcome)[0] >= 128);
    // All pages are there before the kernel, as if the host had filled them.
    assert_eq!((count(&outcome, "gpu.populated"), count(&outcome, "gpu.faults")), (16, 0));
    let again = eight_pages(200_000).run(&bare("gpu-migrate-th", &[]), Options::default());
    assert_eq!(outcome, again);
}

/// The SM that computes has nothing to do with the page that another one touched.
#[test]
fn a_shootdown_stalls_all_sms() {
    let cycles = |shootdown: &str| {
        let mut kernels = Kernels::new(&[("a", 8)]);
        kernels.0.kernel();
        kernels.0.group(32);
        kernels.0.warp(0);
        kernels.load(0);
        kernels.0.group(32);
        kernels.0.warp(0);
        (0..2000).for_each(|_| kernels.0.event(Event::Compute { instructions: 100 }));
        let design = bare("gpu-migrate-th", &[("gpu.tlb.shootdown", shootdown)]);
        let outcome = kernels.finish().run(&design, Options::default());
        assert_eq!(count(&outcome, "gpu.tlb.shootdowns"), 1, "{shootdown}");
        count(&outcome, "gpu.cycles")
    };
    assert_eq!(["0 cycles", "100 cycles", "5000 cycles"].map(cycles), [200_000, 200_100, 205_000]);
}

#[test]
fn neighbours_move_without_a_shootdown() {
    let outcome = eight_pages(200_000).run(&bare("gpu-migrate-th-re", &[]), Options::default());
    assert_eq!([count(&outcome, "policy.own.candidates"), count(&outcome, "policy.own.neighbours")], [1, 7]);
    assert_eq!(count(&outcome, "policy.own.moved"), 8, "the allocation has eight pages");
    assert_eq!(
        [count(&outcome, "gpu.tlb.shootdowns"), count(&outcome, "gpu.tlb.shootdowns_avoided")],
        [1, 7]
    );
    // A line before, and all eight pages by their copies; eight lines after.
    let [gddr, ddr] = bytes_read(&outcome);
    assert_eq!(gddr, 8 * 128);
    // Lines of the page table are read there too.
    assert!((128 + 8 * PAGE..9 * PAGE).contains(&ddr), "{ddr}");
    assert_eq!(count(&outcome, "tier.gddr.pages"), 8);
}

#[test]
fn a_threshold_counts_misses() {
    // An entry: each load misses.
    let pages = [0, 1, 0, 1, 0, 2].map(|page| Do::Load(page * LINES));
    let program = Kernels::new(&[("a", 8)]).warp(&[&pages[..], &[Do::Compute(100_000)]].concat()).finish();
    let candidates = |threshold: &str| {
        let changes = [("gpu.tlb.entries", "1"), ("gpu.loads", "1"), ("os.policy.threshold", threshold)];
        count(&program.run(&bare("gpu-migrate-th", &changes), Options::default()), "policy.own.candidates")
    };
    assert_eq!(["1", "2", "3", "4"].map(candidates), [3, 2, 1, 0]);
}

#[test]
fn who_touches_a_page_on_its_way_waits() {
    // A slow copy: one line buffer, one thread. The second load comes while it runs.
    let slow = [("cache.l1.outstanding", "1"), ("os.policy.copy_threads", "1")];
    let steps = [Do::Load(0), Do::Compute(4000), Do::Load(1)];
    let program = Kernels::new(&[("a", 1)]).warp(&steps).finish();
    let outcome = program.run(&bare("gpu-migrate-th", &slow), Options::default());
    // The second load's data comes from where the page is then.
    assert_eq!([count(&outcome, "policy.own.moved"), bytes_read(&outcome)[0]], [1, 128]);
    let fast = bare("gpu-migrate-th", &[]);
    let waited = count(&outcome, "gpu.cycles") - count(&program.run(&fast, Options::default()), "gpu.cycles");
    assert!(waited > 1000, "{waited} cycles");
}

#[test]
fn a_page_is_copied_by_so_many_threads() {
    let cycles = |threads: &str| {
        let program = Kernels::new(&[("a", 64)])
            .warp(&[&[Do::Load(0), Do::Compute(3000)][..], &[Do::Load(1)]].concat())
            .finish();
        let changes = [("os.policy.copy_threads", threads), ("os.policy.expansion", "128")];
        count(&program.run(&bare("gpu-migrate-th", &changes), Options::default()), "policy.own.moved")
    };
    assert!(cycles("1") < cycles("8"), "{} {}", cycles("1"), cycles("8"));
}

#[test]
fn the_legacy_model_copies_everything_before_a_kernel() {
    let pages = 1024;
    let program = Kernels::new(&[("a", pages)]).kernel(0..pages * LINES, 8).finish();
    let outcome = program.run(&bare("gpu-memcpy", &[]), Options::default());
    let bytes = pages * PAGE;
    assert_eq!(count(&outcome, "gpu.launch_copy.bytes"), bytes);
    assert_eq!(bytes_read(&outcome)[0], bytes);
    assert_eq!(count(&outcome, "tier.gddr.bytes_written"), bytes);
    let bandwidth = bytes as f64 / count(&outcome, "gpu.launch_copy.time") as f64;
    assert!((0.9 * 80.0..=80.0).contains(&bandwidth), "{bandwidth} GB/s of 80");
    // The kernel waits for it.
    assert!(outcome.seconds_simulated * 1e9 > count(&outcome, "gpu.launch_copy.time") as f64);
    // Once: nothing is left to be copied before the second kernel.
    let twice = Kernels::new(&[("a", pages)]).kernel(0..8, 8).kernel(0..8, 8).finish();
    let outcome = twice.run(&bare("gpu-memcpy", &[]), Options::default());
    assert_eq!(count(&outcome, "gpu.launch_copy.bytes"), bytes);
    let outcome = program.run(&bare("gpu-ddr-only", &[]), Options::default());
    assert_eq!(bytes_read(&outcome), [0, bytes]);
}

/// The third machine has to have 190 kB under way: 379 GB/s for 0.5 us.
#[test]
fn a_copy_before_a_kernel_is_as_fast_as_memory_and_link_allow() {
    let program = Kernels::new(&[("a", 4096)]).kernel(0..1, 1).finish();
    for machine in ["gpu-gtx480", "gpu-hbm-pcie", "gpu-coherent"] {
        let design = Library::embedded().design("gpu-memcpy", Some(machine), &[]).unwrap().design;
        let outcome = program.run(&design, Options::default());
        let bytes = count(&outcome, "gpu.launch_copy.bytes");
        assert_eq!(bytes, 4096 * PAGE, "{machine}");
        let reached = bytes as f64 * 1e9 / count(&outcome, "gpu.launch_copy.time") as f64;
        let bound = bound(&design, 1);
        assert!(
            (0.85 * bound..=1.001 * bound).contains(&reached),
            "{machine}: {:.1} of {:.1} GB/s",
            reached / 1e9,
            bound / 1e9
        );
    }
}

#[test]
fn a_copy_without_room_says_how_much_it_left() {
    let program = Kernels::new(&[("a", 40)]).kernel(0..40 * LINES, 8).kernel(0..8, 8).finish();
    let run =
        |room: &str| program.run(&bare("gpu-memcpy", &[("tier.gddr.capacity", room)]), Options::default());
    let outcome = run("96 KiB");
    assert_eq!(count(&outcome, "gpu.launch_copy.bytes"), 24 * PAGE);
    let note = "24 of 40 pages were copied before kernels: gddr has no room for the others";
    assert!(outcome.notes.iter().any(|one| one.starts_with(note)), "{:?}", outcome.notes);
    assert!(!run("256 KiB").notes.iter().any(|one| one.contains("no room")));
}

#[test]
fn balancing_keeps_the_share_that_migration_alone_overshoots() {
    let pages = 1024;
    let lines = pages * LINES;
    let mut script = Kernels::new(&[("a", pages)]);
    // All lines, far from one another, so that at any time the memories serve what their shares of the pages say.
    for _ in 0..12 {
        script = script.kernel((0..lines).map(|at| at * 4099 % lines), 8);
    }
    let program = script.finish();
    let share = |name: &str, changes: &[(&str, &str)]| {
        let outcome = program.run(&bare(name, changes), Options::default());
        count(&outcome, "tier.gddr.pages") as f64 / pages as f64
    };
    let small = ("gpu.l2.capacity", "1 KiB");
    assert_eq!(share("gpu-migrate-th-re", &[small]), 1.0);
    let balanced = share("gpu-migrate-th-re-bwb", &[small]);
    assert!((0.55..0.9).contains(&balanced), "{balanced}");
    let half = share("gpu-migrate-th-re-bwb", &[small, ("os.policy.target", "0.4")]);
    assert!(half < balanced, "{half} {balanced}");
}

//! Published systems beside a GPU: annotated placement, and pages that move while kernels run.

use terrace_model::AddressRange;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, Outcome, simulate};
use terrace_trace::{
    AccessKind, Agent, Batch, BatchBuilder, Event, Header, MapKind, MarkKind, Protection, StreamId, VecSource,
};

const BASE: u64 = 0x2000_0000_0000;
const PAGE: u64 = 4096;

/// A program of kernels over structures of whole pages, which lie one after the other.
#[derive(Clone)]
struct Program {
    batches: Vec<Batch>,
}

/// Writes it.
struct Script {
    batches: Vec<Batch>,
    builder: BatchBuilder,
    sequence: u64,
}

impl Script {
    fn new(structures: &[(&str, u64)]) -> Script {
        let mut script = Script { batches: Vec::new(), builder: BatchBuilder::new(StreamId(0)), sequence: 0 };
        let agent = Agent::Gpu;
        script.event(Event::Spawn {
            process: 0,
            thread: 0,
            agent,
            forked_from: None,
            os_id: 1,
            name: "k".into(),
        });
        let pages: u64 = structures.iter().map(|(_, pages)| pages).sum();
        let range = AddressRange::new(BASE, pages * PAGE);
        let protection = Protection::READ_WRITE;
        script.event(Event::Map { range, kind: MapKind::Anonymous, protection, name: String::new() });
        let mut first = BASE;
        for (site, (name, pages)) in structures.iter().enumerate() {
            let site = site as u32;
            script.event(Event::Site { site, name: (*name).to_owned() });
            let range = AddressRange::new(first, pages * PAGE);
            script.event(Event::Alloc { object: site.into(), site, range });
            first += pages * PAGE;
        }
        script
    }

    fn event(&mut self, event: Event) {
        let sequence = if event.is_global() {
            self.sequence += 1;
            self.sequence
        } else {
            0
        };
        self.builder.event(sequence, event);
        if self.builder.is_full() {
            self.batches.push(self.builder.take(0));
        }
    }

    fn mark(&mut self, kind: MarkKind, value: u64) {
        self.event(Event::Mark { kind, name: String::new(), value });
    }

    /// A kernel in which groups of one warp load the lines given, 32 lanes of four bytes each.
    fn kernel(mut self, lines: impl IntoIterator<Item = u64>, loads: usize) -> Script {
        self.mark(MarkKind::KernelLaunch, 0);
        let lines: Vec<u64> = lines.into_iter().collect();
        for group in lines.chunks(loads) {
            self.mark(MarkKind::WorkGroup, 32);
            self.mark(MarkKind::Warp, 0);
            for line in group {
                for lane in 0..32 {
                    let addr = BASE + line * 128 + lane * 4;
                    self.builder.access(addr, 4, AccessKind::Read, 0, u64::from(lane == 0));
                }
                if self.builder.is_full() {
                    self.batches.push(self.builder.take(0));
                }
            }
        }
        self
    }

    fn finish(mut self) -> Program {
        self.batches.push(self.builder.take(0));
        Program { batches: self.batches }
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
    Script::new(&[("cold", 40), ("cached", 20), ("warm", 20)])
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
    let pages =
        |outcome: &Outcome| ["gddr", "ddr"].map(|tier| count(outcome, &format!("tier.{tier}.bytes_read")));
    let line = 128;
    assert_eq!(pages(&outcome), [(20 * LINES + 4 * LINES * 3) * line, (40 * LINES + 16 * LINES * 3) * line,]);
    assert_eq!(
        outcome.notes[1..3],
        ["hint BO, in the fast tier: cached, warm", "hint CO, in the slow tier: cold"]
    );
    // What reaches memory: the warm structure is the hottest.
    let memory = [&SMALL[..], &[("os.policy.count", "memory")]].concat();
    assert_eq!(
        pages(&program.run_twice(&design("gpu-annotated", &memory))),
        [(20 * LINES * 3 + 4 * LINES) * line, (40 * LINES + 16 * LINES) * line,]
    );
    // Room for 71.4 % of everything: all structures are drawn, whatever is hot.
    let wide = [("tier.gddr.capacity", "512 KiB"), ("os.reserved", "0 B"), ("os.page_table_tier", "ddr")];
    let outcome = program.run_twice(&design("gpu-annotated", &wide));
    assert_eq!(count(&outcome, "policy.own.hinted_both"), 80);
}

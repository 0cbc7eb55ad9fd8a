//! Whatever goes wrong, nothing is lost, doubled or left behind: policies at work on a kernel in memory in which every
//! call may fail, stop half way, or find its process ended.

mod chaos;
mod ended;
mod first_look;
mod orders;
mod pause;
#[path = "../simulated/mod.rs"]
mod simulated;
mod structures;

use proptest::prelude::*;
use simulated::{Page, Place, Plan, Simulated};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_live::access::AccessSource;
use terrace_live::access::damon::{self, Damon};
use terrace_live::engine::{Engine, Limits, LoopControl};
use terrace_live::facts::Facts;
use terrace_live::journal::Journal;
use terrace_live::kernel::Kernel;
use terrace_live::space::{Dirtiness, Mapping, Space};
use terrace_live::targets::{Selection, Targets};
use terrace_live::world::{self, World};
use terrace_model::{Bytes, PageSize, TierId, Time};
use terrace_policy::*;

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);
/// Beside what programs use, so much of a node is kept free: a sixty-fourth.
const KEPT: u64 = 64;

/// What is written to a log, line by line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn two_nodes(fast: u64, slow: u64, seed: u64) -> Simulated {
    Simulated::new("two-nodes-6.12", &[fast, slow], 0, seed)
}

fn with_swap(memory: u64, swap: u64, seed: u64) -> Simulated {
    Simulated::new("zram-user", &[memory], swap, seed)
}

fn world(kernel: &Simulated, limits: &[(&str, u64)]) -> World {
    let facts = Facts::discover(kernel);
    let limits = limits.iter().map(|(tier, pages)| ((*tier).to_owned(), Bytes(pages << 12))).collect();
    let options = world::Options { limits, workers: 2, ..world::Options::default() };
    World::new(Arc::new(kernel.clone()), facts.tiers.clone(), facts.capabilities(), &options).unwrap()
}

/// Two nodes with a process of `count` base pages on each; returns the first page of each half.
fn halves(capacity: [u64; 2], count: u64, limits: &[(&str, u64)]) -> (Simulated, World, PageId, PageId) {
    let kernel = two_nodes(capacity[0], capacity[1], 1);
    let (fast, slow) = {
        let mut machine = kernel.machine();
        let pid = machine.start(1);
        [0, 1]
            .map(|node| {
                let first = machine.map(pid, count);
                machine.fill(pid, first..first + count, PageSize::Base, node);
                first
            })
            .into()
    };
    let mut world = world(&kernel, limits);
    let pid = *kernel.machine().processes.keys().next().unwrap();
    let space = world.adopt(pid).unwrap();
    (kernel, world, PageId { space, vpn: fast }, PageId { space, vpn: slow })
}

fn work_off(world: &mut World) -> Vec<Outcome> {
    while world.step().is_some() {}
    outcomes(&world.take_signals())
}

fn outcomes(signals: &[Signal]) -> Vec<Outcome> {
    let done = |signal: &Signal| match signal {
        Signal::Done { outcome, .. } => Some(*outcome),
        _ => None,
    };
    signals.iter().filter_map(done).collect()
}

fn all_at_once() -> MoveOptions {
    MoveOptions { in_flight: None, ..MoveOptions::default() }
}

fn moves(from: PageId, count: u64, to: TierId) -> Vec<Move> {
    (0..count).map(|at| Move { page: from.plus(at), to }).collect()
}

/// What the world shows of every page is what the machine has, each once.
fn agrees(world: &mut World, kernel: &Simulated) {
    let spaces: BTreeMap<SpaceId, u32> = world.spaces().map(|space| (space.id, space.process.pid)).collect();
    let mut shown: BTreeMap<u32, Vec<(u64, PageSize, TierId)>> = BTreeMap::new();
    world.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
        shown.entry(spaces[&view.page.space]).or_default().push((view.page.vpn, view.size, view.tier));
        Step::Keep
    });
    let machine = kernel.machine();
    let tier = |page: &Page| match page.place {
        Place::Node(node) => TierId(node as u8),
        Place::Swap => SLOW,
    };
    let mut expected: BTreeMap<u32, Vec<(u64, PageSize, TierId)>> = BTreeMap::new();
    for (pid, program) in &machine.processes {
        let pages = program.pages.iter().map(|(vpn, page)| (*vpn, page.size, tier(page))).collect();
        let space = world.spaces().find(|space| space.process.pid == *pid);
        let swap = world.topology().find("compressed").is_some();
        expected.insert(*pid, if swap { clustered(space, pages) } else { pages });
    }
    for (pid, there) in &expected {
        let shown = shown.remove(pid).unwrap_or_default();
        if shown != *there {
            let wrong = shown.iter().find(|page| !there.contains(page));
            let missing = there.iter().find(|page| !shown.contains(page));
            panic!("process {pid}: shown but not there {wrong:?}, there but not shown {missing:?}");
        }
    }
    assert!(shown.is_empty(), "pages of processes that are no more: {shown:?}");
    for space in world.spaces() {
        let there = &expected[&space.process.pid];
        for (at, count) in space.resident.iter().enumerate() {
            let of = |page: &&(u64, PageSize, TierId)| page.2.index() == at;
            let pages = there.iter().filter(of).map(|page| page.1.base_pages());
            assert_eq!(*count, pages.sum::<u64>(), "tier {at}");
        }
    }
}

/// Pages as they are shown where swap is a tier: what lies wholly inside a mapping and was not split counts as one by 2 MiB,
/// and lies where most of it does.
fn clustered(space: Option<&Space>, pages: Vec<(u64, PageSize, TierId)>) -> Vec<(u64, PageSize, TierId)> {
    let Some(space) = space else { return pages };
    let is_cluster = |chunk: u64| {
        let inside = |mapping: &Mapping| mapping.first <= chunk * 512 && (chunk + 1) * 512 <= mapping.end;
        space.mappings.iter().any(inside) && !space.split.contains(&chunk)
    };
    let mut counts: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    let mut shown = Vec::new();
    for (vpn, size, tier) in pages {
        if is_cluster(vpn / 512) {
            counts.entry(vpn / 512).or_default()[tier.index()] += size.base_pages();
        } else {
            // Whatever the kernel makes of it.
            shown.extend((0..size.base_pages()).map(|part| (vpn + part, PageSize::Base, tier)));
        }
    }
    let place = |[present, swapped]: [u64; 2]| if swapped > present { SLOW } else { TierId(0) };
    shown.extend(counts.into_iter().map(|(chunk, counts)| (chunk * 512, PageSize::Huge, place(counts))));
    shown.sort_unstable_by_key(|page| page.0);
    shown
}

/// Follows all processes there are, with nothing going wrong, and looks whether all is known rightly.
fn settle(world: &mut World, kernel: &Simulated) {
    kernel.plan(Plan::default());
    world.refresh();
    let pids: Vec<u32> = kernel.machine().processes.keys().copied().collect();
    for pid in pids {
        if !world.has(pid) {
            world.adopt(pid).unwrap();
        }
    }
    agrees(world, kernel);
}

// --- Worked examples ---

//! The throughput of migrations alone: no program runs, pages go from the second tier to the first.

use super::Tiering;
use super::world::World;
use crate::design::{Design, KernelCosts};
use crate::machine::Machine;
use crate::machine::{FULL, System};
use crate::outcome::Options;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_model::{AddressRange, Bytes, BytesPerSec, Cycles, PageSize, Stats, TierId, Time, Unit};
use terrace_policy::{
    Exchange, HugePages, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageId, Policy, Signal,
    Wish,
};
use terrace_trace::{MapKind, Protection};

/// One way of moving pages, and how fast it is.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationRow {
    /// What moves, and how.
    pub name: String,
    /// Pages of the list; of an exchange, pairs.
    pub pages: u64,
    /// The pages' size.
    pub size: PageSize,
    /// Threads that share the copy.
    pub threads: u16,
    /// Pages between unmap and map at once; none for the whole list.
    pub in_flight: Option<u32>,
    /// What becomes of huge pages on the way.
    pub huge: HugePages,
    /// Pairs change places.
    pub exchange: bool,
    /// The kernel and its calls take no time, and the threads run already.
    pub copy_alone: bool,
    /// Bytes moved, both ways of an exchange counted, by the time from the call to the last page mapped.
    pub throughput: BytesPerSec,
}

/// Moves lists of pages from the second tier of a design's machine to the first, by each mechanism that Nimble
/// (Yan 2019, section 3.4) compares. `None` where `stop` was set from outside.
///
/// # Errors
/// A machine with one tier, or with too little memory for the lists.
pub fn migration_benchmark(
    design: &Design,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<Option<Vec<MigrationRow>>, String> {
    let (base, huge) = (PageSize::Base, PageSize::Huge);
    let mut rows = vec![
        row("one base page", 1, base, 1, Some(1), false),
        row("base pages", 512, base, 1, Some(1), false),
        row("base pages, concurrent", 512, base, 4, None, false),
        row("base pages, concurrent exchange", 512, base, 4, None, true),
        MigrationRow {
            huge: HugePages::SplitFirst,
            ..row("huge page, split first", 1, huge, 1, Some(1), false)
        },
        row("one huge page", 1, huge, 1, Some(1), false),
        row("huge pages", 64, huge, 1, Some(1), false),
    ];
    for threads in [2, 4, 8, 16] {
        rows.push(row("huge pages, parallel", 64, huge, threads, Some(1), false));
    }
    for threads in [4, 8, 16] {
        rows.push(row("huge pages, parallel and concurrent", 64, huge, threads, Some(8), false));
    }
    for threads in [4, 8, 16] {
        rows.push(row("huge pages, parallel and concurrent exchange", 64, huge, threads, Some(8), true));
    }
    rows.extend(sweep());
    for row in &mut rows {
        let options = Options { stop: stop.cloned(), ..Options::default() };
        let Some(throughput) = measure(design, row, &options)? else { return Ok(None) };
        row.throughput = throughput;
    }
    Ok(Some(rows))
}

/// By the length of the list (Yan 2019, figures 3.3 and 3.9 to 3.11): single and several threads, all pages in flight at
/// once, exchange, and the copy alone.
fn sweep() -> Vec<MigrationRow> {
    let mut rows = Vec::new();
    for (size, what, longest) in [(PageSize::Base, "base pages", 512), (PageSize::Huge, "huge pages", 64)] {
        for pages in [1, 8, 64, 512] {
            // What throughput is reached with 64 huge pages one after the other, is reached with 512.
            if pages <= longest {
                rows.push(row(&format!("{what}, list of {pages}"), pages, size, 1, Some(1), false));
                rows.push(row(&format!("{what}, parallel, list of {pages}"), pages, size, 4, Some(1), false));
            }
            rows.push(row(&format!("{what}, concurrent, list of {pages}"), pages, size, 4, None, false));
            rows.push(row(&format!("{what}, exchange, list of {pages}"), pages, size, 4, None, true));
        }
    }
    for threads in [2, 8, 16] {
        rows.push(row("base pages, parallel, list of 512", 512, PageSize::Base, threads, Some(1), false));
        rows.push(row("huge pages, parallel, list of 1", 1, PageSize::Huge, threads, Some(1), false));
    }
    for pages in [1, 8, 64] {
        for threads in [1, 2, 4, 8, 16] {
            let name = format!("copy alone, list of {pages}");
            let copy = row(&name, pages, PageSize::Huge, threads, None, false);
            rows.push(MigrationRow { copy_alone: true, ..copy });
        }
    }
    rows
}

impl MigrationRow {
    /// The rows as statistics, `migration.<what moves>.t<threads>`.
    pub fn stats(rows: &[MigrationRow]) -> Stats {
        let mut stats = Stats::new();
        for row in rows {
            let name = row.name.replace(", ", "_").replace(' ', "_");
            let name = format!("migration.{name}.t{}", row.threads);
            stats.real(name, row.throughput.0, Unit::BytesPerSecond);
        }
        stats
    }
}

fn row(
    name: &str,
    pages: u64,
    size: PageSize,
    threads: u16,
    in_flight: Option<u32>,
    exchange: bool,
) -> MigrationRow {
    let throughput = BytesPerSec(0.0);
    MigrationRow {
        name: name.to_owned(),
        pages,
        size,
        threads,
        in_flight,
        huge: HugePages::Whole,
        exchange,
        copy_alone: false,
        throughput,
    }
}

/// A kernel that takes no time.
const NO_COSTS: KernelCosts = KernelCosts {
    scan_entry: Time::ZERO,
    hint_fault: Time::ZERO,
    count_fault: Time::ZERO,
    sample: Time::ZERO,
    shootdown: Time::ZERO,
    shootdown_per_core: Time::ZERO,
    interrupt: Time::ZERO,
    flush: Time::ZERO,
    order: Time::ZERO,
    allocate: Time::ZERO,
    unmap: Time::ZERO,
    map: Time::ZERO,
    free: Time::ZERO,
    copy_thread: Time::ZERO,
    copy_line: Cycles(0.0),
    split: Time::ZERO,
    collapse: Time::ZERO,
};

/// A policy that lets everything be.
struct Quiet;

impl Policy for Quiet {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

/// The throughput of one row; `None` where the options' flag asks to stop.
fn measure(design: &Design, row: &MigrationRow, options: &Options) -> Result<Option<BytesPerSec>, String> {
    let is_stopped = || options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    let mut machine = Machine::new(design, options)?;
    if is_stopped() {
        // What has aged in part has no room where the pages want to be.
        return Ok(None);
    }
    let mut tiering = Tiering::new(
        |_| Ok(Box::new(Quiet)),
        1,
        (System::Programs, 0),
        design,
        &mut machine.shared,
        options,
    )?;
    if row.copy_alone {
        tiering.state.costs = KernelCosts { copy_line: design.os.costs.copy_line, ..NO_COSTS };
    }
    if tiering.state.topology.tiers.len() < 2 {
        let guest = if design.vm.is_some() {
            ", and guests of this design see one: take the machine alone (--machine)"
        } else {
            ""
        };
        return Err(format!("tier: moving pages takes two tiers{guest}"));
    }
    let failed = |problem: crate::os::OsError| problem.to_string();
    let os = &mut machine.shared.os;
    let space = os.new_space().map_err(failed)?;
    let bytes = row.size.bytes();
    let lists = if row.exchange { 2 } else { 1 };
    let begin = 1 << 40;
    let range = AddressRange::new(begin, bytes * row.pages * lists);
    os.map(space, range, MapKind::Anonymous, Protection::READ_WRITE).map_err(failed)?;
    for page in 0..row.pages * lists {
        let tier = TierId(u8::from(page < row.pages));
        let wish = Wish { tier, size: Some(row.size) };
        let fault = os.fault(space, range.start + page * bytes, &[wish]).map_err(failed)?;
        if os.tier_of(fault.frame) != tier || fault.size != row.size {
            return Err(too_small(design, tier, row));
        }
    }
    let how = MoveOptions {
        huge: row.huge,
        threads: row.threads,
        in_flight: row.in_flight.and_then(NonZeroU32::new),
        ..MoveOptions::default()
    };
    let name = |nth: u64| PageId::of(space, range.start + nth * bytes);
    // One core runs the process: it may hold its translations.
    machine.shared.running[0] = Some(space);
    let (began, now) = (Time::ZERO, Time::ZERO);
    let mut world = World { machine: &mut machine, state: &mut tiering.state, began, now };
    if row.exchange {
        let pairs: Vec<Exchange> =
            (0..row.pages).map(|at| Exchange { one: name(at), other: name(row.pages + at) }).collect();
        world.exchange(&pairs, how);
    } else {
        let moves: Vec<Move> = (0..row.pages).map(|at| Move { page: name(at), to: TierId(0) }).collect();
        world.migrate(&moves, how);
    }
    let mut end = Time::ZERO;
    while let Some(next) = tiering.next_order() {
        if is_stopped() {
            return Ok(None);
        }
        end = end.max(next);
        tiering.act::<FULL>(&mut machine, next);
    }
    let moved = tiering.state.counters.promoted + tiering.state.counters.demoted;
    let expected = row.pages * row.size.base_pages() * lists;
    if moved != expected {
        return Err(too_small(design, TierId(0), row));
    }
    Ok(Some(BytesPerSec((expected * PageSize::Base.bytes()) as f64 / end.as_secs())))
}

/// What is said where a tier has no room for the pages of a row.
fn too_small(design: &Design, tier: TierId, row: &MigrationRow) -> String {
    let (tier, needed) = (&design.tiers[tier.index()], row.size.bytes() * row.pages);
    format!(
        "tier.{0}.capacity: {1}, less what is reserved (os.reserved), has no room for the {2} of \"{3}\"; give it more, as \
         with --set tier.{0}.capacity=\"{4}\"",
        tier.name,
        tier.capacity,
        Bytes(needed),
        row.name,
        Bytes(tier.capacity.0 + needed)
    )
}

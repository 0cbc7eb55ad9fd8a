//! Hints for allocation sites: `TERRACE_HINTS` names a file of hints, and the program's data structures are placed by it.
//!
//! The file is what `terrace profile` writes and `terrace run --hints` takes. The policy `annotated` decides, in the source
//! that the simulator runs, by sizes, counts and the room in the fast tier: what is free there now, or what
//! `TERRACE_HINTS_FAST` says. Objects are placed as in `terrace run --hints` (`terrace_placing`), and all other memory of
//! the program is interleaved over both tiers. No right is needed.
//!
//! Where hints help without nodes, they are taken too: what is hot is joined into huge pages although half of it is missing,
//! and what is cold is marked for the kernel to take first when memory is short (`MADV_COLD`), and goes to swap where there
//! is some (`MADV_PAGEOUT`).

use crate::{children, log, variable};
use std::collections::BTreeMap;
use std::ffi::{OsStr, c_int};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use terrace_arena::memory::{self, Hint};
use terrace_arena::pages::PageTable;
use terrace_arena::system;
use terrace_arena::tiers::Tiers;
use terrace_arena::{BASE, HUGE};
use terrace_hints::Hints;
use terrace_model::{Bytes, PageSize};
use terrace_placement::{INTERLEAVED, Module, Row, Table, Text, Wanted, Wish};
use terrace_policy::policies::annotated::{Annotated, Parameters};
use terrace_policy::{
    Capabilities, Capability, CapabilitySet, HintedPages, Policy, Published, Setup, site_number,
};

/// Whether memory was short at the look before.
static WAS_SHORT: AtomicBool = AtomicBool::new(false);

/// Bytes of the cold that the kernel took to swap.
static COLD: AtomicU64 = AtomicU64::new(0);

/// Pieces of 2 MiB of the hot that were joined.
static JOINED_HOT: AtomicU64 = AtomicU64::new(0);

/// Candidates that looks before have tried in vain, so that they do not keep the others waiting.
static PASSED: AtomicUsize = AtomicUsize::new(0);

/// Ranges of 2 MiB that are tried to be joined per look, at most.
const PER_LOOK: usize = 64;
/// Base pages of 2 MiB that have to be there: half.
const PRESENT: usize = HUGE / BASE / 2;

/// Sites that the last lines name.
const FEW: usize = 6;

static GIVEN: AtomicBool = AtomicBool::new(false);

/// Whether objects are placed.
#[inline(always)]
pub fn are_given() -> bool {
    GIVEN.load(Relaxed)
}

/// Takes the hints that the environment names. What is wrong with them is said whatever `TERRACE_ARENA` is: somebody has
/// asked for them.
pub fn begin() {
    let Some(path) = variable(c"TERRACE_HINTS").filter(|path| !path.is_empty()) else { return };
    let read = Hints::read(Path::new(OsStr::from_bytes(path)));
    let table = read.map_err(|wrong| wrong.to_string()).and_then(|hints| {
        if !terrace_interpose::is_allocator() {
            return Err("the program has an allocator of its own".to_owned());
        }
        table(&hints)
    });
    match table {
        Ok(table) => {
            terrace_placing::begin(table);
            GIVEN.store(true, Relaxed);
        }
        Err(why) => log::always(format_args!("hints: {why}; nothing is placed by them")),
    }
}

/// The table of a file, for this machine.
fn table(hints: &Hints) -> Result<Table, String> {
    let tiers = Tiers::discover();
    let wanted = decide(hints, &tiers)?;
    // A machine with one tier places nothing.
    let nodes = |at: usize| if tiers.nodes.len() > 1 { tiers.nodes[at].as_slice() } else { &[] };
    let row = |site: &terrace_hints::Site| {
        let place = site.place.as_ref()?;
        let wanted = match *wanted.get(&site_number(&site.name))? {
            HintedPages::Fast(pages) => Wanted::Fast(pages),
            HintedPages::Slow => Wanted::Slow,
            HintedPages::Both => Wanted::Both,
        };
        let module = Module { name: Text::of(place.module.as_bytes()), build_id: Text::of(&place.build_id) };
        Some(Row::wanting(module, place.offset, wanted, nodes(0), nodes(1)))
    };
    let rows: Vec<Row> = hints.sites.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Err("no site says where its call is (module and offset)".to_owned());
    }
    // SAFETY: The name ends with a zero; a new descriptor comes back, which the file owns.
    let file = unsafe {
        let number = libc::memfd_create(c"terrace-hints".as_ptr(), libc::MFD_CLOEXEC);
        if number < 0 {
            return Err("there is no memory for the table".to_owned());
        }
        File::from_raw_fd(number)
    };
    let table = Table::create(&file, &rows).map_err(|error| error.to_string())?;
    if tiers.nodes.len() > 1 {
        interleave(&tiers.nodes[..2].concat());
        log::line(format_args!(
            "hints: {} sites; fast nodes {:?}, slow nodes {:?}",
            rows.len(),
            tiers.nodes[0],
            tiers.nodes[1]
        ));
    } else {
        log::line(format_args!(
            "hints: {} sites; the machine has one tier of memory, so no node is asked for",
            rows.len()
        ));
    }
    Ok(table)
}

/// What the policy makes of the file. Where there is one tier, the second is what the kernel has given up.
fn decide(hints: &Hints, tiers: &Tiers) -> Result<BTreeMap<u64, HintedPages>, String> {
    let mut topology = tiers.topology.clone();
    let fast = topology.tiers.first_mut().ok_or("the kernel shows no node")?;
    fast.capacity = match variable(c"TERRACE_HINTS_FAST") {
        None => fast.free(),
        Some(text) => String::from_utf8_lossy(text)
            .parse::<Bytes>()
            .map_err(|problem| format!("TERRACE_HINTS_FAST: {problem}"))?,
    };
    fast.used = Bytes(0);
    if topology.tiers.len() == 1 {
        let given_up = topology.tiers[0].clone();
        topology.tiers.push(given_up);
    }
    let capabilities = Capabilities::new(CapabilitySet::of(&[Capability::Objects]), PageSize::Huge);
    let profile = hints.profile();
    let setup = Setup { topology: &topology, capabilities: &capabilities, seed: 0, profile: Some(&profile) };
    let parameters = Parameters { fast_share: Some(tiers.fast_share()), ..Parameters::default() };
    let policy = Annotated::new(parameters, setup).map_err(|refusal| refusal.to_string())?;
    Ok(policy.hints())
}

/// All memory that has no hint lies on these nodes in turn, unless the program is started under a policy of its own.
fn interleave(nodes: &[u32]) {
    let mask = Wish::new(INTERLEAVED, nodes);
    let mut present: c_int = 0;
    // SAFETY: One number is written; the mask has as many bits as the call states, less one as the kernel counts.
    unsafe {
        let none = std::ptr::null_mut::<u64>();
        let asked = libc::syscall(libc::SYS_get_mempolicy, &raw mut present, none, 0usize, 0usize, 0usize);
        if asked != 0 || present != 0 {
            return;
        }
        let bits = mask.nodes.len() * 64 + 1;
        for mode in mask.modes {
            if libc::syscall(libc::SYS_set_mempolicy, mode, mask.nodes.as_ptr(), bits) == 0 {
                children::keep_from_children(mode, mask);
                return;
            }
        }
    }
}

/// What the helper does for hinted objects at each look. `table`: the process's page table. `is_short`: memory is.
pub fn look(table: &PageTable, is_short: bool) {
    if !are_given() {
        return;
    }
    let (mut left, mut candidates, mut failed) = (PER_LOOK, 0, 0);
    let passed = PASSED.load(Relaxed);
    // Once when memory becomes short: what comes back after that is in use.
    let was_short = WAS_SHORT.swap(is_short, Relaxed);
    let gives_up = is_short && !was_short;
    terrace_placing::each(&mut |row, pages| {
        let bytes = pages.len();
        if gives_up && row.is_cold() {
            // SAFETY: Neither changes a byte, whoever has the range by now.
            let taken = unsafe {
                memory::hint(pages.start as *mut u8, bytes, Hint::Cold).is_ok()
                    && has_swap()
                    && memory::hint(pages.start as *mut u8, bytes, Hint::PageOut).is_ok()
            };
            COLD.fetch_add(if taken { bytes as u64 } else { 0 }, Relaxed);
        }
        if !is_short && row.is_hot() {
            let mut at = pages.start.next_multiple_of(HUGE);
            while left > 0 && at + HUGE <= pages.end {
                if is_worth_joining(table, at) {
                    candidates += 1;
                    // One that fails has cost the kernel a search, too.
                    if candidates > passed {
                        left -= 1;
                        let joined = system::collapse(at, HUGE).is_ok();
                        JOINED_HOT.fetch_add(u64::from(joined), Relaxed);
                        failed += usize::from(!joined);
                    }
                }
                at += HUGE;
            }
        }
    });
    PASSED.store(if left == 0 { passed + failed } else { 0 }, Relaxed);
}

/// Whether at least half of 2 MiB is there, in base pages that no forked child has too.
fn is_worth_joining(table: &PageTable, start: usize) -> bool {
    let (mut present, mut huge) = (0, false);
    table.runs(start..start + HUGE, &mut |run, is_huge| {
        present += run.len() / BASE;
        huge |= is_huge;
    });
    !huge && present >= PRESENT && table.is_own(start)
}

fn has_swap() -> bool {
    let mut text = [0u8; 2048];
    let count = system::File::open(c"/proc/meminfo").map_or(0, |file| file.read_at(&mut text, 0));
    system::line_of(&text[..count], "SwapFree:").unwrap_or(0) > 0
}

/// The last lines about hints.
pub fn summary() {
    if let Some([met, sites, objects, fast, others, left]) = outcome() {
        let [cold, hot] = [&COLD, &JOINED_HOT].map(|count| count.load(Relaxed));
        log::line(format_args!(
            "hints: {met} of {sites} sites met, {objects} objects placed, {} MiB hot, {} MiB others; {left} objects left \
             alone; {} MiB of the hot joined, {} MiB of the cold to swap",
            fast >> 8,
            others >> 8,
            hot * 2,
            cold >> 20
        ));
        if met == 0 {
            each_other(&mut |module, offset, bytes| {
                log::line(format_args!(
                    "hints: {module}+{offset:#x} allocated {bytes} bytes and has no hint"
                ));
            });
        }
    }
}

/// What came of them: sites met, all sites, objects, pages that were asked for in the fast tier and
/// elsewhere, objects that were not placed.
fn outcome() -> Option<[u64; 6]> {
    let rows = terrace_placing::table()?.rows();
    let mut sums = [0, rows.len() as u64, 0, 0, 0, 0];
    for row in rows {
        let [objects, refused] = [&row.objects, &row.refused].map(|count| count.load(Relaxed));
        sums[0] += u64::from(objects + refused > 0);
        sums[2] += objects;
        sums[3] += row.pages[0].load(Relaxed);
        sums[4] += row.pages[1].load(Relaxed);
        sums[5] += refused;
    }
    Some(sums)
}

/// Sites without a hint from which something large came: a few, the largest first.
fn each_other(visit: &mut dyn FnMut(&str, u64, u64)) {
    if let Some(table) = terrace_placing::table() {
        table
            .head()
            .others()
            .iter()
            .take(FEW)
            .for_each(|other| visit(&other.module, other.offset, other.bytes));
    }
}

//! The page-out probe on a kernel in memory: what it says of pages that it cannot see, and how many pages are sampled where
//! processor time is bounded.

mod simulated;

use simulated::{Place, Simulated};
use std::sync::Arc;
use std::time::Duration;
use terrace_live::access::AccessSource;
use terrace_live::access::page_out::PageOut;
use terrace_live::engine::{Engine, Limits, LoopControl};
use terrace_live::facts::Facts;
use terrace_live::kernel::Kernel;
use terrace_live::targets::{Selection, Targets};
use terrace_live::world::{Options, World};
use terrace_model::PageSize;
use terrace_policy::*;

const HUGE: u64 = 512;

/// A machine with compressed swap, and a program with so many huge pages of memory; returns its first page.
fn machine(huge: u64, size: PageSize) -> (Simulated, u32, u64) {
    let kernel = Simulated::new("zram-user", &[100_000], 100_000, 1);
    let (pid, first) = {
        let mut machine = kernel.machine();
        machine.files.set("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001fffeffffff\n");
        let pid = machine.start(1);
        let first = machine.map(pid, huge * HUGE);
        machine.fill(pid, first..first + huge * HUGE, size, 0);
        (pid, first)
    };
    (kernel, pid, first)
}

fn world(kernel: &Simulated) -> World {
    let facts = Facts::discover(kernel);
    let shared: Arc<dyn Kernel> = Arc::new(kernel.clone());
    World::new(shared, facts.tiers.clone(), facts.capabilities(), &Options::default()).unwrap()
}

/// Looks once, so much later; returns the counts of base pages in order.
fn look(kernel: &Simulated, world: &mut World, probe: &mut PageOut) -> Vec<(u64, bool)> {
    kernel.pass(Duration::from_millis(250));
    world.set_now(Moment(kernel.now().as_nanos() as u64));
    probe.collect(world).unwrap();
    let mut counts = Vec::new();
    world.counts(&mut |count| counts.push((count.accesses, count.saturated)));
    counts
}

const UNKNOWN: (u64, bool) = (0, true);
const IDLE: (u64, bool) = (0, false);
/// In each of the intervals, of which there was one.
const USED: (u64, bool) = (1, true);

#[test]
fn what_the_probe_cannot_see_is_unknown_and_not_idle() {
    let (kernel, pid, first) = machine(1, PageSize::Base);
    for vpn in first..first + 4 {
        kernel.machine().page_mut(pid, vpn).unwrap().1.shared = true;
    }
    let mut world = world(&kernel);
    let space = world.adopt(pid).unwrap();
    world.resize(&[Resize { page: PageId { space, vpn: first }, to: PageSize::Base }]);
    while world.step().is_some() {}
    let watched: Vec<PageId> = (first..first + 8).map(|vpn| PageId { space, vpn }).collect();
    world.watch(&watched, Watch::Count);
    let mut probe = PageOut::new(Arc::new(kernel.clone()), &[0]);
    assert_eq!(look(&kernel, &mut world, &mut probe), [UNKNOWN; 8], "none was out in the first interval");
    // The kernel in memory passes over one page in ten without a word.
    while look(&kernel, &mut world, &mut probe)[4..] != [IDLE; 4] {}
    let before = world.counters().stayed;
    let counts = look(&kernel, &mut world, &mut probe);
    assert_eq!((&counts[..4], &counts[4..]), (&[UNKNOWN; 4][..], &[IDLE; 4][..]));
    assert_eq!(world.counters().stayed - before, 4);

    // An access; and the kernel brings the next two back, as parts of a huge page or with a page that was accessed.
    kernel.machine().touch(pid, first + 4);
    let counts = look(&kernel, &mut world, &mut probe);
    assert_eq!((counts[4], counts[5]), (USED, IDLE));
    while look(&kernel, &mut world, &mut probe)[4..] != [IDLE; 4] {}
    {
        let mut machine = kernel.machine();
        let pages = &mut machine.processes.get_mut(&pid).unwrap().pages;
        pages.retain(|vpn, _| *vpn < first || *vpn >= first + HUGE);
        machine.fill(pid, first..first + HUGE, PageSize::Huge, 0);
    }
    assert_eq!(look(&kernel, &mut world, &mut probe)[4..], [UNKNOWN; 4], "back as a huge page");
}

#[test]
fn an_access_between_sending_out_and_looking_is_not_counted_twice() {
    let (kernel, pid, first) = machine(1, PageSize::Base);
    let mut world = world(&kernel);
    let space = world.adopt(pid).unwrap();
    world.resize(&[Resize { page: PageId { space, vpn: first }, to: PageSize::Base }]);
    while world.step().is_some() {}
    world.watch(&[PageId { space, vpn: first }], Watch::Count);
    let mut probe = PageOut::new(Arc::new(kernel.clone()), &[0]);
    while look(&kernel, &mut world, &mut probe) != [IDLE] {}
    kernel.machine().touch(pid, first);
    assert_eq!(look(&kernel, &mut world, &mut probe), [USED]);
    // The page's fault was reported before the page was sent out again, or the page stayed in memory.
    let next = look(&kernel, &mut world, &mut probe);
    assert!(next == [IDLE] || next == [UNKNOWN], "{next:?}");
    // Gone again by itself, as under reclaim, the page shows its access by the fault alone.
    while look(&kernel, &mut world, &mut probe) != [IDLE] {}
    kernel.machine().touch(pid, first);
    kernel.machine().page_mut(pid, first).unwrap().1.place = Place::Swap;
    assert_eq!(look(&kernel, &mut world, &mut probe), [USED]);
}

/// Runs Thermostat for some time on 64 huge pages of which the first is in use; returns what it says of itself.
fn thermostat(cpu: f64, advice: Duration) -> (u64, u64, Vec<String>) {
    let (kernel, pid, first) = machine(64, PageSize::Huge);
    kernel.machine().advice_cost = advice;
    let mut world = world(&kernel);
    let mut parameters = toml::Table::new();
    for (key, value) in [("prefilter", "false"), ("interval", "1 s"), ("slow_latency", "10 us")] {
        registry::set(&mut parameters, key, value);
    }
    let setup =
        Setup { topology: world.topology(), capabilities: world.capabilities(), seed: 1, profile: None };
    let policy = registry::find("thermostat").unwrap().open(&parameters, setup).unwrap();
    world.may_use(cpu, None);
    let source = Box::new(PageOut::new(Arc::new(kernel.clone()), &[0]));
    let targets = Targets::new(Selection::Trees(vec![pid]), std::process::id());
    // The engine's own bound is looser, so that it never rests.
    let limits = Limits { cpu: f64::INFINITY, bandwidth: None, pressure: None };
    let mut engine =
        Engine::new(world, policy, targets, Some(source), limits, "/proc/pressure/memory".into());
    let end = kernel.now() + Duration::from_secs(20);
    while kernel.now() < end {
        let LoopControl::Sleep(rest) = engine.turn() else { panic!("the target runs") };
        kernel.pass(rest.max(Duration::from_millis(5)));
        (first..first + 4).for_each(|vpn| _ = kernel.machine().touch(pid, vpn));
    }
    let (stats, notes) = engine.statistics();
    (stats.integer("policy.own.sampled"), stats.integer("policy.own.curbed_rounds"), notes)
}

#[test]
fn as_many_pages_are_sampled_as_the_processor_time_allows() {
    let cheap = Duration::from_micros(1);
    let (unbounded, curbed, _) = thermostat(f64::INFINITY, cheap);
    // A twentieth of what is left in fast memory, every second.
    assert!(unbounded > 30 && curbed == 0, "{unbounded}");
    let (some, curbed, notes) = thermostat(0.03, cheap);
    assert!(some > 5 && some < unbounded && curbed > 0, "{some} of {unbounded}");
    assert!(notes.iter().any(|note| note.contains("fewer huge pages were sampled")), "{notes:?}");
    let (fewer, ..) = thermostat(0.01, cheap);
    assert!(fewer < some, "{fewer} with a third of the time, {some} with all of it");
    let (dear, ..) = thermostat(0.03, Duration::from_micros(300));
    assert!(dear < some, "{dear} where sending a page out takes 300 us, {some} where it takes 1 us");
}

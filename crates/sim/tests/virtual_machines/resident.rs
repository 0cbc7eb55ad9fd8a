//! Memory that a program had before its input began: the guest's and the machine's.

use crate::support::*;
use terrace_model::{Bytes, PageSize};
use terrace_sim::design::{Design, HostParameters, VmParameters};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{Event, MarkKind};

/// Pages that the program had, from [`DATA`] on: more than a policy gets signals of at a time.
const PAGES: u64 = 2048;

/// A program that had its pages before, and reads some in its region, from the middle on.
fn had_before(touched: u64) -> Program {
    // What the hypervisor's policy does about them is done meanwhile.
    let computes = Event::Compute { instructions: 100_000_000 };
    let mut program = Program::new();
    program.map(DATA, PAGES * PAGE);
    program.event(Event::Resident { start: DATA, bitmap: vec![u64::MAX; PAGES as usize / 64] });
    program.event(computes.clone()).mark(MarkKind::RegionBegin);
    for page in 0..touched {
        program.read(DATA + (PAGES / 2 + page) % PAGES * PAGE);
    }
    program.event(computes);
    program
}

/// Base pages that the guest's operating system, or the hypervisor, has mapped.
fn mapped(outcome: &Outcome, by: &str) -> u64 {
    PageSize::ALL.into_iter().map(|size| count(outcome, &format!("{by}.resident_bytes.{size}")) / PAGE).sum()
}

#[test]
fn the_host_has_what_the_guest_had_before() {
    for guest in [PageSize::Base, PageSize::Huge] {
        for host in [PageSize::Base, PageSize::Huge] {
            let mut design = with_pages(small(), only(guest));
            design.os.reserved = Bytes(0);
            design.vm = Some(VmParameters { memory: Some(Bytes::mib(512)), ..VmParameters::default() });
            design.host = Some(HostParameters { pages: only(host), ..HostParameters::default() });
            for touched in [0, 8, PAGES] {
                let what = format!("{guest} on {host}, {touched} touched");
                let mut source = had_before(touched);
                let outcome = source.run_whole(&design, Fidelity::Full);
                // The guest was left for none of it, and no fault was taken.
                let faults =
                    ["host.ept_violations", "host.vm_exit_cycles", "os.faults", "host.page_table_stores"];
                assert_eq!(counts(&outcome, faults), [0; 4], "{what}");
                let tables = count(&outcome, "os.page_table_pages");
                let pages = mapped(&outcome, "os");
                match host {
                    PageSize::Base => assert_eq!(mapped(&outcome, "host"), pages + tables, "{what}"),
                    _ => assert!(mapped(&outcome, "host") >= pages + tables, "{what}"),
                }
                // The machine's tier holds that and the host's tables.
                let all = mapped(&outcome, "host") + count(&outcome, "host.page_table_pages");
                assert_eq!(count(&outcome, "tier.dram.pages"), all, "{what}");
                // A page that the program had not is found at its first touch, as ever.
                source.map(DATA + GIB, PAGE).read(DATA + GIB);
                let more = source.run_whole(&design, Fidelity::Full);
                assert!(count(&more, "os.faults") == 1, "{what}");
            }
        }
    }
}

/// HATRIC's virtual machine with less die-stacked memory than the program had.
fn tight(name: &str) -> Design {
    let keys = [
        ("os.reserved", "0 MiB"),
        ("tier.0.capacity", "1 MiB"),
        ("tier.1.capacity", "64 MiB"),
        ("vm.memory", "32 MiB"),
    ];
    let policy = [("host.policy.free_pool", "64 KiB"), ("host.policy.prefetch", "0")];
    let policy = if name == "virtual-hatric-no-hbm" { &policy[..0] } else { &policy[..] };
    design(name, "haswell-32", &[&keys[..], policy].concat())
}

#[test]
fn the_hosts_policy_pages_in_what_the_guest_had_before() {
    for fast_forward in [false, true] {
        let run = |name: &str, touched: u64| {
            let options = Options { fast_forward, whole: false, ..Options::default() };
            run_with(&tight(name), &mut had_before(touched).source(), options).unwrap()
        };
        let stacked = |outcome: &Outcome| count(outcome, "tier.stacked.pages");
        // Die-stacked memory is full, or as full as the daemon leaves it, and the rest lies off-chip.
        let idle = run("virtual-hatric-sw", 0);
        let tables = count(&idle, "host.page_table_pages") + count(&idle, "os.page_table_pages");
        let (fast, slow) = (stacked(&idle), count(&idle, "tier.dram.pages"));
        assert!((200..=256).contains(&fast), "{fast}");
        assert_eq!(fast + slow, PAGES + tables);
        assert_eq!(mapped(&idle, "host"), PAGES + count(&idle, "os.page_table_pages"));
        // What lies off-chip faults when it is touched, and comes: the pages, and the four tables that lead to them, which
        // the daemon took for unused.
        let touching = run("virtual-hatric-sw", 100);
        assert_eq!(count(&touching, "os.faults"), 0);
        assert_eq!(count(&touching, "host.vmstat.pgpromote_success"), 100 + 4);
        assert_eq!(count(&touching, "host.ept_violations"), 100 + 4, "one hint fault each");
        // Without die-stacked memory nothing faults, moves or interrupts.
        let none = run("virtual-hatric-no-hbm", 100);
        assert_eq!(counts(&none, ["host.ept_violations", "os.faults"]), [0, 0]);
        assert_eq!(count(&none, "tier.dram.pages"), PAGES + count(&none, "os.page_table_pages"));
    }
}

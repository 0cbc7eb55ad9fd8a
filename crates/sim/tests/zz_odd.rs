//! Odd addresses and ranges: no panic.
#[path = "machine_support/mod.rs"]
mod support;
use support::*;
use terrace_model::Bytes;
use terrace_sim::design::{PagePolicy, TranslationScheme};
use terrace_sim::{Fidelity, Options};
use terrace_trace::*;

fn attempt(what: &str, build: impl Fn(&mut Program) + std::panic::RefUnwindSafe) -> bool {
    let mut ok = true;
    for pages in [PagePolicy::Base, PagePolicy::Huge, PagePolicy::Thp] {
        for (scheme, fidelity) in [
            (TranslationScheme::Radix, Fidelity::Full),
            (TranslationScheme::Radix, Fidelity::Translation),
            (TranslationScheme::Radix, Fidelity::Pages),
            (TranslationScheme::Vivt, Fidelity::Full),
        ] {
            let result = std::panic::catch_unwind(|| {
                let mut program = Program::new();
                build(&mut program);
                let design = with_scheme(with_pages(small(), pages), scheme);
                run_with(&design, &mut program.source(), Options { fidelity, ..Options::default() })
                    .map(|o| (count(&o, "os.faults"), count(&o, "os.unmapped_accesses")))
            });
            match result {
                Ok(Ok(found)) => println!("{what} {pages:?} {scheme:?} {fidelity:?}: {found:?}"),
                Ok(Err(error)) => println!("{what} {pages:?} {scheme:?} {fidelity:?}: ERROR {error}"),
                Err(_) => {
                    println!("{what} {pages:?} {scheme:?} {fidelity:?}: PANIC");
                    ok = false;
                }
            }
        }
    }
    ok
}

#[test]
fn odd() {
    let mut ok = true;
    ok &= attempt("vsyscall", |p| {
        p.read(0xffff_ffff_ff60_0000).read(0x0000_ffff_ff60_0000).read(0xffff_ffff_ff60_0000);
    });
    ok &= attempt("two noncanonical that alias", |p| {
        p.read(0x0001_0000_0000_0000).read(0);
    });
    ok &= attempt("top", |p| {
        p.access(u64::MAX - 3, 8, AccessKind::Write, 0, 1);
    });
    ok &= attempt("kernel at top", |p| {
        p.kernel(u64::MAX - 100, 300, KernelAccess::Write);
    });
    ok &= attempt("map at top", |p| {
        p.map(u64::MAX - 8191, 100_000).read(u64::MAX - 5000).unmap(u64::MAX - 8191, u64::MAX);
    });
    ok &= attempt("map unaligned", |p| {
        p.map(DATA + 7, 10).read(DATA + 4000).unmap(DATA + 9, 1).read(DATA + 4000);
    });
    ok &= attempt("map nothing", |p| {
        p.map(DATA, 0).read(DATA);
    });
    ok &= attempt("unmap all", |p| {
        p.read(DATA).unmap(0, u64::MAX).read(DATA);
    });
    ok &= attempt("remap to top", |p| {
        p.map(DATA, 5 * PAGE).read(DATA).remap((DATA, 5 * PAGE), (u64::MAX - 8191, 5 * PAGE)).read(DATA);
    });
    ok &= attempt("remap from top", |p| {
        p.remap((u64::MAX - 4095, 5 * PAGE), (DATA, 5 * PAGE)).read(DATA);
    });
    ok &= attempt("remap of nothing", |p| {
        p.remap((DATA, 0), (DATA + GIB, 5 * PAGE)).read(DATA + GIB);
    });
    ok &= attempt("remap overlapping", |p| {
        p.map(DATA, 5 * PAGE)
            .write(DATA)
            .write(DATA + 3 * PAGE)
            .remap((DATA, 5 * PAGE), (DATA + PAGE, 5 * PAGE))
            .read(DATA + PAGE)
            .read(DATA + 4 * PAGE);
    });
    ok &= attempt("resident at top", |p| {
        p.event(Event::Resident { start: u64::MAX - 8191, bitmap: vec![u64::MAX] });
    });
    ok &= attempt("resident unaligned", |p| {
        p.event(Event::Resident { start: DATA + 5, bitmap: vec![3] }).read(DATA);
    });
    ok &= attempt("compute max", |p| {
        p.event(Event::Compute { instructions: u64::MAX }).read(DATA);
    });
    ok &= attempt("compute big", |p| {
        p.event(Event::Compute { instructions: 1 << 40 })
            .event(Event::Compute { instructions: 1 << 40 })
            .read(DATA);
    });
    ok &= attempt("wait max", |p| {
        p.event(Event::Wait { nanos: u64::MAX }).event(Event::Wait { nanos: u64::MAX }).read(DATA);
    });
    ok &= attempt("gap max", |p| {
        for _ in 0..2 {
            p.event(Event::Mark { kind: MarkKind::Gap, name: String::new(), value: u64::MAX });
        }
    });
    ok &= attempt("exit twice", |p| {
        p.read(DATA).exit(true).exit(true);
    });
    ok &= attempt("access after exit", |p| {
        p.read(DATA).exit(true).read(DATA);
    });
    ok &= attempt("exit then exec", |p| {
        p.read(DATA).exit(true).event(Event::Exec { name: String::new() }).read(DATA);
    });
    ok &= attempt("spawn twice", |p| {
        p.read(DATA).spawn(0, 0, None).spawn(1, 0, None).read(DATA);
    });
    ok &= attempt("fork from self", |p| {
        p.read(DATA).spawn(1, 0, Some(0)).write(DATA);
    });
    ok &= attempt("fork from nobody", |p| {
        p.read(DATA).on(1).spawn(1, 0, Some(77)).write(DATA);
    });
    ok &= attempt("huge stream number", |p| {
        p.on(100_000).spawn(1, 0, None).write(DATA);
    });
    ok &= attempt("huge process number", |p| {
        p.on(1).spawn(u32::MAX, 0, None).write(DATA);
    });
    ok &= attempt("region end first", |p| {
        p.mark(MarkKind::RegionEnd)
            .read(DATA)
            .mark(MarkKind::RegionBegin)
            .read(DATA)
            .mark(MarkKind::RegionBegin)
            .mark(MarkKind::RegionEnd);
    });
    ok &= attempt("depends far", |p| {
        for d in [255, 1, 200] {
            p.access(DATA, 8, AccessKind::Read, d, 1);
        }
    });
    ok &= attempt("size 255", |p| {
        p.access(DATA + 4090, 255, AccessKind::Read, 0, 0);
    });
    ok &= attempt("advise top", |p| {
        p.map(DATA, 4 * MIB).read(DATA);
        p.event(Event::Advise {
            range: terrace_model::AddressRange::new(DATA + PAGE, u64::MAX),
            advice: Advice::DontNeed,
        });
    });
    assert!(ok);
}

/// A shared huge page is written when no huge block is free, while base pages are.
#[test]
fn copying_a_shared_huge_page_falls_back() {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).write(DATA);
    program.on(1).spawn(1, 0, Some(0)).write(DATA);
    let mut design = with_pages(small(), PagePolicy::Thp);
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes(2 * MIB + 900 * KIB);
    design.tiers[1].capacity = Bytes(MIB);
    let outcome = run_with(&design, &mut program.source(), Options::default());
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

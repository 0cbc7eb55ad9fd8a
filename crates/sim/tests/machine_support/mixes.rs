//! Programs of every kind of event.

use super::*;
use terrace_trace::Advice;

/// A random mix of everything that changes page-table entries, by two processes with two threads each.
pub fn changes() -> Program {
    let mut random = Random(11);
    let mut program = Program::new();
    program.map(DATA, 32 * MIB).map(DATA + GIB, 8 * MIB);
    for page in 0..2048 {
        program.write(DATA + page * PAGE);
    }
    program.on(1).spawn(0, 1, None);
    program.on(0).mark(MarkKind::RequestBegin);
    for step in 0..6000u64 {
        let stream = random.below(if step < 2000 { 2 } else { 4 }) as u32;
        match step {
            2000 => {
                program.on(2).spawn(1, 0, Some(0));
            }
            2001 => {
                program.on(3).spawn(1, 1, None);
            }
            _ => {}
        }
        program.on(stream);
        let page = DATA + random.below(8192) * PAGE;
        let pages = 1 + random.below(64);
        let range = terrace_model::AddressRange::new(page, pages * PAGE);
        match random.below(400) {
            0 => program.unmap(page, pages * PAGE).map(page, pages * PAGE),
            1 => program.event(Event::Protect {
                range,
                protection: Protection { write: false, ..Protection::READ_WRITE },
            }),
            2 => program.event(Event::Protect { range, protection: Protection::READ_WRITE }),
            3 => program.event(Event::Advise { range, advice: Advice::DontNeed }),
            4 => program.remap((page, 16 * PAGE), (DATA + GIB + 16 * PAGE * random.below(64), 16 * PAGE)),
            5 => program.map(page, 16 * PAGE),
            6 => program.kernel(page, 3 * PAGE, KernelAccess::Write),
            7 => program.kernel(page, 2 * PAGE, KernelAccess::Read),
            8 => program.event(Event::Wait { nanos: 700 }),
            _ => {
                let addr = page + random.below(PAGE - 8);
                match random.below(3) {
                    0 => program.write(addr),
                    1 => program.read(addr),
                    _ => program.chase(addr),
                }
            }
        };
    }
    program.on(0).mark(MarkKind::RequestEnd);
    for stream in [1, 0, 3, 2] {
        program.on(stream).exit(stream % 2 == 0);
    }
    program
}

/// A host that fills, reads and changes what kernels read, write and add to, one after the other.
pub fn turns() -> Program {
    let mut random = Random(29);
    let mut program = Program::without_spawn();
    for (stream, agent) in [(0, Agent::Cpu), (1, Agent::Gpu)] {
        let name = String::new();
        program.on(stream).event(Event::Spawn {
            process: 0,
            thread: stream,
            agent,
            forked_from: None,
            os_id: 0,
            name,
        });
    }
    program.on(0).map(DATA, 4 * MIB);
    for page in 0..1024 {
        program.write(DATA + page * PAGE);
    }
    for _ in 0..6 {
        program.on(0);
        for _ in 0..400 {
            let addr = DATA + random.below(4 * MIB - 8);
            if random.below(3) == 0 {
                program.write(addr)
            } else {
                program.read(addr)
            };
        }
        program.event(Event::Compute { instructions: 1000 });
        program.on(1).mark(MarkKind::KernelLaunch);
        for _ in 0..48 {
            program.mark_value(MarkKind::WorkGroup, 64);
            for warp in 0..2 {
                program.mark_value(MarkKind::Warp, warp);
                for _ in 0..6 {
                    let (first, stride) =
                        (DATA + random.below(3 * MIB), [4, 4, 36, 512][random.below(4) as usize]);
                    let kind = if random.below(4) == 0 { AccessKind::Write } else { AccessKind::Read };
                    let atomic = random.below(8) == 0;
                    for lane in 0..32 {
                        program.access(first + lane * stride, 4, kind, 0, if lane == 0 { 3 } else { 0 });
                    }
                    for lane in 0..if atomic && kind == AccessKind::Read { 32 } else { 0 } {
                        program.access(first + lane * stride, 4, AccessKind::Write, 0, 0);
                    }
                }
            }
            program.mark(MarkKind::GroupBarrier);
        }
    }
    for addr in (DATA..DATA + MIB).step_by(64) {
        program.on(0).read(addr);
    }
    program.on(1).exit(false).on(0).exit(true);
    program
}

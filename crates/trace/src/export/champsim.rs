//! ChampSim's instruction records, whose layout `import/champsim.rs` has.
//!
//! - **Instructions.** An access that brings `n` instructions becomes `n - 1` records without memory and one with it. An
//!   access that brings none belongs to the instruction of the access before it. A record holds four loads and two
//!   stores; what does not fit begins another record, which the trace does not count as an instruction.
//! - **Addresses.** The format has no sizes. An access of more than 64 bytes has an address in each line that it
//!   touches, a smaller one has its own.
//! - **Instruction addresses.** That of the access, also for the instructions before it, whose own the trace does not
//!   have; one fixed address where none is known. Branches are left out.
//! - **Dependences.** Each record with loads writes a register of its own, in turn; a load that depends on another reads
//!   the register of that one's record. ChampSim names registers by one byte, and 252 carry loaded values, so a
//!   dependence over more than 252 records with loads is left out. So is one on a load of the same instruction.

use super::{Exported, Exporter};
use crate::{Access, AccessKind, Batch, Event, Item, StreamId};
use std::collections::HashMap;
use std::io::{self, Write};

const RECORD_BYTES: usize = 64;
const LOADS: usize = 4;
const STORES: usize = 2;
/// The instruction address where none is known; 0 is not allowed.
const UNKNOWN_PC: u64 = 0x40_0000;
const LINE: u64 = 64;
/// Loads of a stream that a dependence can reach back to: the column has one byte.
const REMEMBERED: usize = 256;

/// Registers that carry loaded values: not 0 (none), 6 (stack pointer), 25 (flags) and 26 (instruction pointer).
const fn register(record: u64) -> u8 {
    const REGISTERS: [u8; USABLE as usize] = {
        let mut registers = [0; USABLE as usize];
        let (mut name, mut at) = (1u8, 0);
        while at < registers.len() {
            if name != 6 && name != 25 && name != 26 {
                registers[at] = name;
                at += 1;
            }
            name = name.wrapping_add(1);
        }
        registers
    };
    REGISTERS[(record % USABLE) as usize]
}

const USABLE: u64 = 252;

/// An instruction that more accesses may belong to.
#[derive(Debug)]
struct Instruction {
    stream: StreamId,
    pc: u64,
    loads: Vec<u64>,
    stores: Vec<u64>,
    /// Source registers, each once.
    sources: Vec<u8>,
    /// The instruction's number among the records with loads, where it has any.
    number: Option<u64>,
}

/// The loads of a stream.
#[derive(Debug)]
struct Loads {
    count: u64,
    /// For each of the last loads, by its number, the number of its record.
    records: [u64; REMEMBERED],
    pc: u64,
}

impl Default for Loads {
    fn default() -> Loads {
        Loads { count: 0, records: [0; REMEMBERED], pc: UNKNOWN_PC }
    }
}

/// Writes records.
#[derive(Debug, Default)]
pub(super) struct ChampSim {
    open: Option<Instruction>,
    /// Records with loads so far.
    with_loads: u64,
    streams: HashMap<StreamId, Loads>,
}

impl Exporter for ChampSim {
    fn batch(&mut self, batch: &Batch, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        for item in batch.items() {
            match item {
                Item::Access(access) => self.access(batch.stream, &access, done, out)?,
                Item::Event(event) => match event.event {
                    Event::Compute { instructions } => {
                        self.close(done, out)?;
                        let pc = self.streams.entry(batch.stream).or_default().pc;
                        without_memory(instructions, pc, done, out)?;
                    }
                    _ => done.events_left_out += 1,
                },
            }
        }
        Ok(())
    }

    fn finish(&mut self, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        self.close(done, out)
    }
}

impl ChampSim {
    fn access(
        &mut self,
        stream: StreamId,
        access: &Access,
        done: &mut Exported,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let pc = access.pc.filter(|pc| *pc != 0).unwrap_or(UNKNOWN_PC);
        let is_load = access.kind == AccessKind::Read;
        done.accesses += 1;
        let joins = access.instructions == 0
            && self.open.as_ref().is_some_and(|open| open.stream == stream && open.pc == pc);
        if !joins {
            self.close(done, out)?;
            without_memory(u64::from(access.instructions).saturating_sub(1), pc, done, out)?;
            done.instructions_added += u64::from(access.instructions == 0);
        }
        self.streams.entry(stream).or_default().pc = pc;
        let bytes = u64::from(access.size);
        let last = if bytes > LINE { access.addr + bytes - 1 } else { access.addr };
        for line in access.addr / LINE..=last / LINE {
            // Address 0 says that there is none; 1 lies in the same line.
            let addr = access.addr.max(line * LINE).max(1);
            let is_full = |open: &Instruction| match is_load {
                true => open.loads.len() == LOADS,
                false => open.stores.len() == STORES,
            };
            if self.open.as_ref().is_some_and(is_full) {
                self.close(done, out)?;
                done.instructions_added += 1;
            }
            let new = || Instruction {
                stream,
                pc,
                loads: Vec::with_capacity(LOADS),
                stores: Vec::with_capacity(STORES),
                sources: Vec::with_capacity(LOADS),
                number: None,
            };
            let open = self.open.get_or_insert_with(new);
            if is_load {
                open.loads.push(addr);
                open.number.get_or_insert_with(|| {
                    self.with_loads += 1;
                    self.with_loads
                });
            } else {
                open.stores.push(addr);
            }
        }
        if is_load {
            self.load(stream, access.depends_on, done);
        }
        Ok(())
    }

    /// Counts a load of the open instruction and gives it the register that it depends on.
    fn load(&mut self, stream: StreamId, depends_on: u8, done: &mut Exported) {
        let loads = self.streams.entry(stream).or_default();
        let Some(open) = &mut self.open else { return };
        let Some(own) = open.number else { return };
        loads.count += 1;
        loads.records[(loads.count % REMEMBERED as u64) as usize] = own;
        // A dependence on a load before the trace's first is a dependence on nothing that is known.
        let Some(producer) = loads.count.checked_sub(u64::from(depends_on)).filter(|_| depends_on > 0) else {
            return;
        };
        if producer == 0 {
            return;
        }
        let record = loads.records[(producer % REMEMBERED as u64) as usize];
        if record == own || own - record > USABLE {
            done.dependences_left_out += 1;
            return;
        }
        let source = register(record);
        if !open.sources.contains(&source) {
            open.sources.push(source);
        }
    }

    fn close(&mut self, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        let Some(Instruction { pc, loads, stores, sources, number, .. }) = self.open.take() else {
            return Ok(());
        };
        let mut record = empty(pc);
        record[10] = number.map_or(0, register);
        // At most one for each load.
        record[12..12 + sources.len()].copy_from_slice(&sources);
        for (addr, at) in stores.iter().zip((16..).step_by(8)) {
            record[at..at + 8].copy_from_slice(&addr.to_le_bytes());
        }
        for (addr, at) in loads.iter().zip((32..).step_by(8)) {
            record[at..at + 8].copy_from_slice(&addr.to_le_bytes());
        }
        done.records += 1;
        out.write_all(&record)
    }
}

fn empty(pc: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&pc.to_le_bytes());
    record
}

fn without_memory(instructions: u64, pc: u64, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
    let record = empty(pc);
    for _ in 0..instructions {
        out.write_all(&record)?;
    }
    done.records += instructions;
    Ok(())
}

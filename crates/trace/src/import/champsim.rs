//! ChampSim instruction traces: 64 bytes an instruction, little-endian, without any mark or version.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | instruction address |
//! | 8, 9 | is a branch, was taken (0 or 1) |
//! | 10..12 | destination registers (0: none) |
//! | 12..16 | source registers |
//! | 16..32 | destination memory: 2 addresses (0: none) |
//! | 32..64 | source memory: 4 addresses |
//!
//! Layout: `struct input_instr` of ChampSim's `inc/trace_instruction.h`. The format holds no sizes: every access counts as
//! 8 bytes, or as many as its page has left. Loads come before stores, as in the instruction. Registers give the
//! load-to-load dependences: a load depends on the latest load whose value reached one of its source registers, directly
//! or through arithmetic.

use super::Parser;
use super::builder::{ImportBuilder, Row, is_of_kernel, within_page};
use super::input::{Input, word};
use crate::{AccessKind, SourceError};

const RECORD_BYTES: usize = 64;
const ACCESS_BYTES: u64 = 8;
/// Stack pointer, flags and instruction pointer in ChampSim's numbering of the registers: they carry no loaded address.
const UNTRACKED: [u8; 4] = [0, 6, 25, 26];
/// Records looked at to recognise the format.
const RECOGNISED_BY: usize = 64;

/// Parses ChampSim records.
#[derive(Debug)]
pub(super) struct ChampSim {
    instructions: u64,
    /// Loads so far.
    loads: u64,
    /// Per register the number (from 1) of the load its value comes from; 0: none.
    loaded_by: [u64; 256],
}

impl Default for ChampSim {
    fn default() -> ChampSim {
        ChampSim { instructions: 0, loads: 0, loaded_by: [0; 256] }
    }
}

impl ChampSim {
    /// Whether the bytes at the start of a file look like records.
    pub(super) fn is_plausible(start: &[u8]) -> bool {
        let (records, _) = start.as_chunks::<RECORD_BYTES>();
        let records = &records[..records.len().min(RECOGNISED_BY)];
        !records.is_empty() && records.iter().all(|record| check(record).is_ok())
    }
}

/// The only fields with illegal values.
fn check(record: &[u8; RECORD_BYTES]) -> Result<(), String> {
    if word(record, 0) == 0 {
        return Err("expected an instruction address, found 0".to_owned());
    }
    if record[8] > 1 || record[9] > 1 {
        return Err(format!("expected branch flags 0 or 1, found {} and {}", record[8], record[9]));
    }
    Ok(())
}

fn tracked(registers: &[u8]) -> impl Iterator<Item = usize> {
    registers.iter().filter(|register| !UNTRACKED.contains(register)).map(|&register| register as usize)
}

impl Parser for ChampSim {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        let Some(record) = input.record::<RECORD_BYTES>()? else {
            if self.instructions > 0 {
                out.compute(std::mem::take(&mut self.instructions));
            }
            return Ok(false);
        };
        self.instruction(&record, out).map_err(|what| input.in_record(&what, RECORD_BYTES))?;
        Ok(true)
    }
}

impl ChampSim {
    fn instruction(&mut self, record: &[u8; RECORD_BYTES], out: &mut ImportBuilder) -> Result<(), String> {
        check(record)?;
        let pc = Some(word(record, 0));
        self.instructions += 1;
        let source = tracked(&record[12..16]).map(|register| self.loaded_by[register]).max().unwrap_or(0);
        let loads_before = self.loads;
        for at in (32..64).step_by(8) {
            let addr = word(record, at);
            if addr == 0 {
                continue;
            }
            if is_of_kernel(addr) {
                out.leave_out(std::mem::take(&mut self.instructions));
                continue;
            }
            // A dependence too far back to be written is too far back to matter.
            let depends_on = match source {
                0 => 0,
                load => u8::try_from(self.loads + 1 - load).unwrap_or(0),
            };
            let instructions = std::mem::take(&mut self.instructions);
            out.access(Row {
                addr,
                bytes: within_page(addr, ACCESS_BYTES),
                kind: AccessKind::Read,
                depends_on,
                instructions,
                pc,
            })?;
            self.loads += 1;
        }
        for at in (16..32).step_by(8) {
            let addr = word(record, at);
            if addr != 0 {
                let instructions = std::mem::take(&mut self.instructions);
                let kind = AccessKind::Write;
                let bytes = within_page(addr, ACCESS_BYTES);
                out.access(Row { addr, bytes, kind, depends_on: 0, instructions, pc })?;
            }
        }
        let value = if self.loads > loads_before { self.loads } else { source };
        for register in tracked(&record[10..12]) {
            self.loaded_by[register] = value;
        }
        Ok(())
    }
}

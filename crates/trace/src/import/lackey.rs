//! Valgrind's lackey: `valgrind --tool=lackey --trace-mem=yes --log-file=F PROGRAM`.
//!
//! ```text
//! I  04001000,3        an instruction at this address, of 3 bytes
//!  L 1ffefffe48,8      a load of 8 bytes by the last instruction
//!  S 1ffefffe48,8      a store
//!  M 0421f8c0,4        a load, then a store, of the same bytes
//! ```
//!
//! `I` lines become the accesses' instruction counts and addresses. Lackey serializes threads without naming them,
//! and records no dependences: the result is one stream.

use super::Parser;
use super::builder::{ImportBuilder, Row};
use super::input::{Input, beginning, decimal, hexadecimal};
use crate::{AccessKind, SourceError};

/// Parses lackey lines.
#[derive(Debug, Default)]
pub(super) struct Lackey {
    pc: u64,
    instructions: u64,
}

impl Lackey {
    /// Whether a line is one of lackey's records.
    pub(super) fn is_line(line: &[u8]) -> bool {
        record(line).is_some()
    }
}

/// The letter and the numbers of a record.
#[inline]
fn record(line: &[u8]) -> Option<(u8, u64, u64)> {
    let letter = match line {
        [b'I', b' ', b' ', ..] => b'I',
        [b' ', letter @ (b'L' | b'S' | b'M'), b' ', ..] => *letter,
        _ => return None,
    };
    let (addr, rest) = hexadecimal(&line[3..])?;
    Some((letter, addr, decimal(rest.strip_prefix(b",")?)?))
}

impl Parser for Lackey {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        let Some(line) = input.line()? else {
            if self.instructions > 0 {
                out.compute(std::mem::take(&mut self.instructions));
            }
            return Ok(false);
        };
        let Some((letter, addr, bytes)) = record(line) else {
            // Valgrind's own messages, and the blank line before its summary.
            if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
                return Ok(true);
            }
            let found = beginning(line);
            return Err(input.in_line(&format!(
                "expected `I  hex,size`, ` L hex,size`, ` S hex,size` or ` M hex,size`, found \"{found}\"; \
                 if the program printed it, record with valgrind --log-file=FILE"
            )));
        };
        if letter == b'I' {
            self.pc = addr;
            self.instructions += 1;
            return Ok(true);
        }
        let kind = if letter == b'S' { AccessKind::Write } else { AccessKind::Read };
        let instructions = std::mem::take(&mut self.instructions);
        let load = Row { addr, bytes, kind, depends_on: 0, instructions, pc: Some(self.pc) };
        let mut pushed = out.access(load);
        if letter == b'M' {
            let store = Row { kind: AccessKind::Write, instructions: 0, ..load };
            pushed = pushed.and_then(|()| out.access(store));
        }
        pushed.map_err(|what| input.in_line(&what))?;
        Ok(true)
    }
}

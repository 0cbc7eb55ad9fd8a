//! Memory samples of perf: what `perf script` prints of a `perf mem record`.
//!
//! ```text
//! gups  4242 [001] 3678.072400:  1  cpu/mem-loads/P:  7ffdf1391b0c  10268100142 |OP LOAD|LVL L1 hit|SNP None|…  401136
//! main (gups)
//! ```
//!
//! The two numbers before `|OP` are the address and what perf packs the rest into; after the last `|` come weights and
//! the address of the instruction. Each sample counts as one instruction and one access of 8 bytes (of as many as its
//! page has left, if fewer), in the order of the lines, all threads in one stream. Samples are a few of a program's
//! accesses, so such a trace says which memory is hot, when, and no more. Left out: samples without an address, of the
//! kernel's memory, and of anything but loads and stores.

use super::Parser;
use super::builder::{ImportBuilder, Row, within_page};
use super::input::{Input, beginning, hexadecimal};
use crate::{AccessKind, Rules, SourceError};

const ACCESS_BYTES: u64 = 8;
/// Addresses of instructions have at least so many digits; weights have fewer.
const FEWEST_DIGITS: usize = 6;

/// Parses lines of samples.
#[derive(Debug)]
pub(super) struct Perf;

struct Sample {
    addr: u64,
    kind: Option<AccessKind>,
    pc: u64,
}

impl Perf {
    /// Whether a line is a sample.
    pub(super) fn is_line(line: &[u8]) -> bool {
        sample(line).is_some()
    }
}

fn number(word: &str) -> Option<u64> {
    let (value, rest) = hexadecimal(word.as_bytes())?;
    rest.is_empty().then_some(value)
}

fn sample(line: &[u8]) -> Option<Sample> {
    let (before, after) = std::str::from_utf8(line).ok()?.split_once("|OP ")?;
    // The rest of what is packed, then the address, from behind.
    let mut words = before.split_whitespace().rev();
    words.next().and_then(number)?;
    let addr = words.next().and_then(number)?;
    let operation = after.split('|').next().unwrap_or_default();
    let kind = if operation.contains("STORE") {
        Some(AccessKind::Write)
    } else {
        operation.contains("LOAD").then_some(AccessKind::Read)
    };
    let behind = after.rsplit('|').next().unwrap_or_default();
    let pc =
        behind.split_whitespace().filter(|word| word.len() >= FEWEST_DIGITS).find_map(number).unwrap_or(0);
    Some(Sample { addr, kind, pc })
}

impl Parser for Perf {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        let Some(line) = input.line()? else { return Ok(false) };
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(true);
        }
        let Some(Sample { addr, kind, pc }) = sample(line) else {
            let found = beginning(line);
            return Err(input.in_line(&format!(
                "expected a sample with its address (`perf mem record`, then `perf script`; -G where call chains were recorded), found \"{found}\""
            )));
        };
        let Some(kind) = kind.filter(|_| addr > 0 && addr < Rules::default().user_end() - ACCESS_BYTES)
        else {
            out.leave_out(0);
            return Ok(true);
        };
        let bytes = within_page(addr, ACCESS_BYTES);
        let row = Row { addr, bytes, kind, depends_on: 0, instructions: 1, pc: Some(pc) };
        out.access(row).map_err(|what| input.in_line(&what))?;
        Ok(true)
    }
}

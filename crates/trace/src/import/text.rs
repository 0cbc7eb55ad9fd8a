//! Plain text: one access a line, `R` or `W`, a hexadecimal address (with or without `0x`), and the bytes accessed in
//! decimal (8 where they are missing). Empty lines and comments, from `#` on, are
//! passed over. Each access counts one instruction.

use super::Parser;
use super::builder::{ImportBuilder, Row};
use super::input::{Input, beginning, decimal, hexadecimal};
use crate::{AccessKind, SourceError};

const DEFAULT_BYTES: u64 = 8;

/// Parses plain lines.
#[derive(Debug)]
pub(super) struct PlainText;

impl PlainText {
    /// Whether a line is an access.
    pub(super) fn is_line(line: &[u8]) -> bool {
        access(line).is_some()
    }
}

fn access(line: &[u8]) -> Option<(AccessKind, u64, u64)> {
    let line = line.split(|&byte| byte == b'#').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let kind = match words.next()? {
        b"R" | b"r" => AccessKind::Read,
        b"W" | b"w" => AccessKind::Write,
        _ => return None,
    };
    let addr = words.next()?;
    let addr = addr.strip_prefix(b"0x").or_else(|| addr.strip_prefix(b"0X")).unwrap_or(addr);
    let (addr, rest) = hexadecimal(addr)?;
    let bytes = words.next().map_or(Some(DEFAULT_BYTES), decimal)?;
    (rest.is_empty() && words.next().is_none()).then_some((kind, addr, bytes))
}

impl Parser for PlainText {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        let Some(line) = input.line()? else { return Ok(false) };
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(true);
        }
        let Some((kind, addr, bytes)) = access(line) else {
            let found = beginning(line);
            return Err(input.in_line(&format!("expected `R|W hexaddress [size]`, found \"{found}\"")));
        };
        let row = Row { addr, bytes, kind, depends_on: 0, instructions: 1, pc: None };
        out.access(row).map_err(|what| input.in_line(&what))?;
        Ok(true)
    }
}

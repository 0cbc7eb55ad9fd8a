//! What is mapped when the program's first instruction is translated: the binary, its loader, the stack.
//!
//! QEMU maps them before any callback runs, so they are read from `/proc/self/maps`, where QEMU's own memory lies
//! too. What was there at installation, before QEMU loaded the program, is QEMU's; and so is everything above the
//! lowest of it: the kernel places a position-independent QEMU, its libraries and its code buffer far above where
//! QEMU places the program.

use crate::ring;
use std::sync::Mutex;
use terrace_protocol::control::{Operation, map_kind};

/// A line of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    protection: u64,
    shared: bool,
    offset: u64,
    name: String,
}

/// Lowest address of QEMU's own memory.
static LOWEST: Mutex<u64> = Mutex::new(u64::MAX);

/// Remembers where QEMU lies. Called before the program is loaded.
pub fn remember_own() {
    let lowest = read().iter().map(|m| m.start).min().unwrap_or(u64::MAX);
    *LOWEST.lock().unwrap_or_else(|e| e.into_inner()) = lowest;
}

/// Emits the program's initial mappings on `vcpu`.
pub fn emit_initial(vcpu: u32) {
    let lowest = *LOWEST.lock().unwrap_or_else(|e| e.into_inner());
    let mappings: Vec<Mapping> = read().into_iter().filter(|m| m.end <= lowest).collect();
    for (i, mapping) in mappings.iter().enumerate() {
        // QEMU guards the stack, and only the stack, by an inaccessible page just below it.
        let guarded = i > 0 && mappings[i - 1].protection == 0 && mappings[i - 1].end == mapping.start;
        let stack = mapping.name.is_empty() && mapping.protection & 2 != 0 && guarded;
        emit(vcpu, mapping, stack);
    }
}

/// Bytes of the mapping that begins at `start`, for a system call that does not tell the size.
pub fn length_at(start: u64) -> Option<u64> {
    read().iter().find(|m| m.start == start).map(|m| m.end - m.start)
}

fn emit(vcpu: u32, mapping: &Mapping, stack: bool) {
    let kind = match (mapping.name.is_empty(), mapping.shared) {
        _ if stack => map_kind::STACK,
        (true, false) => map_kind::ANONYMOUS,
        (true, true) => map_kind::SHARED_ANONYMOUS,
        (false, false) => map_kind::PRIVATE_FILE,
        (false, true) => map_kind::SHARED_FILE,
    };
    let name = if stack { "[stack]" } else { &mapping.name };
    let words = [mapping.start, mapping.end - mapping.start, kind | mapping.protection << 8, mapping.offset];
    ring::emit_sequenced(vcpu, Operation::Map, &words, name.as_bytes());
}

fn read() -> Vec<Mapping> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut fields = rest.splitn(5, ' ');
    let permissions = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let name = fields.nth(2).unwrap_or("").trim();
    let bit = |at: usize, letter: u8, bit: u64| if permissions.get(at) == Some(&letter) { bit } else { 0 };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
        shared: permissions.get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_name() {
        let line = "7f00-8000 rw-s 00001000 fe:00 10018898                       /tmp/a b";
        let expected = Mapping {
            start: 0x7f00,
            end: 0x8000,
            protection: 3,
            shared: true,
            offset: 0x1000,
            name: "/tmp/a b".to_owned(),
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("4000-5000 ---p 00000000 00:00 0 ").unwrap().name, "");
        assert_eq!(parse("nonsense"), None);
    }
}

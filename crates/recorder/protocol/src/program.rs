//! Which files QEMU's x86-64 user-mode emulator can run, judged by their first bytes.
//!
//! Works without allocating, because the preload library asks between `fork` and `exec`.

/// The processor that QEMU presents, for its option `-cpu`: all it can emulate but the promise of fast string
/// instructions. With it, the C library would fill and copy memory by `rep stosb` and `rep movsb`, which QEMU carries
/// out byte by byte where a processor moves whole lines; without it, it uses vector loads and stores.
pub const PROCESSOR: &std::ffi::CStr = c"max,-erms";

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// An x86-64 ELF executable; `dynamic` if it names a program interpreter, and so can be given a preload library.
    X86_64 {
        /// Whether the dynamic linker starts it.
        dynamic: bool,
    },
    /// A script: its interpreter and, where the first line has one, that interpreter's argument.
    Script {
        /// Path of the interpreter.
        interpreter: &'a [u8],
        /// The rest of the line.
        argument: Option<&'a [u8]>,
    },
    /// An ELF file for another processor, with its `e_machine`.
    OtherMachine(u16),
    /// None of these.
    Unknown,
}

/// Judges a file by its first bytes; 4 KiB are always enough for what linkers write.
pub fn inspect(head: &[u8]) -> Image<'_> {
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line);
    }
    if head.len() < 64 || !head.starts_with(b"\x7fELF") {
        return Image::Unknown;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let machine = if head[5] == 2 { half(18).swap_bytes() } else { half(18) };
    const ELFCLASS64: u8 = 2;
    const EM_X86_64: u16 = 62;
    if head[4] != ELFCLASS64 || machine != EM_X86_64 {
        return Image::OtherMachine(machine);
    }
    if !matches!(half(16), 2 | 3) {
        return Image::Unknown;
    }
    Image::X86_64 { dynamic: has_interpreter(head, half(54), half(56)) }
}

fn has_interpreter(head: &[u8], entry_bytes: u16, entries: u16) -> bool {
    const PT_INTERP: u32 = 3;
    let mut table = [0; 8];
    table.copy_from_slice(&head[32..40]);
    let table = u64::from_le_bytes(table) as usize;
    (0..usize::from(entries)).any(|i| {
        let at = table.saturating_add(i * usize::from(entry_bytes));
        head.get(at..at.saturating_add(4)).is_some_and(|t| t == PT_INTERP.to_le_bytes())
    })
}

fn script(line: &[u8]) -> Image<'_> {
    let line = &line[..line.iter().position(|&b| b == b'\n').unwrap_or(line.len())];
    let line = line.trim_ascii();
    let end = line.iter().position(|&b| b == b' ' || b == b'\t').unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    if interpreter.is_empty() {
        return Image::Unknown;
    }
    Image::Script { interpreter, argument: (!argument.is_empty()).then_some(argument) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_keep_one_argument() {
        let script = |interpreter, argument| Image::Script { interpreter, argument };
        assert_eq!(inspect(b"#!/bin/sh\necho"), script(&b"/bin/sh"[..], None));
        assert_eq!(
            inspect(b"#! /usr/bin/env python3 -E \nx"),
            script(&b"/usr/bin/env"[..], Some(&b"python3 -E"[..]))
        );
        assert_eq!(inspect(b"#!\n"), Image::Unknown);
        assert_eq!(inspect(b""), Image::Unknown);
    }

    #[test]
    fn this_test_is_a_program() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let image = inspect(&bytes[..4096]);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(image, Image::X86_64 { dynamic: true });
        #[cfg(not(target_arch = "x86_64"))]
        assert!(matches!(image, Image::OtherMachine(_)));
    }

    #[test]
    fn a_torn_header_is_no_program() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        for length in 0..64 {
            assert_eq!(inspect(&bytes[..length]), Image::Unknown);
        }
        let mut odd = bytes[..4096].to_vec();
        odd[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        inspect(&odd);
        odd[18] = 183;
        assert_eq!(inspect(&odd), Image::OtherMachine(183));
    }
}

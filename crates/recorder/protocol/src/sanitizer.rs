//! Programs built with AddressSanitizer, whose shadow memory takes more than 20 GB of the host under QEMU user mode.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The function that every such program calls first, as a symbol table names it. A compiler, which only knows of it, has
/// the name among its data.
const NAME: &[u8] = b"\0__asan_init\0";

/// The parts of the ELF format that are read here (System V gABI, chapter 4): the header of a file of 64 bits, lowest byte
/// first, and that of a section.
mod elf {
    pub const MAGIC: &[u8] = &[0x7f, b'E', b'L', b'F', 2, 1];
    pub const HEADER: usize = 64;
    pub const SECTION_HEADERS_AT: usize = 0x28;
    pub const SECTION_COUNT_AT: usize = 0x3c;
    pub const SECTION: usize = 64;
    pub const TYPE_AT: usize = 4;
    pub const OFFSET_AT: usize = 0x18;
    pub const SIZE_AT: usize = 0x20;
    pub const LINK_AT: usize = 0x28;
    /// Section types that hold symbols.
    pub const SYMBOLS: [u32; 2] = [11, 2];
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("within a header")
}

/// Whether a program is built with AddressSanitizer: one of its symbol tables names the function that every such program
/// calls first. A file that cannot be read, or that is no program of 64 bits, is not.
pub fn has_address_sanitizer(program: &Path) -> bool {
    File::open(program).is_ok_and(|file| names_it(&file).unwrap_or(false))
}

fn names_it(file: &File) -> std::io::Result<bool> {
    let mut header = [0; elf::HEADER];
    file.read_exact_at(&mut header, 0)?;
    if !header.starts_with(elf::MAGIC) {
        return Ok(false);
    }
    let sections_at = u64::from_le_bytes(number(&header, elf::SECTION_HEADERS_AT));
    let count = u16::from_le_bytes(number(&header, elf::SECTION_COUNT_AT));
    let mut sections = vec![0; usize::from(count) * elf::SECTION];
    file.read_exact_at(&mut sections, sections_at)?;
    let sections: Vec<&[u8]> = sections.chunks_exact(elf::SECTION).collect();
    for kind in elf::SYMBOLS {
        for section in &sections {
            if u32::from_le_bytes(number(section, elf::TYPE_AT)) != kind {
                continue;
            }
            let names = u32::from_le_bytes(number(section, elf::LINK_AT));
            let Some(names) = sections.get(names as usize) else { continue };
            let at = u64::from_le_bytes(number(names, elf::OFFSET_AT));
            let size = u64::from_le_bytes(number(names, elf::SIZE_AT));
            if holds_name(file, at, size)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether `size` bytes of a file from `at` on hold the name.
fn holds_name(file: &File, mut at: u64, size: u64) -> std::io::Result<bool> {
    let end = at.saturating_add(size);
    let mut buffer = vec![0; 1 << 16];
    // The end of what was read before stays at the beginning.
    let mut kept = 0;
    while at < end {
        let room = buffer.len() - kept;
        let wanted = usize::try_from(end - at).unwrap_or(room).min(room);
        let read = file.read_at(&mut buffer[kept..kept + wanted], at)?;
        if read == 0 {
            break;
        }
        let filled = kept + read;
        if buffer[..filled].windows(NAME.len()).any(|window| window == NAME) {
            return Ok(true);
        }
        kept = filled.min(NAME.len() - 1);
        buffer.copy_within(filled - kept..filled, 0);
        at += read as u64;
    }
    Ok(false)
}

/// The program that a command line of QEMU, as in `/proc/self/cmdline`, executes: the word behind `--`.
pub fn program_of(command_line: &[u8]) -> Option<&[u8]> {
    let mut words = command_line.split(|&byte| byte == 0);
    words.find(|word| *word == b"--")?;
    words.next().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of three sections: symbols of type `kind`, their names, and data.
    fn program(kind: u32, names: &[u8], data: &[u8]) -> Vec<u8> {
        let mut file = vec![0; elf::HEADER];
        file[..elf::MAGIC.len()].copy_from_slice(elf::MAGIC);
        let names_at = file.len() as u64;
        file.extend_from_slice(names);
        let data_at = file.len() as u64;
        file.extend_from_slice(data);
        let sections_at = file.len() as u64;
        file[elf::SECTION_HEADERS_AT..][..8].copy_from_slice(&sections_at.to_le_bytes());
        file[elf::SECTION_COUNT_AT..][..2].copy_from_slice(&3u16.to_le_bytes());
        for (kind, at, size, link) in
            [(kind, 0, 0, 1), (3, names_at, names.len(), 0), (1, data_at, data.len(), 0)]
        {
            let mut section = [0; elf::SECTION];
            section[elf::TYPE_AT..][..4].copy_from_slice(&u32::to_le_bytes(kind));
            section[elf::OFFSET_AT..][..8].copy_from_slice(&u64::to_le_bytes(at));
            section[elf::SIZE_AT..][..8].copy_from_slice(&(size as u64).to_le_bytes());
            section[elf::LINK_AT..][..4].copy_from_slice(&u32::to_le_bytes(link));
            file.extend_from_slice(&section);
        }
        file
    }

    #[test]
    fn address_sanitizer_is_a_symbol_and_not_a_word() {
        let path = std::env::temp_dir().join(format!("terrace-sanitizer-{}", std::process::id()));
        let found = |file: &[u8]| {
            std::fs::write(&path, file).unwrap();
            has_address_sanitizer(&path)
        };
        let (symbol, word) = (&b"\0main\0__asan_init\0"[..], &b"\0call __asan_init\0__asan_init\0"[..]);
        for kind in elf::SYMBOLS {
            assert!(found(&program(kind, symbol, b"")));
            assert!(!found(&program(kind, b"\0main\0my__asan_init\0__asan_init_v4\0", word)), "a compiler");
            // Across the pieces in which names are read.
            for before in [(1 << 16) - 5, (1 << 16) + 7, 3 << 16] {
                assert!(found(&program(kind, &[&vec![0; before][..], symbol].concat(), b"")), "{before}");
            }
        }
        assert!(!found(&program(1, symbol, b"")), "names of no symbols");
        // Damage.
        let whole = program(11, symbol, b"");
        for length in [0, 3, elf::HEADER, whole.len() - 1] {
            assert!(!found(&whole[..length]), "{length}");
        }
        let mut far = whole.clone();
        far[elf::SECTION_HEADERS_AT..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(!found(&far));
        let mut link = whole.clone();
        let first = whole.len() - 3 * elf::SECTION;
        link[first + elf::LINK_AT..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(!found(&link));
        std::fs::remove_file(&path).unwrap();
        assert!(!has_address_sanitizer(&path));
    }

    #[test]
    fn the_program_stands_behind_the_emulators_options() {
        assert_eq!(program_of(b"qemu\0-0\0ls\0--\0/bin/ls\0--\0x\0"), Some(&b"/bin/ls"[..]));
        assert_eq!(program_of(b"qemu\0-0\0ls\0"), None);
        assert_eq!(program_of(b"qemu\0--\0"), None);
    }
}

//! Names for allocation sites: the function a call site lies in, from the symbol tables of the mapped files.

use std::collections::HashMap;
use std::path::Path;

/// Largest file whose symbols are read; beyond, sites are named by module and offset.
const MAX_FILE: u64 = 1 << 30;

/// A mapped part of a file.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    name: String,
}

/// The files mapped by one process.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    mappings: Vec<Mapping>,
}

impl Modules {
    /// Part of a file was mapped; whatever lay there before is gone.
    pub fn map(&mut self, start: u64, bytes: u64, offset: u64, name: &str) {
        let end = start.saturating_add(bytes);
        self.mappings.retain(|m| m.start < start || m.end > end);
        if name.starts_with('/') {
            // The newest first: it hides older ones that it overlaps in part.
            self.mappings.insert(0, Mapping { start, end, offset, name: name.to_owned() });
        }
    }

    fn find(&self, address: u64) -> Option<(&str, u64)> {
        let mapping = self.mappings.iter().find(|m| m.start <= address && address < m.end)?;
        Some((&mapping.name, address - mapping.start + mapping.offset))
    }
}

/// Symbols of the files looked up so far.
#[derive(Debug, Default)]
pub struct Symbols {
    files: HashMap<String, File>,
}

/// What is read of a program or a library.
#[derive(Debug, Default)]
pub struct File {
    /// Loadable segments: file offset, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// Functions by address: address, bytes, name.
    functions: Vec<(u64, u64, String)>,
    build_id: Vec<u8>,
}

impl Symbols {
    /// The name of a call site: `function+0x12`, else `module+0x1234`, else the address.
    pub fn name(&mut self, modules: &Modules, address: u64) -> String {
        let Some((path, offset)) = modules.find(address) else {
            return format!("{address:#x}");
        };
        let file = self.files.entry(path.to_owned()).or_insert_with(|| File::open(path).unwrap_or_default());
        if let Some((function, distance)) = file.function_at(offset) {
            return format!("{function}+{distance:#x}");
        }
        let module = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        format!("{module}+{offset:#x}")
    }

    /// The name of code at an address of a file, as the file numbers its addresses: a function's, else module and address.
    pub fn name_in(&mut self, path: &str, address: u64) -> String {
        let file = self.files.entry(path.to_owned()).or_insert_with(|| File::open(path).unwrap_or_default());
        if let Some((function, distance)) = file.function_of(address) {
            return format!("{function}+{distance:#x}");
        }
        let module = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        format!("{module}+{address:#x}")
    }
}

impl File {
    /// Reads a file; nothing where it is none of the kind.
    pub fn open(path: &str) -> Option<File> {
        if std::fs::metadata(path).ok()?.len() > MAX_FILE {
            return None;
        }
        File::parse(&std::fs::read(path).ok()?)
    }

    /// Reads the program headers and symbol tables of a little-endian 64-bit ELF file (System V ABI, chapters 4
    /// and 5). `None` where a structure does not lie inside the file.
    fn parse(bytes: &[u8]) -> Option<File> {
        const PT_LOAD: u64 = 1;
        const PT_NOTE: u64 = 4;
        const SHT_SYMTAB: u64 = 2;
        const SHT_DYNSYM: u64 = 11;
        const STT_FUNC: u64 = 2;
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let mut file = File::default();
        let segments = number(bytes, 32, 8)?;
        for i in 0..number(bytes, 56, 2)? {
            let at = segments.checked_add(i * number(bytes, 54, 2)?)?;
            let kind = number(bytes, at, 4)?;
            let field = |offset| number(bytes, at.saturating_add(offset), 8);
            if kind == PT_LOAD {
                file.segments.push((field(8)?, field(32)?, field(16)?));
            } else if kind == PT_NOTE
                && file.build_id.is_empty()
                && let Some(id) = build_id(bytes, field(8)?, field(32)?, field(48)?)
            {
                file.build_id = id.to_vec();
            }
        }
        let sections = number(bytes, 40, 8)?;
        let section_bytes = number(bytes, 58, 2)?;
        let section_count = number(bytes, 60, 2)?;
        for i in 0..section_count {
            let at = sections.checked_add(i * section_bytes)?;
            if !matches!(number(bytes, at.saturating_add(4), 4)?, SHT_SYMTAB | SHT_DYNSYM) {
                continue;
            }
            let (start, length) =
                (number(bytes, at.saturating_add(24), 8)?, number(bytes, at.saturating_add(32), 8)?);
            let names = sections.checked_add(number(bytes, at.saturating_add(40), 4)? * section_bytes)?;
            let names = number(bytes, names.saturating_add(24), 8)?;
            for symbol in (0..length / 24).map(|s| start.saturating_add(s * 24)) {
                let (kind, value) = (
                    number(bytes, symbol.saturating_add(4), 1)? & 15,
                    number(bytes, symbol.saturating_add(8), 8)?,
                );
                if kind != STT_FUNC || value == 0 {
                    continue;
                }
                let name = names.checked_add(number(bytes, symbol, 4)?)?;
                let name = bytes.get(usize::try_from(name).ok()?..)?;
                let name = &name[..name.iter().position(|&b| b == 0)?];
                let size = number(bytes, symbol.saturating_add(16), 8)?;
                file.functions.push((value, size, String::from_utf8_lossy(name).into_owned()));
            }
        }
        file.functions.sort();
        Some(file)
    }

    /// Whether anything of it is loaded.
    pub fn has_code(&self) -> bool {
        !self.segments.is_empty()
    }

    /// What its linker called this build; empty where it did not.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// Addresses that are `distance` behind the beginnings of the functions of this name, and within them.
    pub fn addresses_of(&self, function: &str, distance: u64) -> Vec<u64> {
        let named = self.functions.iter().filter(|(_, size, name)| name == function && distance <= *size);
        let mut found: Vec<u64> = named.filter_map(|(address, _, _)| address.checked_add(distance)).collect();
        found.dedup();
        found
    }

    /// The address of what is at an offset of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let &(start, _, address) =
            self.segments.iter().find(|(start, bytes, _)| offset >= *start && offset - start < *bytes)?;
        address.checked_add(offset - start)
    }

    /// Where in the file an address is.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |(_, bytes, start): &&(u64, u64, u64)| address >= *start && address - start < *bytes;
        let &(offset, _, start) = self.segments.iter().find(holds)?;
        offset.checked_add(address - start)
    }

    /// Names of all functions.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|(_, _, name)| name.as_str())
    }

    fn function_at(&self, offset: u64) -> Option<(&str, u64)> {
        self.function_of(self.address_of(offset)?)
    }

    fn function_of(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.functions.partition_point(|(value, _, _)| *value <= address);
        let (value, size, name) = self.functions[..after].last()?;
        // A call in a function's last instruction returns to the byte behind it.
        (address - value <= *size).then_some((name, address - value))
    }
}

/// The build identifier in a segment of notes (System V ABI; `NT_GNU_BUILD_ID` of the owner `GNU`).
fn build_id(file: &[u8], start: u64, length: u64, align: u64) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u64 = 3;
    let align = if align == 8 { 8 } else { 4 };
    let end = start.checked_add(length)?;
    let notes = file.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
    let mut at = 0u64;
    loop {
        let word = |offset| number(notes, at + offset, 4);
        let (name, description, kind) = (word(0)?, word(4)?, word(8)?);
        let name_at = at + 12;
        let description_at = (name_at + name).next_multiple_of(align);
        let bytes = notes.get(description_at as usize..(description_at + description) as usize)?;
        if kind == NT_GNU_BUILD_ID && notes.get(name_at as usize..(name_at + name) as usize)? == b"GNU\0" {
            return Some(bytes);
        }
        at = (description_at + description).next_multiple_of(align);
    }
}

/// A little-endian number of `bytes` bytes at `at`.
fn number(file: &[u8], at: u64, bytes: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let field = file.get(at..at.checked_add(bytes)?)?;
    let mut all = [0; 8];
    all[..bytes].copy_from_slice(field);
    Some(u64::from_le_bytes(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_of_this_test() {}

    #[test]
    fn finds_a_function_of_this_program() {
        let path = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut modules = Modules::default();
        for line in maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (start, end) = fields[0].split_once('-').unwrap();
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            modules.map(hex(start), hex(end) - hex(start), hex(fields[2]), path.to_str().unwrap());
        }
        let address = a_function_of_this_test as fn() as usize as u64;
        let name = Symbols::default().name(&modules, address);
        assert!(name.contains("a_function_of_this_test") && name.ends_with("+0x0"), "{name}");
        assert_eq!(Symbols::default().name(&modules, 1), "0x1");
    }

    #[test]
    fn later_mappings_hide_earlier_ones() {
        let mut modules = Modules::default();
        modules.map(0x1000, 0x4000, 0, "/no/such/a");
        modules.map(0x2000, 0x1000, 0x500, "/no/such/b");
        let mut symbols = Symbols::default();
        assert_eq!(symbols.name(&modules, 0x1010), "a+0x10");
        assert_eq!(symbols.name(&modules, 0x2010), "b+0x510");
        modules.map(0x1000, 0x4000, 0, "");
        assert_eq!(symbols.name(&modules, 0x2010), "0x2010");
    }

    #[test]
    fn torn_files_are_refused() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        for length in (0..4096).step_by(7) {
            File::parse(&bytes[..length]);
        }
        let mut odd = bytes[..64].to_vec();
        odd[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(File::parse(&odd).is_none());
    }
}

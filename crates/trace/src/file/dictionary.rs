//! Descriptions of accesses: everything but the address, numbered within a chunk.
//!
//! A program has few of them (about a hundred in a hundred thousand accesses, a few thousand when instruction addresses are part of
//! them), so a byte or two per access names one, in sequences that repeat as the program's loops do.

use super::predictor::spread;
use super::varint::{self, Cursor};
use crate::{AccessKind, Batch};

/// Everything about an access but its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) size: u8,
    pub(super) kind: AccessKind,
    pub(super) depends_on: u8,
    pub(super) instructions: u16,
    /// 0 where the batch has no instruction addresses.
    pub(super) pc: u64,
}

impl Description {
    /// All but the instruction address, and the [`spread`] of the code, in a word.
    #[inline]
    pub(super) fn pack(&self, code: u32) -> Packed {
        Packed(self.key() | u64::from(spread(code)) << 40)
    }

    #[inline]
    fn key(&self) -> u64 {
        u64::from(self.size)
            | (self.kind as u64) << 8
            | u64::from(self.depends_on) << 16
            | u64::from(self.instructions) << 24
    }
}

/// A description as the decoder's loop wants it: one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed(u64);

impl Packed {
    #[inline(always)]
    pub(super) fn size(self) -> u8 {
        self.0 as u8
    }

    #[inline(always)]
    pub(super) fn kind(self) -> AccessKind {
        if self.0 >> 8 & 1 == 1 { AccessKind::Write } else { AccessKind::Read }
    }

    #[inline(always)]
    pub(super) fn depends_on(self) -> u8 {
        (self.0 >> 16) as u8
    }

    #[inline(always)]
    pub(super) fn instructions(self) -> u16 {
        (self.0 >> 24) as u16
    }

    #[inline(always)]
    pub(super) fn spread(self) -> u32 {
        (self.0 >> 40) as u32
    }
}

/// The writer's side: numbers descriptions in the order of their first appearance.
///
/// Hash tables with linear probing, because this lookup is much of what encoding an access costs. They are kept sparse: the
/// same few descriptions are looked up over and over, and each should be found at the first probe. Descriptions without
/// an instruction address, which most traces have alone, have a table in which a slot is one word.
#[derive(Debug)]
pub(super) struct DictionaryBuilder {
    entries: Vec<Description>,
    plain: Table<u64>,
    with_pc: Table<Slot>,
}

const FIRST_SLOTS: usize = 2048;
/// At most one slot in this many is in use.
const SPARSITY: usize = 4;
/// Bits of a key; in a plain slot, the code plus one lies above them.
const KEY_BITS: u32 = 40;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

/// A table of slots, a power of two of them.
#[derive(Debug)]
struct Table<S> {
    slots: Vec<S>,
    used: usize,
}

/// A slot with an instruction address: key, address, and code plus one, 0 where it is free.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    pc: u64,
    code: u32,
}

/// What a table holds: its default is a free slot.
trait Entry: Copy + Default {
    fn new(description: &Description, code: u32) -> Self;
    /// The code; `None` for a free slot.
    fn code(self) -> Option<u32>;
    /// The code, if this is the description's slot.
    fn code_of(self, description: &Description) -> Option<u32>;
    fn hash(description: &Description) -> u64;
}

impl Entry for u64 {
    #[inline(always)]
    fn new(description: &Description, code: u32) -> u64 {
        description.key() | u64::from(code + 1) << KEY_BITS
    }

    #[inline(always)]
    fn code(self) -> Option<u32> {
        ((self >> KEY_BITS) as u32).checked_sub(1)
    }

    #[inline(always)]
    fn code_of(self, description: &Description) -> Option<u32> {
        // No free slot has a description's key, whose size is not 0.
        ((self ^ description.key()) & KEY_MASK == 0).then(|| (self >> KEY_BITS) as u32 - 1)
    }

    #[inline(always)]
    fn hash(description: &Description) -> u64 {
        description.key().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Entry for Slot {
    #[inline(always)]
    fn new(description: &Description, code: u32) -> Slot {
        Slot { key: description.key(), pc: description.pc, code: code + 1 }
    }

    #[inline(always)]
    fn code(self) -> Option<u32> {
        self.code.checked_sub(1)
    }

    #[inline(always)]
    fn code_of(self, description: &Description) -> Option<u32> {
        let same = self.key == description.key() && self.pc == description.pc && self.code != 0;
        same.then(|| self.code - 1)
    }

    #[inline(always)]
    fn hash(description: &Description) -> u64 {
        <u64 as Entry>::hash(description) ^ description.pc.wrapping_mul(0xff51_afd7_ed55_8ccd)
    }
}

impl<S: Entry> Default for Table<S> {
    fn default() -> Table<S> {
        Table { slots: vec![S::default(); FIRST_SLOTS], used: 0 }
    }
}

impl<S: Entry> Table<S> {
    fn clear(&mut self) {
        if self.used > 0 {
            self.slots.clear();
            self.slots.resize(FIRST_SLOTS, S::default());
            self.used = 0;
        }
    }

    /// The code of a description; a new one joins `entries`.
    #[inline(always)]
    fn code(&mut self, description: Description, entries: &mut Vec<Description>) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (S::hash(&description) >> 32) as usize & mask;
        loop {
            let slot = self.slots[at];
            if let Some(code) = slot.code_of(&description) {
                return code;
            }
            if slot.code().is_none() {
                entries.push(description);
                let code = entries.len() as u32 - 1;
                self.insert(at, S::new(&description, code), entries);
                return code;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn insert(&mut self, at: usize, slot: S, entries: &[Description]) {
        self.slots[at] = slot;
        self.used += 1;
        if SPARSITY * self.used <= self.slots.len() {
            return;
        }
        let old = std::mem::take(&mut self.slots);
        self.slots.resize(2 * old.len(), S::default());
        let mask = self.slots.len() - 1;
        for slot in old {
            let Some(code) = slot.code() else { continue };
            let mut at = (S::hash(&entries[code as usize]) >> 32) as usize & mask;
            while self.slots[at].code().is_some() {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

impl Default for DictionaryBuilder {
    fn default() -> DictionaryBuilder {
        DictionaryBuilder { entries: Vec::new(), plain: Table::default(), with_pc: Table::default() }
    }
}

impl DictionaryBuilder {
    /// Forgets all descriptions: a chunk begins.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.plain.clear();
        self.with_pc.clear();
    }

    /// Number of descriptions.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends the code of every access of `batch` to `codes`.
    pub(super) fn encode(&mut self, batch: &Batch, codes: &mut Vec<u32>) {
        let columns = batch.size.iter().zip(&batch.kind).zip(&batch.depends_on).zip(&batch.instructions);
        let DictionaryBuilder { entries, plain, with_pc } = self;
        // Two loops, so that traces without instruction addresses do not pay for them.
        if batch.pc.is_empty() {
            codes.extend(columns.map(|(((&size, &kind), &depends_on), &instructions)| {
                plain.code(Description { size, kind, depends_on, instructions, pc: 0 }, entries)
            }));
        } else {
            codes.extend(columns.zip(&batch.pc).map(
                |((((&size, &kind), &depends_on), &instructions), &pc)| {
                    with_pc.code(Description { size, kind, depends_on, instructions, pc }, entries)
                },
            ));
        }
    }

    /// Appends the dictionary's bytes: per description size, kind, dependence, instructions and the step of the
    /// instruction address from the previous description's.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut pc = 0;
        for entry in &self.entries {
            out.extend([entry.size, entry.kind as u8, entry.depends_on]);
            out.extend(entry.instructions.to_le_bytes());
            varint::put_delta(out, pc, entry.pc);
            pc = entry.pc;
        }
    }
}

/// The reader's side, by code.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    pub(super) packed: Vec<Packed>,
    pub(super) pc: Vec<u64>,
}

impl Dictionary {
    /// Replaces the content by the `count` descriptions in `bytes`.
    pub(super) fn read(&mut self, bytes: &[u8], count: usize) -> Result<(), String> {
        // Six bytes is the least a description takes; the check bounds the memory below.
        if count.saturating_mul(6) > bytes.len() {
            return Err(format!(
                "expected {count} descriptions, but there are only {} bytes of them",
                bytes.len()
            ));
        }
        self.packed.clear();
        self.pc.clear();
        let mut cursor = Cursor::new(bytes);
        let mut pc = 0;
        for code in 0..count {
            let size = cursor.byte()?;
            if size == 0 {
                return Err(format!("description {code} is of zero bytes"));
            }
            let kind = match cursor.byte()? {
                0 => AccessKind::Read,
                1 => AccessKind::Write,
                other => return Err(format!("description {code}: expected kind 0 or 1, found {other}")),
            };
            let depends_on = cursor.byte()?;
            let instructions = u16::from_le_bytes([cursor.byte()?, cursor.byte()?]);
            pc = cursor.delta(pc)?;
            let description = Description { size, kind, depends_on, instructions, pc };
            self.packed.push(description.pack(code as u32));
            self.pc.push(pc);
        }
        match cursor.remaining() {
            0 => Ok(()),
            left => Err(format!("{left} bytes follow the {count} descriptions")),
        }
    }

    /// Number of descriptions.
    pub(super) fn len(&self) -> usize {
        self.packed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_descriptions_share_a_code_beyond_the_table_s_first_size() {
        let mut batch = Batch::default();
        for i in 0..5000u16 {
            batch.push(0, 1 + (i % 5) as u8, AccessKind::Read, 0, i / 2);
        }
        let with_pc = Batch { pc: (0..5000).map(|i| 0x40_0000 + i / 3).collect(), ..batch.clone() };
        let mut builder = DictionaryBuilder::default();
        // Twice: the second time nothing is new.
        for _ in 0..2 {
            let mut codes = Vec::new();
            builder.encode(&batch, &mut codes);
            builder.encode(&with_pc, &mut codes);
            assert!(codes.iter().copied().eq(0..10_000));
        }
        assert_eq!(builder.len(), 10_000);

        let mut bytes = Vec::new();
        builder.write(&mut bytes);
        let mut dictionary = Dictionary::default();
        dictionary.read(&bytes, 10_000).unwrap();
        assert_eq!(dictionary.len(), 10_000);
        assert_eq!((dictionary.packed[4].size(), dictionary.packed[4999].instructions()), (5, 2499));
        assert_eq!((dictionary.pc[4999], dictionary.pc[9999]), (0, 0x40_0000 + 4999 / 3));
    }

    #[test]
    fn damage_is_named() {
        let mut dictionary = Dictionary::default();
        assert!(dictionary.read(&[8, 2, 0, 0, 0, 0], 1).unwrap_err().contains("kind 0 or 1"));
        assert!(dictionary.read(&[0, 0, 0, 0, 0, 0], 1).unwrap_err().contains("zero bytes"));
        assert!(dictionary.read(&[8, 0, 0, 0, 0, 0, 9], 1).unwrap_err().contains("1 bytes follow"));
        assert!(dictionary.read(&[], usize::MAX).unwrap_err().contains("only 0 bytes"));
    }
}

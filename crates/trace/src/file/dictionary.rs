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
/// A hash table with linear probing, because this lookup is much of what encoding an access costs. It is kept sparse:
/// the same few descriptions are looked up over and over, and each should be found at the first probe.
#[derive(Debug)]
pub(super) struct DictionaryBuilder {
    entries: Vec<Description>,
    slots: Vec<Slot>,
}

/// A key and its code plus one; 0 for a free slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    pc: u64,
    code: u32,
}

const FIRST_SLOTS: usize = 2048;
/// At most one slot in this many is in use.
const SPARSITY: usize = 4;

impl Default for DictionaryBuilder {
    fn default() -> DictionaryBuilder {
        DictionaryBuilder { entries: Vec::new(), slots: vec![Slot::default(); FIRST_SLOTS] }
    }
}

impl DictionaryBuilder {
    /// Forgets all descriptions: a chunk begins.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.slots.clear();
        self.slots.resize(FIRST_SLOTS, Slot::default());
    }

    /// Number of descriptions.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends the code of every access of `batch` to `codes`, and [`spread`] of each to `spreads`.
    pub(super) fn encode(&mut self, batch: &Batch, codes: &mut Vec<u32>, spreads: &mut Vec<u32>) {
        let begin = codes.len();
        codes.resize(begin + batch.len(), 0);
        let columns = batch.size.iter().zip(&batch.kind).zip(&batch.depends_on).zip(&batch.instructions);
        let columns = codes[begin..].iter_mut().zip(columns);
        // Two loops, so that traces without instruction addresses do not pay for them.
        if batch.pc.is_empty() {
            for (code, (((&size, &kind), &depends_on), &instructions)) in columns {
                *code = self.code(Description { size, kind, depends_on, instructions, pc: 0 });
            }
        } else {
            for ((code, (((&size, &kind), &depends_on), &instructions)), &pc) in columns.zip(&batch.pc) {
                *code = self.code(Description { size, kind, depends_on, instructions, pc });
            }
        }
        spreads.extend(codes[begin..].iter().map(|&code| spread(code)));
    }

    #[inline(always)]
    fn code(&mut self, description: Description) -> u32 {
        let (key, pc) = (description.key(), description.pc);
        let mut at = self.home(key, pc);
        loop {
            let slot = self.slots[at];
            if slot.key == key && slot.pc == pc && slot.code != 0 {
                return slot.code - 1;
            }
            if slot.code == 0 {
                return self.insert(at, description);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(always)]
    fn home(&self, key: u64, pc: u64) -> usize {
        let hash = (key ^ pc.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    #[cold]
    fn insert(&mut self, at: usize, description: Description) -> u32 {
        self.entries.push(description);
        let code = self.entries.len() as u32;
        self.slots[at] = Slot { key: description.key(), pc: description.pc, code };
        if SPARSITY * self.entries.len() > self.slots.len() {
            self.grow();
        }
        code - 1
    }

    fn grow(&mut self) {
        self.slots = vec![Slot::default(); 2 * self.slots.len()];
        for (index, entry) in self.entries.iter().enumerate() {
            let mut at = self.home(entry.key(), entry.pc);
            while self.slots[at].code != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = Slot { key: entry.key(), pc: entry.pc, code: index as u32 + 1 };
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
        let mut builder = DictionaryBuilder::default();
        let (mut codes, mut spreads, mut again) = (Vec::new(), Vec::new(), Vec::new());
        builder.encode(&batch, &mut codes, &mut spreads);
        builder.encode(&batch, &mut again, &mut spreads);
        assert_eq!(codes, again);
        assert_eq!(codes[..3], [0, 1, 2]);
        assert_eq!(builder.len(), 5000);

        let mut bytes = Vec::new();
        builder.write(&mut bytes);
        let mut dictionary = Dictionary::default();
        dictionary.read(&bytes, 5000).unwrap();
        assert_eq!(dictionary.len(), 5000);
        assert_eq!((dictionary.packed[4].size(), dictionary.packed[4999].instructions()), (5, 2499));
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

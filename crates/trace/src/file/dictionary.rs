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
    #[inline]
    fn packed(&self) -> u64 {
        u64::from(self.size)
            | u64::from(self.depends_on) << 8
            | u64::from(self.instructions) << 16
            | (self.kind as u64) << 32
    }
}

/// The writer's side: numbers descriptions in the order of their first appearance.
///
/// A hash table with linear probing, because this lookup is most of what encoding an access costs.
#[derive(Debug)]
pub(super) struct DictionaryBuilder {
    entries: Vec<Description>,
    /// Code plus one, 0 for free; a power of two of them, at most half in use.
    slots: Vec<u32>,
}

impl Default for DictionaryBuilder {
    fn default() -> DictionaryBuilder {
        DictionaryBuilder { entries: Vec::new(), slots: vec![0; 1024] }
    }
}

impl DictionaryBuilder {
    /// Forgets all descriptions: a chunk begins.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.slots.fill(0);
    }

    /// Number of descriptions.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends the code of every access of `batch` to `codes`, and [`spread`] of each to `spreads`.
    pub(super) fn encode(&mut self, batch: &Batch, codes: &mut Vec<u32>, spreads: &mut Vec<u32>) {
        let columns = batch.size.iter().zip(&batch.kind).zip(&batch.depends_on).zip(&batch.instructions);
        for (index, (((&size, &kind), &depends_on), &instructions)) in columns.enumerate() {
            let pc = batch.pc.get(index).copied().unwrap_or(0);
            let code = self.code(Description { size, kind, depends_on, instructions, pc });
            codes.push(code);
            spreads.push(spread(code));
        }
    }

    #[inline]
    fn code(&mut self, description: Description) -> u32 {
        let mut at = self.home(&description);
        loop {
            match self.slots[at] {
                0 => return self.insert(at, description),
                code => {
                    if self.entries[code as usize - 1] == description {
                        return code - 1;
                    }
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn home(&self, description: &Description) -> usize {
        let key = description.packed() ^ description.pc.wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    #[cold]
    fn insert(&mut self, at: usize, description: Description) -> u32 {
        self.entries.push(description);
        self.slots[at] = self.entries.len() as u32;
        if 2 * self.entries.len() > self.slots.len() {
            self.grow();
        }
        self.entries.len() as u32 - 1
    }

    fn grow(&mut self) {
        self.slots = vec![0; 2 * self.slots.len()];
        for (index, entry) in self.entries.iter().enumerate() {
            let mut at = self.home(entry);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = index as u32 + 1;
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

/// The reader's side: a column per field, so that each of a batch's columns is filled by one simple loop.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    pub(super) size: Vec<u8>,
    pub(super) kind: Vec<AccessKind>,
    pub(super) depends_on: Vec<u8>,
    pub(super) instructions: Vec<u16>,
    pub(super) pc: Vec<u64>,
    /// [`spread`] of the code.
    pub(super) spread: Vec<u32>,
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
        *self = Dictionary::default();
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
            self.size.push(size);
            self.kind.push(kind);
            self.depends_on.push(cursor.byte()?);
            self.instructions.push(u16::from_le_bytes([cursor.byte()?, cursor.byte()?]));
            pc = cursor.delta(pc)?;
            self.pc.push(pc);
            self.spread.push(spread(code as u32));
        }
        match cursor.remaining() {
            0 => Ok(()),
            left => Err(format!("{left} bytes follow the {count} descriptions")),
        }
    }

    /// Number of descriptions.
    pub(super) fn len(&self) -> usize {
        self.size.len()
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
        assert_eq!((dictionary.size[4], dictionary.instructions[4999]), (5, 2499));
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

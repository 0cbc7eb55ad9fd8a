//! Descriptions of accesses: everything but the address, numbered within a chunk.
//!
//! A program has few of them (about a hundred in a hundred thousand accesses, a few thousand when instruction addresses are
//! part of them), so a byte or two per access names one, in sequences that repeat as the program's loops do.

use super::packed::{KEY_BITS, KEY_MASK, Packed};
use super::varint::{self, Cursor};
use crate::{AccessKind, Batch};
use std::ops::Range;

/// A description with its instruction address, which is 0 where the batch has none.
#[derive(Clone, Copy, Debug)]
struct Description {
    key: Packed,
    pc: u64,
}

/// The writer's side: numbers descriptions in the order of their first appearance.
///
/// Hash tables with linear probing, because this lookup is much of what encoding an access costs. They are kept sparse: the
/// same few descriptions are looked up over and over, and each should be found at the first probe. Descriptions without
/// an instruction address, which most traces have alone, have a table in which a slot is one word.
#[derive(Debug, Default)]
pub(super) struct DictionaryBuilder {
    entries: Vec<Description>,
    plain: Table<u64>,
    with_pc: Table<Slot>,
}

const FIRST_SLOTS: usize = 2048;
/// At most one slot in this many is in use.
const SPARSITY: usize = 4;

/// A table of slots, a power of two of them.
#[derive(Debug)]
struct Table<S> {
    slots: Vec<S>,
    used: usize,
}

/// A slot with an instruction address; its size is 0 where it is free.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: Packed,
    pc: u64,
    code: u32,
}

/// What a table holds: its default is a free slot.
trait Entry: Copy + Default {
    fn new(key: Packed, pc: u64, code: u32) -> Self;
    fn code(self) -> u32;
    fn is_free(self) -> bool;
    /// Whether this is the description's slot. A free one is no description's: their sizes are not 0.
    fn is(self, key: Packed, pc: u64) -> bool;
    /// A hash of the description. The lowest bits of the hash are the best.
    fn hash(key: Packed, pc: u64) -> u64;
}

/// The code lies above the key. The instruction address is always 0.
impl Entry for u64 {
    #[inline(always)]
    fn new(key: Packed, _pc: u64, code: u32) -> u64 {
        key.0 | u64::from(code) << KEY_BITS
    }

    #[inline(always)]
    fn code(self) -> u32 {
        (self >> KEY_BITS) as u32
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        self == 0
    }

    #[inline(always)]
    fn is(self, key: Packed, _pc: u64) -> bool {
        (self ^ key.0) & KEY_MASK == 0
    }

    #[inline(always)]
    fn hash(key: Packed, _pc: u64) -> u64 {
        key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }
}

impl Entry for Slot {
    #[inline(always)]
    fn new(key: Packed, pc: u64, code: u32) -> Slot {
        Slot { key, pc, code }
    }

    #[inline(always)]
    fn code(self) -> u32 {
        self.code
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        self.key.size() == 0
    }

    #[inline(always)]
    fn is(self, key: Packed, pc: u64) -> bool {
        self.key == key && self.pc == pc
    }

    #[inline(always)]
    fn hash(key: Packed, pc: u64) -> u64 {
        <u64 as Entry>::hash(key, 0) ^ pc.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32
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

    /// Appends the codes of up to [`KEYS`] descriptions; new ones join `entries`.
    #[inline(always)]
    fn codes(
        &mut self,
        keys: &[Packed],
        pc: impl Fn(usize) -> u64,
        entries: &mut Vec<Description>,
        codes: &mut Vec<u32>,
    ) {
        let mut found = [0; KEYS];
        let mut done = 0;
        while done < keys.len() {
            // Nearly all are found at the first probe, and nothing is written then.
            let slots = self.slots.as_slice();
            let mask = slots.len() - 1;
            let mut at = done;
            for (&key, code) in keys[done..].iter().zip(&mut found[done..]) {
                let slot = slots[S::hash(key, pc(at)) as usize & mask];
                if !slot.is(key, pc(at)) {
                    break;
                }
                *code = slot.code();
                at += 1;
            }
            done = at;
            if let Some(&key) = keys.get(done) {
                found[done] = self.code(key, pc(done), entries);
                done += 1;
            }
        }
        codes.extend_from_slice(&found[..keys.len()]);
    }

    /// The code of a description; a new one joins `entries`.
    #[inline(never)]
    fn code(&mut self, key: Packed, pc: u64, entries: &mut Vec<Description>) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = S::hash(key, pc) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.is(key, pc) {
                return slot.code();
            }
            if slot.is_free() {
                return self.insert(at, Description { key, pc }, entries);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn insert(&mut self, at: usize, new: Description, entries: &mut Vec<Description>) -> u32 {
        let code = entries.len() as u32;
        entries.push(new);
        self.slots[at] = S::new(new.key, new.pc, code);
        self.used += 1;
        if SPARSITY * self.used > self.slots.len() {
            self.grow(entries);
        }
        code
    }

    fn grow(&mut self, entries: &[Description]) {
        let old = std::mem::take(&mut self.slots);
        self.slots.resize(2 * old.len(), S::default());
        let mask = self.slots.len() - 1;
        for slot in old {
            if slot.is_free() {
                continue;
            }
            let Description { key, pc } = entries[slot.code() as usize];
            let mut at = S::hash(key, pc) as usize & mask;
            while !self.slots[at].is_free() {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
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
        let DictionaryBuilder { entries, plain, with_pc } = self;
        codes.reserve(batch.len());
        // Keys first, some at a time.
        let mut keys = [Packed::default(); KEYS];
        for begin in (0..batch.len()).step_by(KEYS) {
            let some = begin..batch.len().min(begin + KEYS);
            pack(batch, some.clone(), &mut keys);
            let keys = &keys[..some.len()];
            // Two loops, so that traces without instruction addresses do not pay for them.
            if batch.pc.is_empty() {
                plain.codes(keys, |_| 0, entries, codes);
            } else {
                let pcs = &batch.pc[some];
                with_pc.codes(keys, |i| pcs[i], entries, codes);
            }
        }
    }

    /// Appends the dictionary's bytes: per description size, kind, dependence, instructions and the step of the
    /// instruction address from the previous description's.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut pc = 0;
        for entry in &self.entries {
            out.extend([entry.key.size(), entry.key.kind() as u8, entry.key.depends_on()]);
            out.extend(entry.key.instructions().to_le_bytes());
            varint::put_delta(out, pc, entry.pc);
            pc = entry.pc;
        }
    }
}

/// Keys made at once.
const KEYS: usize = 64;

/// The descriptions of some accesses, at most [`KEYS`], without their instruction addresses.
fn pack(batch: &Batch, some: Range<usize>, keys: &mut [Packed; KEYS]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: asked just now.
        return unsafe { pack_wide(batch, some, keys) };
    }
    pack_as_it_comes(batch, some, keys);
}

/// As [`pack`], in wider vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn pack_wide(batch: &Batch, some: Range<usize>, keys: &mut [Packed; KEYS]) {
    pack_as_it_comes(batch, some, keys);
}

#[inline(always)]
fn pack_as_it_comes(batch: &Batch, some: Range<usize>, keys: &mut [Packed; KEYS]) {
    let columns = batch.size[some.clone()].iter().zip(&batch.kind[some.clone()]);
    let columns = columns.zip(&batch.depends_on[some.clone()]).zip(&batch.instructions[some]);
    for (key, (((&size, &kind), &depends_on), &instructions)) in keys.iter_mut().zip(columns) {
        *key = Packed::new(size, kind, depends_on, instructions);
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
            self.packed.push(Packed::new(size, kind, depends_on, instructions).with(code as u32));
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

//! Records that are no accesses: a head and its payload, in whole 16-byte records of the same chunk.
//!
//! The head's first word holds the operation in its low 16 bits and the number of payload words above; its second
//! word is 0, which no access has, because entry number 0 names no instruction.

/// What a control record says. Payload words are listed in order; `sequence` words come from
/// [`crate::layout::Header::sequence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Operation {
    /// The stream begins: sequence, thread id, instruction counts are exact (1).
    Spawn = 1,
    /// Events up to this one had happened before what follows: sequence.
    After = 2,
    /// Instructions beyond what an access's record holds: count.
    Compute = 3,
    /// sequence, start, bytes, kind | protection << 8, file offset, name…
    Map = 4,
    /// sequence, start, bytes.
    Unmap = 5,
    /// sequence, old start, old bytes, new start, new bytes.
    Remap = 6,
    /// sequence, start, bytes, protection bits.
    Protect = 7,
    /// sequence, start, bytes, advice.
    Advise = 8,
    /// sequence, address, bytes, call site, name…
    Alloc = 9,
    /// sequence, address.
    Free = 10,
    /// sequence, address.
    ReallocBegin = 11,
    /// sequence, new address or 0, bytes.
    ReallocEnd = 12,
    /// start, bytes, 1 if the kernel wrote the program's memory.
    Kernel = 13,
    /// nanoseconds.
    Wait = 14,
    /// sequence or 0, marker operation, value, name…
    Mark = 15,
    /// A program is about to be replaced: 1 if the new one runs under the recorder, name….
    ExecBegin = 16,
    /// Replacing it failed.
    ExecFailed = 17,
    /// The thread is about to end, with its process if the word is 1.
    Exit = 18,
    /// The preload library is there: 1 if it reports allocations.
    Hello = 19,
    /// The thread is about to let others go on that wait for it: sequence.
    Wake = 20,
    /// A process that the thread waited for has ended: its id, as the thread sees it.
    ChildEnded = 21,
}

impl Operation {
    /// The operation of the number in a record's head.
    pub const fn from_raw(raw: u16) -> Option<Operation> {
        use Operation::*;
        Some(match raw {
            1 => Spawn,
            2 => After,
            3 => Compute,
            4 => Map,
            5 => Unmap,
            6 => Remap,
            7 => Protect,
            8 => Advise,
            9 => Alloc,
            10 => Free,
            11 => ReallocBegin,
            12 => ReallocEnd,
            13 => Kernel,
            14 => Wait,
            15 => Mark,
            16 => ExecBegin,
            17 => ExecFailed,
            18 => Exit,
            19 => Hello,
            20 => Wake,
            21 => ChildEnded,
            _ => return None,
        })
    }

    /// Whether the first payload word is a global sequence number.
    pub const fn is_sequenced(self) -> bool {
        use Operation::*;
        matches!(
            self,
            Spawn
                | Map
                | Unmap
                | Remap
                | Protect
                | Advise
                | Alloc
                | Free
                | ReallocBegin
                | ReallocEnd
                | Mark
                | Wake
        )
    }
}

/// The head's first word.
pub const fn head(operation: Operation, payload_words: usize) -> u64 {
    operation as u64 | (payload_words as u64) << 16
}

/// Splits a head's first word into operation and number of payload words.
pub const fn split_head(word: u64) -> (Option<Operation>, usize) {
    (Operation::from_raw(word as u16), (word >> 16) as u32 as usize)
}

/// Records that a control record with this many payload words occupies, its head included.
pub const fn records(payload_words: usize) -> usize {
    1 + payload_words.div_ceil(2)
}

/// What backs a mapping, as the numbers in [`Operation::Map`]: anonymous, shared anonymous, private file, shared
/// file, heap, stack, hugetlbfs.
pub mod map_kind {
    /// Private anonymous memory.
    pub const ANONYMOUS: u64 = 0;
    /// Shared anonymous memory.
    pub const SHARED_ANONYMOUS: u64 = 1;
    /// A private file mapping.
    pub const PRIVATE_FILE: u64 = 2;
    /// A shared file mapping.
    pub const SHARED_FILE: u64 = 3;
    /// Grown by `brk`.
    pub const HEAP: u64 = 4;
    /// A stack.
    pub const STACK: u64 = 5;
    /// `MAP_HUGETLB`.
    pub const HUGE_TLB: u64 = 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_round_trip() {
        for raw in 1..=21 {
            let operation = Operation::from_raw(raw).unwrap();
            assert_eq!(split_head(head(operation, 77)), (Some(operation), 77));
        }
        assert_eq!(Operation::from_raw(0), None);
        assert_eq!(Operation::from_raw(22), None);
        assert_eq!((records(0), records(1), records(2), records(3)), (1, 2, 2, 3));
    }
}

//! What the plugin sends: records of 24 bytes, some with a payload behind them.

use std::io::{self, Read};

/// Bytes of a record.
const RECORD: usize = 24;

/// Longest payload that is believed: names are shorter, and a damaged length must not take memory.
const LONGEST: usize = 1 << 20;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A work-item loads or stores global memory at `code`, after `instructions` others since its last. The store of an
    /// `atomic` is the second half of the instruction that has loaded.
    Access { item: u32, address: u64, bytes: u8, write: bool, atomic: bool, code: u32, instructions: u32 },
    /// A work-item comes to a piece of straight code, which its first instruction names.
    Enter { item: u32, code: u32 },
    /// A work-item ends, after `instructions` since its last access.
    ItemEnd { item: u32, instructions: u32 },
    /// A work-group of so many work-items begins.
    GroupBegin { items: u32 },
    /// The work-group ends.
    GroupEnd,
    /// All work-items of the group have come to a barrier.
    Barrier,
    /// The kernel that begins next gets this buffer as an argument of this name.
    Argument { address: u64, name: String },
    /// A kernel begins, in a call of this thread of the host.
    KernelBegin { thread: u32, name: String, groups: u64 },
    /// The kernel ends.
    KernelEnd,
    /// A buffer appears, allocated by code at `offset` of the file `module`; `initialized` by the host at once.
    Allocate { address: u64, bytes: u64, initialized: bool, module: String, offset: u64 },
    /// A buffer disappears.
    Free { address: u64 },
    /// A thread of the host reads or writes a buffer.
    Host { thread: u32, address: u64, bytes: u64, write: bool },
    /// Oclgrind found a mistake of the program, and has said so.
    Problem,
    /// The program has enqueued a kernel.
    Enqueue { queue: u64 },
    /// A call of a thread begins in which the commands of a queue may run; it `blocks` until they have.
    Run { thread: u32, queue: u64, blocks: bool },
    /// The thread's call has returned.
    Return { thread: u32 },
    /// What a queue gets next waits for what another has got by now.
    Depends { queue: u64, on: u64 },
}

/// A message and the OpenCL context that it is about.
pub type Received = (u16, Message);

/// Reads messages from the plugin's end.
#[derive(Debug)]
pub struct Wire<R> {
    from: R,
}

impl<R: Read> Wire<R> {
    /// Messages of `from`.
    pub fn new(from: R) -> Wire<R> {
        Wire { from }
    }

    /// The next message; none where the program has ended.
    ///
    /// # Errors
    /// Reading failed, or what came is no message.
    pub fn next(&mut self) -> io::Result<Option<Received>> {
        let mut record = [0; RECORD];
        if let Err(error) = self.from.read_exact(&mut record) {
            // A program that is killed may leave half a record.
            return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
        }
        let number =
            |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let (kind, bytes) = (record[0], record[1]);
        let context = u16::from_le_bytes([record[2], record[3]]);
        let (item, code, count) = (number(4), number(16), number(20));
        let address = u64::from(number(8)) | u64::from(number(12)) << 32;
        let message = match kind {
            1 | 2 | 19 => {
                let (write, atomic) = (kind != 1, kind == 19);
                Message::Access { item, address, bytes, write, atomic, code, instructions: count }
            }
            3 => Message::Enter { item, code },
            4 => Message::ItemEnd { item, instructions: count },
            5 => Message::GroupBegin { items: count },
            6 => Message::GroupEnd,
            7 => Message::Barrier,
            8 => Message::KernelBegin { thread: item, name: self.text(count)?, groups: address },
            9 => Message::KernelEnd,
            10 => Message::Argument { address, name: self.text(count)? },
            11 => {
                let (size, offset) = (self.long()?, self.long()?);
                let module = self.text(count.saturating_sub(16))?;
                Message::Allocate { address, bytes: size, initialized: item != 0, module, offset }
            }
            12 => Message::Free { address },
            13 | 14 => Message::Host { thread: item, address, bytes: self.long()?, write: kind == 14 },
            15 => Message::Problem,
            16 => Message::Enqueue { queue: address },
            17 => Message::Run { thread: code, queue: address, blocks: item != 0 },
            18 => Message::Return { thread: code },
            20 => Message::Depends { queue: address, on: u64::from(code) | u64::from(count) << 32 },
            other => {
                let problem = format!("the OpenCL recorder sent a record of kind {other}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
        };
        Ok(Some((context, message)))
    }

    fn long(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.from.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self, bytes: u32) -> io::Result<String> {
        let mut text = vec![0; (bytes as usize).min(LONGEST)];
        self.from.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, bytes: u8, item: u32, address: u64, code: u32, count: u32) -> Vec<u8> {
        let mut record = vec![kind, bytes, 3, 0];
        record.extend(item.to_le_bytes());
        record.extend(address.to_le_bytes());
        record.extend(code.to_le_bytes());
        record.extend(count.to_le_bytes());
        record
    }

    #[test]
    fn records_and_payloads_are_read() {
        let mut sent = record(2, 4, 7, 1 << 48, 5, 9);
        sent.extend(record(19, 8, 7, 2 << 48, 6, 0));
        sent.extend(record(8, 0, 4, 16, 0, 6).into_iter().chain(*b"vecadd"));
        sent.extend(record(14, 0, 4, 2 << 48, 0, 8).into_iter().chain(100u64.to_le_bytes()));
        for (kind, item) in [(16, 0), (17, 1), (18, 0)] {
            sent.extend(record(kind, 0, item, 77, 4, 0));
        }
        sent.extend(record(20, 0, 0, 77, 5, 6));
        let mut wire = Wire::new(&sent[..]);
        let access = |address, bytes, atomic, code, instructions| Message::Access {
            item: 7,
            address,
            bytes,
            write: true,
            atomic,
            code,
            instructions,
        };
        let expected = [
            access(1 << 48, 4, false, 5, 9),
            access(2 << 48, 8, true, 6, 0),
            Message::KernelBegin { thread: 4, name: "vecadd".to_owned(), groups: 16 },
            Message::Host { thread: 4, address: 2 << 48, bytes: 100, write: true },
            Message::Enqueue { queue: 77 },
            Message::Run { thread: 4, queue: 77, blocks: true },
            Message::Return { thread: 4 },
            Message::Depends { queue: 77, on: 6 << 32 | 5 },
        ];
        for message in expected {
            assert_eq!(wire.next().unwrap(), Some((3, message)));
        }
        assert_eq!(wire.next().unwrap(), None);
    }

    #[test]
    fn damage_is_an_end_or_an_error_and_no_panic() {
        assert!(Wire::new(&record(99, 0, 0, 0, 0, 0)[..]).next().is_err());
        assert_eq!(Wire::new(&[1u8; 10][..]).next().unwrap(), None);
        assert!(Wire::new(&record(8, 0, 0, 0, 0, u32::MAX)[..]).next().is_err());
    }
}

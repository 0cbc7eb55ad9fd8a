//! libCacheSim's oracleGeneral, whose layout `import/oracle_general.rs` has: which blocks of memory a cache of blocks,
//! such as the fast tier, is asked for.
//!
//! - **Requests.** Each access is a request for the block that it touches, or for each of the blocks where it touches
//!   several.
//! - **Objects.** A block's number is its address divided by its size; the number of its process stands above bit 50.
//! - **Time.** Traces have none. A second stands for 10^9 instructions of all streams together.
//! - **Next requests.** They are known at the end only. Records lie in a file without a name until then, and are gone
//!   through from the last to the first.

use super::{Exported, Exporter};
use crate::{Batch, Event, Item, StreamId};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const RECORD_BYTES: usize = 24;
/// Records that are held at a time.
const CHUNK: u64 = 1 << 15;
/// Numbers of blocks of 64 bytes below 2^56 have so many bits.
const BLOCK_BITS: u32 = 50;
const INSTRUCTIONS_PER_SECOND: u64 = 1_000_000_000;
/// No further request.
const NONE: i64 = -1;

/// Writes requests.
#[derive(Debug)]
pub(super) struct OracleGeneral {
    shift: u32,
    records: io::BufWriter<File>,
    count: u64,
    instructions: u64,
    process_of: HashMap<StreamId, u32>,
}

impl OracleGeneral {
    pub(super) fn new(block: u64, scratch: &Path) -> io::Result<OracleGeneral> {
        assert!(block.is_power_of_two() && (64..=1 << 30).contains(&block), "a block of {block} bytes");
        Ok(OracleGeneral {
            shift: block.trailing_zeros(),
            records: io::BufWriter::with_capacity(1 << 16, tempfile::tempfile_in(scratch)?),
            count: 0,
            instructions: 0,
            process_of: HashMap::new(),
        })
    }

    fn request(&mut self, object: u64) -> io::Result<()> {
        let time = u32::try_from(self.instructions / INSTRUCTIONS_PER_SECOND).unwrap_or(u32::MAX);
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&time.to_le_bytes());
        record[4..12].copy_from_slice(&object.to_le_bytes());
        record[12..16].copy_from_slice(&(1u32 << self.shift).to_le_bytes());
        self.count += 1;
        self.records.write_all(&record)
    }
}

impl Exporter for OracleGeneral {
    fn batch(&mut self, batch: &Batch, done: &mut Exported, _: &mut dyn Write) -> io::Result<()> {
        for item in batch.items() {
            match item {
                Item::Access(access) => {
                    self.instructions = self.instructions.saturating_add(u64::from(access.instructions));
                    let process = self.process_of.get(&batch.stream).copied().unwrap_or(0);
                    if process >> (u64::BITS - BLOCK_BITS) != 0 {
                        let most = 1u64 << (u64::BITS - BLOCK_BITS);
                        return Err(io::Error::other(format!(
                            "a request's object has room for {most} processes"
                        )));
                    }
                    let last = access.addr.saturating_add(u64::from(access.size) - 1) >> self.shift;
                    for block in access.addr >> self.shift..=last {
                        self.request(u64::from(process) << BLOCK_BITS | block)?;
                    }
                    done.accesses += 1;
                }
                Item::Event(event) => match event.event {
                    Event::Compute { instructions } => {
                        self.instructions = self.instructions.saturating_add(instructions);
                    }
                    Event::Spawn { process, .. } => {
                        self.process_of.insert(batch.stream, process);
                        done.events_left_out += 1;
                    }
                    _ => done.events_left_out += 1,
                },
            }
        }
        Ok(())
    }

    fn finish(&mut self, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        done.records = self.count;
        self.records.flush()?;
        let file = self.records.get_mut();
        let mut next: HashMap<u64, i64> = HashMap::new();
        let mut bytes = vec![0; CHUNK as usize * RECORD_BYTES];
        for chunk in (0..self.count.div_ceil(CHUNK)).rev() {
            let first = chunk * CHUNK;
            let bytes = &mut bytes[..(self.count - first).min(CHUNK) as usize * RECORD_BYTES];
            file.read_exact_at(bytes, first * RECORD_BYTES as u64)?;
            let (records, _) = bytes.as_chunks_mut::<RECORD_BYTES>();
            for (at, record) in records.iter_mut().enumerate().rev() {
                let number = first as i64 + at as i64 + 1;
                let object = u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
                let later = next.insert(object, number).unwrap_or(NONE);
                record[16..].copy_from_slice(&later.to_le_bytes());
            }
            file.write_all_at(bytes, first * RECORD_BYTES as u64)?;
        }
        file.rewind()?;
        io::copy(file, out)?;
        Ok(())
    }
}

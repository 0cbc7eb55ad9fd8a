//! An aged memory in a file, so that it is aged once and used often.
//!
//! The file is one zstd frame with a checksum: a header, the mobility of each pageblock, the free blocks in the order in
//! which their lists hand them out, and the page cache in the order of eviction, as runs. Frames that are in none of these
//! are the kernel's. At the end stand the names of the machine and the tier, which older files lack.

use super::parameters::{Aging, FreeLists, LARGEST_ORDER, MemoryParameters};
use super::{FrameRun, MemoryFigures, Owner, TierMemory, Word};
use std::io::{Read, Write};
use std::path::Path;
use terrace_buddy::{Layout, Shape};
use terrace_model::{Bytes, Frame, PageSize};

const MAGIC: &[u8; 8] = b"TERRMEM2";
/// A file without names.
const NAMELESS: &[u8; 8] = b"TERRMEM1";
/// The longest name in a file, in bytes.
const LONGEST_NAME: u64 = 4096;

/// Most frames that a file may speak of: 1 TiB.
const MOST_FRAMES: u64 = 1 << 28;
/// Most frames for each byte of a file: 4 GiB. A free block, the largest thing that is written, has at most 2 GiB and takes
/// more than a byte however well it is compressed, so whole memories stay far below.
const MOST_FRAMES_PER_BYTE: u64 = 1 << 20;
/// No file is longer: memories of 1 TiB whose frames all lie apart have less.
const LONGEST_FILE: u64 = 4 << 30;

/// Runs of frames: first and number.
type Runs = Vec<(u32, u32)>;

/// An aged memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    layout: Layout,
    /// Cached frames by the order of eviction.
    cache: Vec<u32>,
    /// The machine whose memory it is; empty where that is not known.
    machine: String,
    /// The tier.
    tier: String,
}

/// The settings of a machine whose allocator is made so.
fn parameters_of(shape: Shape) -> MemoryParameters {
    MemoryParameters {
        max_order: shape.max_order,
        free_lists: if shape.last_freed_first { FreeLists::LastFreedFirst } else { FreeLists::LowestFirst },
        grouping: shape.grouping,
        pageblock: if shape.pageblock_order == PageSize::Giant.order() {
            PageSize::Giant
        } else {
            PageSize::Huge
        },
        ..MemoryParameters::default()
    }
}

impl Snapshot {
    /// The memory as it is. What programs hold in it counts as the kernel's.
    pub fn of(memory: &TierMemory) -> Snapshot {
        Snapshot {
            layout: memory.buddy.layout(),
            cache: memory.cache.iter().collect(),
            machine: String::new(),
            tier: memory.name.clone(),
        }
    }

    /// This memory as that of a machine of this name.
    pub fn on_machine(self, machine: &str) -> Snapshot {
        let fits = machine.len() as u64 <= LONGEST_NAME;
        Snapshot { machine: if fits { machine.to_owned() } else { String::new() }, ..self }
    }

    /// The machine whose memory it is; empty where the file does not say.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// The tier that it is; empty where the file does not say.
    pub fn tier(&self) -> &str {
        &self.tier
    }

    /// Whether the file that ages a tier of so many bytes is there, whole, and fits the tier divided by some scale up to
    /// `largest_scale`. Parameters without such a file are fine.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do about it.
    pub fn check(
        tier: &str,
        capacity: Bytes,
        parameters: &MemoryParameters,
        largest_scale: u32,
    ) -> Result<(), String> {
        let Aging::Snapshot { file } = &parameters.aging else { return Ok(()) };
        let snapshot = Snapshot::read(file)?;
        let scaled = |scale: u64| (capacity.0 / scale).div_ceil(4096);
        let mut scales = (1..=u64::from(largest_scale)).map(scaled);
        let fits = scales.find(|frames| *frames == snapshot.layout.frames);
        let fits = snapshot.fits(tier, fits.unwrap_or_else(|| scaled(1)), parameters);
        fits.and_then(|()| snapshot.held()).map_err(|problem| format!("{}: {problem}", file.display()))?;
        Ok(())
    }

    /// The memory that was saved, as one tier by itself.
    ///
    /// # Errors
    /// A damaged file.
    pub(super) fn memory(&self) -> Result<TierMemory, String> {
        let mut memory =
            TierMemory::new("memory", Frame(0), self.layout.frames, &parameters_of(self.layout.shape));
        self.restore(&mut memory)?;
        Ok(memory)
    }

    /// How much of it is whose, and how its free frames lie.
    ///
    /// # Errors
    /// A damaged file.
    pub fn figures(&self) -> Result<MemoryFigures, String> {
        Ok(self.memory()?.figures())
    }

    /// What lies where in it.
    ///
    /// # Errors
    /// A damaged file.
    pub fn runs(&self) -> Result<Vec<FrameRun>, String> {
        // Programs are over when a memory is saved.
        Ok(self.memory()?.runs(|_| 0))
    }

    /// Makes a fresh memory the one that was saved.
    ///
    /// # Errors
    /// A memory of another size, or an allocator of another kind.
    pub fn restore(&self, memory: &mut TierMemory) -> Result<(), String> {
        self.fits(&memory.name, memory.frames(), &parameters_of(memory.buddy.shape()))?;
        if memory.buddy.free_frames() != memory.frames() {
            return Err("os.memory.aging.file: part of the memory is in use already".to_owned());
        }
        let held = self.held()?;
        memory.buddy.restore(&self.layout);
        for frame in &self.cache {
            let place = memory.cache.push(*frame);
            memory.owners.set(*frame as usize, Word::new(Owner::Cache(place), PageSize::Base));
        }
        for (frame, _) in held.iter().enumerate().filter(|(_, held)| **held) {
            memory.buddy.count_unmovable(frame as u64);
            memory.owners.set(frame, Word::new(Owner::Kernel, PageSize::Base));
        }
        Ok(())
    }

    /// Whether it can be the memory of a tier of so many frames with such an allocator.
    fn fits(&self, tier: &str, frames: u64, parameters: &MemoryParameters) -> Result<(), String> {
        if self.layout.frames != frames {
            return Err(format!(
                "os.memory.aging.file: the saved memory has {} MiB, tier {tier} has {} MiB; set tier.{tier}.capacity, or save \
                 another with `terrace memory age`",
                self.layout.frames >> 8,
                frames >> 8,
            ));
        }
        let MemoryParameters { max_order, free_lists, grouping, pageblock, .. } =
            &parameters_of(self.layout.shape);
        let mine =
            (&parameters.max_order, &parameters.free_lists, &parameters.grouping, &parameters.pageblock);
        if (max_order, free_lists, grouping, pageblock) != mine {
            let free_lists = match free_lists {
                FreeLists::LowestFirst => "lowest-first",
                FreeLists::LastFreedFirst => "last-freed-first",
            };
            return Err(format!(
                "os.memory: the saved memory has max_order {max_order}, free_lists {free_lists}, grouping {grouping}, \
                 pageblock {pageblock}; set them so, or save another with `terrace memory age`"
            ));
        }
        Ok(())
    }

    /// For each frame whether the kernel holds it.
    fn held(&self) -> Result<Vec<bool>, String> {
        let mut held = vec![true; self.layout.frames as usize];
        let blocks = self.layout.free.iter().map(|(first, order, _)| (*first, 1 << order));
        for (first, count) in blocks.chain(self.cache.iter().map(|frame| (u64::from(*frame), 1))) {
            for held in &mut held[first as usize..(first + count) as usize] {
                if !std::mem::replace(held, false) {
                    return Err(damaged("a frame is free or cached twice"));
                }
            }
        }
        Ok(held)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that is not there, not such a file, or damaged.
    pub fn read(path: &Path) -> Result<Snapshot, String> {
        let name = path.display();
        let file = std::fs::File::open(path).map_err(|problem| format!("{name}: {}", missing(&problem)))?;
        let mut bytes = Vec::new();
        let read = file.take(LONGEST_FILE + 1).read_to_end(&mut bytes);
        read.map_err(|problem| format!("{name}: {problem}"))?;
        if bytes.len() as u64 > LONGEST_FILE {
            return Err(format!("{name}: longer than {} GiB, which no saved memory is", LONGEST_FILE >> 30));
        }
        Snapshot::parse(&bytes).map_err(|problem| format!("{name}: {problem}"))
    }

    /// Reads what [`Snapshot::write`] wrote.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(bytes: &[u8]) -> Result<Snapshot, String> {
        let mut reader = Numbers(zstd::Decoder::new(bytes).map_err(|_| damaged("no zstd frame"))?);
        let mut magic = [0; 8];
        if reader.0.read_exact(&mut magic).is_err() {
            return Err(format!("this is not a saved memory, or it is damaged; {NEXT_STEP}"));
        }
        if &magic != MAGIC && &magic != NAMELESS {
            return Err(format!("this is not a saved memory; {NEXT_STEP}"));
        }
        let frames = reader.number(u64::MAX)?;
        let most = MOST_FRAMES.min(MOST_FRAMES_PER_BYTE * bytes.len() as u64);
        if frames > most {
            return Err(damaged(&format!(
                "it claims {} GiB of memory in {} bytes, where at most {} GiB can be",
                frames >> 18,
                bytes.len(),
                most >> 18
            )));
        }
        let max_order = reader.number(LARGEST_ORDER.into())? as u32;
        let flags = reader.number(7)?;
        let pageblock = if flags & 4 != 0 { PageSize::Giant } else { PageSize::Huge };
        let shape = Shape {
            max_order,
            last_freed_first: flags & 1 != 0,
            grouping: flags & 2 != 0,
            pageblock_order: pageblock.order(),
        };
        let blocks = frames.div_ceil(pageblock.base_pages());
        let mut pageblocks = Vec::new();
        for _ in 0..blocks {
            pageblocks.push(reader.number(2)? as u8);
        }
        // Each takes more than a byte however well it is compressed.
        let entries = |what: &str, claimed: u64| match claimed > 4 * bytes.len() as u64 {
            true => Err(damaged(&format!("it claims {claimed} {what} in {} bytes", bytes.len()))),
            false => Ok(claimed),
        };
        let mut free = Vec::new();
        for _ in 0..entries("free blocks", reader.number(frames)?)? {
            let order = reader.number(max_order.into())? as u32;
            let kind = reader.number(2)? as u8;
            let first = reader.number(frames.saturating_sub(1))?;
            if !first.is_multiple_of(1 << order) || first + (1 << order) > frames {
                return Err(damaged("a free block is not aligned, or reaches beyond the end"));
            }
            free.push((first, order, kind));
        }
        let mut cache = Vec::new();
        for _ in 0..entries("runs of the page cache", reader.number(frames)?)? {
            let first = reader.number(frames.saturating_sub(1))?;
            let count = reader.number(frames - first)?;
            if cache.len() as u64 + count > frames {
                return Err(damaged("more frames are cached than there are"));
            }
            cache.extend((first..first + count).map(|frame| frame as u32));
        }
        let mut name = || if &magic == MAGIC { reader.name() } else { Ok(String::new()) };
        let (machine, tier) = (name()?, name()?);
        if reader.0.read(&mut [0]).map_err(|problem| damaged(&problem.to_string()))? != 0 {
            return Err(damaged("something follows its end"));
        }
        Ok(Snapshot { layout: Layout { frames, shape, pageblocks, free }, cache, machine, tier })
    }

    /// Writes it.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&self, output: impl Write) -> std::io::Result<()> {
        let mut encoder = zstd::Encoder::new(output, 3)?;
        encoder.include_checksum(true)?;
        encoder.write_all(MAGIC)?;
        let shape = self.layout.shape;
        let flags = u64::from(shape.last_freed_first)
            | u64::from(shape.grouping) << 1
            | u64::from(shape.pageblock_order == PageSize::Giant.order()) << 2;
        let mut put = |number: u64| encoder.write_all(&number.to_le_bytes()[..5]);
        put(self.layout.frames)?;
        put(shape.max_order.into())?;
        put(flags)?;
        for mobility in &self.layout.pageblocks {
            put(u64::from(*mobility))?;
        }
        put(self.layout.free.len() as u64)?;
        for (first, order, kind) in &self.layout.free {
            put(u64::from(*order))?;
            put(u64::from(*kind))?;
            put(*first)?;
        }
        let runs = runs(&self.cache);
        put(runs.len() as u64)?;
        for (first, count) in runs {
            put(u64::from(first))?;
            put(u64::from(count))?;
        }
        for name in [&self.machine, &self.tier] {
            encoder.write_all(&(name.len() as u64).to_le_bytes()[..5])?;
            encoder.write_all(name.as_bytes())?;
        }
        encoder.finish()?.flush()
    }
}

/// What makes a good file.
const NEXT_STEP: &str = "save one with `terrace memory age -o FILE`";

fn missing(problem: &std::io::Error) -> String {
    match problem.kind() {
        std::io::ErrorKind::NotFound => format!("there is no such file; {NEXT_STEP}"),
        _ => problem.to_string(),
    }
}

fn damaged(how: &str) -> String {
    format!("the saved memory is damaged: {how}; {NEXT_STEP}")
}

fn runs(frames: &[u32]) -> Runs {
    let mut runs = Runs::new();
    for frame in frames {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == *frame => *count += 1,
            _ => runs.push((*frame, 1)),
        }
    }
    runs
}

/// Numbers of five bytes, least significant first.
struct Numbers<R>(R);

impl<R: Read> Numbers<R> {
    fn number(&mut self, most: u64) -> Result<u64, String> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes[..5]).map_err(|problem| damaged(&problem.to_string()))?;
        let number = u64::from_le_bytes(bytes);
        if number > most {
            Err(damaged(&format!("{number} where at most {most} can be")))
        } else {
            Ok(number)
        }
    }

    /// A name behind its length.
    fn name(&mut self) -> Result<String, String> {
        let mut bytes = vec![0; self.number(LONGEST_NAME)? as usize];
        self.0.read_exact(&mut bytes).map_err(|problem| damaged(&problem.to_string()))?;
        String::from_utf8(bytes).map_err(|_| damaged("a name is no text"))
    }
}

//! Folded stacks, for flame graphs: `program;allocation site;read 1234`, as `flamegraph.pl`, inferno and speedscope read
//! them.
//!
//! An access belongs to the object that holds its first byte, and so to the site that allocated the object; where there
//! is no object, to the mapping. The last frame says what was done, so that a site's width splits into loads and stores.
//! With [`Weight::AllocatedBytes`] there is no last frame, and mappings do not count.
//!
//! A semicolon in a name becomes a comma and a control character a blank, since both would end a frame.

use super::{Exported, Exporter};
use crate::{AccessKind, Batch, Event, Item, MapKind, SequencedEvent, StreamId, demangled};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use terrace_model::{AddressRange, Ranges, VirtAddr};

/// What the number of a line counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Loads and stores of what was allocated at the site.
    Accesses,
    /// Bytes that were allocated there, whether they are freed or not.
    AllocatedBytes,
}

/// What lies where in one process. Numbers are those of names.
#[derive(Clone, Debug, Default)]
struct Space {
    program: u32,
    mappings: Ranges,
    objects: Ranges,
    /// Live objects by their number: range and site.
    live: HashMap<u64, (AddressRange, u32)>,
}

/// Counts by frames.
#[derive(Debug)]
pub(super) struct Folded {
    weight: Weight,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    sites: HashMap<u32, u32>,
    process_of: HashMap<StreamId, u32>,
    spaces: HashMap<u32, Space>,
    /// Loads and stores, or bytes, by program and site.
    counts: HashMap<(u32, u32), [u64; 2]>,
}

impl Folded {
    pub(super) fn new(weight: Weight, program: &str) -> Folded {
        let mut folded = Folded {
            weight,
            names: Vec::new(),
            numbers: HashMap::new(),
            sites: HashMap::new(),
            process_of: HashMap::new(),
            spaces: HashMap::new(),
            counts: HashMap::new(),
        };
        // Number 0, which processes without a name have.
        folded.number(&program_name(program));
        folded
    }

    /// The number of a name, as a frame.
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        let frame = |letter: char| match letter {
            ';' => ',',
            letter if letter.is_control() => ' ',
            letter => letter,
        };
        self.names.push(name.chars().map(frame).collect());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    fn process(&self, stream: StreamId) -> u32 {
        self.process_of.get(&stream).copied().unwrap_or(0)
    }

    fn space(&mut self, stream: StreamId) -> &mut Space {
        let process = self.process(stream);
        self.spaces.entry(process).or_default()
    }

    fn access(&mut self, stream: StreamId, addr: u64, kind: AccessKind) {
        const UNKNOWN: &str = "[not mapped]";
        let space = self.space(stream);
        let program = space.program;
        let addr = VirtAddr(addr);
        let found = space.objects.find(addr).or_else(|| space.mappings.find(addr));
        let site = match found {
            Some((_, number)) => number,
            None => self.number(UNKNOWN),
        };
        self.counts.entry((program, site)).or_default()[kind as usize] += 1;
    }

    fn event(&mut self, stream: StreamId, chosen: bool, event: &SequencedEvent) {
        match &event.event {
            Event::Spawn { process, forked_from, name, .. } => {
                self.process_of.insert(stream, *process);
                if let Some(parent) = forked_from {
                    let inherited = self.space(*parent).clone();
                    self.spaces.insert(*process, inherited);
                }
                if !name.is_empty() {
                    let program = self.number(&program_name(name));
                    self.space(stream).program = program;
                }
            }
            Event::Exec { name } => {
                let program = self.number(&program_name(name));
                *self.space(stream) = Space { program, ..Space::default() };
            }
            Event::Exit { process_ends } => {
                let process = self.process(stream);
                self.process_of.remove(&stream);
                if *process_ends {
                    self.spaces.remove(&process);
                }
            }
            Event::Map { range, kind, name, .. } => {
                let number = self.number(&mapping_name(*kind, name));
                let space = self.space(stream);
                space.mappings.insert(*range, number);
                space.objects.remove(*range);
            }
            Event::Unmap { range } => {
                let space = self.space(stream);
                space.mappings.remove(*range);
                space.objects.remove(*range);
            }
            Event::Remap { from, to } => {
                let space = self.space(stream);
                space.mappings.remap(*from, *to);
                space.objects.remap(*from, *to);
            }
            Event::Site { site, name } => {
                let number = self.number(&demangled(name));
                self.sites.insert(*site, number);
            }
            Event::Alloc { object, site, range } => {
                let number = match self.sites.get(site) {
                    Some(number) => *number,
                    None => self.number(&format!("site {site}")),
                };
                let space = self.space(stream);
                space.objects.insert(*range, number);
                space.live.insert(*object, (*range, number));
                self.allocated(stream, chosen, number, range.bytes);
            }
            Event::Realloc { object, range } => {
                let space = self.space(stream);
                if let Some((old, number)) = space.live.remove(object) {
                    space.objects.remove(old);
                    space.objects.insert(*range, number);
                    space.live.insert(*object, (*range, number));
                    self.allocated(stream, chosen, number, range.bytes.saturating_sub(old.bytes));
                }
            }
            Event::Free { object } => {
                let space = self.space(stream);
                if let Some((range, _)) = space.live.remove(object) {
                    space.objects.remove(range);
                }
            }
            _ => {}
        }
    }

    fn allocated(&mut self, stream: StreamId, chosen: bool, site: u32, bytes: u64) {
        if chosen && self.weight == Weight::AllocatedBytes {
            let program = self.space(stream).program;
            let count = &mut self.counts.entry((program, site)).or_default()[0];
            *count = count.saturating_add(bytes);
        }
    }
}

impl Exporter for Folded {
    fn batch(&mut self, batch: &Batch, done: &mut Exported, _: &mut dyn Write) -> io::Result<()> {
        let counts = self.weight == Weight::Accesses;
        for item in batch.items() {
            match item {
                Item::Access(access) if counts => {
                    self.access(batch.stream, access.addr, access.kind);
                    done.accesses += 1;
                }
                Item::Access(_) => {}
                Item::Event(event) => self.event(batch.stream, true, event),
            }
        }
        Ok(())
    }

    /// Streams share their process's objects and mappings.
    fn other_stream(&mut self, batch: &Batch) {
        for event in &batch.events {
            self.event(batch.stream, false, event);
        }
    }

    fn finish(&mut self, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        let name = |number: &u32| self.names[*number as usize].as_str();
        let kinds: &[&str] = match self.weight {
            Weight::Accesses => &[";read", ";write"],
            Weight::AllocatedBytes => &[""],
        };
        // Sorted, and two names that became one frame in one line.
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        for ((program, site), counts) in &self.counts {
            for (kind, count) in kinds.iter().zip(counts).filter(|(_, count)| **count > 0) {
                *lines.entry(format!("{};{}{kind}", name(program), name(site))).or_default() += count;
            }
        }
        done.records = lines.len() as u64;
        for (frames, count) in lines {
            writeln!(out, "{frames} {count}")?;
        }
        Ok(())
    }
}

/// A file without the folders that it lies in, which may differ from run to run.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn program_name(name: &str) -> String {
    let name = last_part(name);
    if name.is_empty() { "[program]".to_owned() } else { name.to_owned() }
}

/// What stands for a mapping.
fn mapping_name(kind: MapKind, name: &str) -> String {
    let name = last_part(name);
    if !name.is_empty() {
        return name.to_owned();
    }
    let name = match kind {
        MapKind::Anonymous => "[anonymous]",
        MapKind::SharedAnonymous => "[shared]",
        MapKind::PrivateFile | MapKind::SharedFile => "[file]",
        MapKind::Heap => "[heap]",
        MapKind::Stack => "[stack]",
        MapKind::HugeTlb => "[huge pages]",
    };
    name.to_owned()
}

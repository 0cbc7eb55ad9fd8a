//! Lines of text. Dependences are lost, and so are instruction counts in plain lines.

use super::{Exported, Exporter};
use crate::{AccessKind, Batch, Event, Item};
use std::io::{self, Write};

/// Valgrind lackey's lines. Instructions between accesses become `I` lines at the next access's instruction address (0
/// where it is not known), of one byte each.
#[derive(Debug)]
pub(super) struct Lackey;

impl Exporter for Lackey {
    fn batch(&mut self, batch: &Batch, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        for item in batch.items() {
            match item {
                Item::Access(access) => {
                    for _ in 0..access.instructions {
                        writeln!(out, "I  {:08x},1", access.pc.unwrap_or(0))?;
                    }
                    let kind = if access.kind == AccessKind::Read { 'L' } else { 'S' };
                    writeln!(out, " {kind} {:08x},{}", access.addr, access.size)?;
                    done.accesses += 1;
                    done.records += 1 + u64::from(access.instructions);
                }
                Item::Event(event) => match event.event {
                    Event::Compute { instructions } => {
                        for _ in 0..instructions {
                            writeln!(out, "I  {:08x},1", 0)?;
                        }
                        done.records += instructions;
                    }
                    _ => done.events_left_out += 1,
                },
            }
        }
        Ok(())
    }
}

/// `R|W hexaddress size` lines.
#[derive(Debug)]
pub(super) struct Plain;

impl Exporter for Plain {
    fn batch(&mut self, batch: &Batch, done: &mut Exported, out: &mut dyn Write) -> io::Result<()> {
        done.events_left_out += batch.events.len() as u64;
        done.accesses += batch.len() as u64;
        done.records += batch.len() as u64;
        for ((&addr, &size), &kind) in batch.addr.iter().zip(&batch.size).zip(&batch.kind) {
            let kind = if kind == AccessKind::Read { 'R' } else { 'W' };
            writeln!(out, "{kind} {addr:#x} {size}")?;
        }
        Ok(())
    }
}

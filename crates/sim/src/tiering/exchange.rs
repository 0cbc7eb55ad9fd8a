//! Orders of a guest whose pages change places in the hypervisor's page table: what is exchanged, and what is left to copy.

use super::State;
use super::copy::Chunk;
use super::orders::Order;
use super::part::{Part, Work};
use crate::machine::Machine;
use terrace_model::{Frame, LINE_BYTES, Line, PageSize, Time};
use terrace_policy::PageId;

/// Lines and frames of what the hypervisor exchanges.
const LINES: u64 = PageSize::Huge.bytes() / LINE_BYTES;
const FRAMES: u64 = PageSize::Huge.base_pages();

impl Part {
    /// The blocks of 2 MiB whose contents go whole from one place to another: where from and where to.
    fn pairs(&self) -> Vec<(Frame, Frame)> {
        match &self.work {
            Work::Collapse { page, to: Some(to), parts, .. } => {
                let huge = parts.iter().filter(|(_, size, _)| *size == PageSize::Huge);
                huge.map(|(part, _, from)| (*from, Frame(to.0 + part.vpn - page.vpn))).collect()
            }
            Work::Relocate { from, to, size, .. } if *size >= PageSize::Huge => {
                let pieces = (0..size.base_pages()).step_by(FRAMES as usize);
                pieces.map(|at| (Frame(from.0 + at), Frame(to.0 + at))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What is copied: all that was not exchanged.
    pub fn chunks_to_copy(&self) -> Vec<Chunk> {
        let chunks = self.chunks();
        if self.exchanged.is_empty() {
            return chunks;
        }
        let is_exchanged = |line: Line| self.exchanged.contains(&Frame(line.0 / LINES * FRAMES));
        let mut left: Vec<Chunk> = Vec::new();
        for chunk in chunks {
            let mut at = 0;
            while at < chunk.lines {
                let to = chunk.to + at;
                let lines = (LINES - to.0 % LINES).min(chunk.lines - at);
                let from = chunk.from.map(|from| from + at);
                at += lines;
                if is_exchanged(to) {
                    continue;
                }
                match left.last_mut() {
                    Some(last)
                        if last.to + last.lines == to
                            && last.from.map(|first| first + last.lines) == from =>
                    {
                        last.lines += lines;
                    }
                    _ => left.push(Chunk { from, to, lines, ..chunk }),
                }
            }
        }
        left
    }

    /// The pages whose contents are copied. Of a page of which only some was exchanged nobody is named.
    pub fn copied_contents(&self) -> Vec<(PageId, PageSize)> {
        match &self.work {
            Work::Collapse { page, to: Some(to), parts, .. } => {
                let place = |part: &PageId| Frame(to.0 + part.vpn - page.vpn);
                let copied = parts.iter().filter(|(part, _, _)| !self.exchanged.contains(&place(part)));
                copied.map(|(part, size, _)| (*part, *size)).collect()
            }
            _ if self.exchanged.is_empty() => self.contents(),
            _ => Vec::new(),
        }
    }
}

impl Order {
    /// Asks the hypervisor to exchange what it can of the parts in flight, `batch` pairs per call.
    pub(super) fn exchange_in_host(&mut self, machine: &mut Machine, state: &State, batch: usize) {
        let pairs: Vec<(usize, (Frame, Frame))> = self
            .flying
            .iter()
            .enumerate()
            .flat_map(|(at, part)| part.pairs().into_iter().map(move |pair| (at, pair)))
            .collect();
        if pairs.is_empty() {
            return;
        }
        let blocks: Vec<(Frame, Frame)> = pairs.iter().map(|(_, blocks)| *blocks).collect();
        let (exchanged, span) = machine.exchange_in_host(&blocks, batch, &state.costs, self.now);
        self.now += span;
        let share = Time(span.0 / pairs.len() as u64);
        for ((part, (_, to)), exchanged) in pairs.into_iter().zip(exchanged) {
            let part = &mut self.flying[part];
            part.cost.time += share;
            if exchanged {
                part.exchanged.insert(to);
            }
        }
    }
}

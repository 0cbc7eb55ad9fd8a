//! Orders of the policy that are not finished, and the signals that report their outcomes.

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;
use terrace_model::Time;
use terrace_policy::{Cost, Exchange, Move, MoveOptions, Outcome, PageId, Resize, Signal, Subject, Ticket};

/// One piece of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// To a tier.
    Move(Move),
    /// Places swapped.
    Exchange(Exchange),
    /// Split or joined.
    Resize(Resize),
    /// Zeros given back: answered, never done.
    DropZeros(PageId),
}

impl Work {
    /// What its answer is about.
    pub const fn subject(&self) -> Subject {
        match self {
            Work::Move(one) => Subject::Page(one.page),
            Work::Exchange(pair) => Subject::Pair(pair.one, pair.other),
            Work::Resize(one) => Subject::Page(one.page),
            Work::DropZeros(page) => Subject::Page(*page),
        }
    }
}

/// An order with its pieces that are not done yet.
#[derive(Clone, Debug)]
struct Order {
    ticket: Ticket,
    work: Arc<[Work]>,
    left: Range<usize>,
    how: MoveOptions,
}

/// Some pieces of an order, all of one kind.
#[derive(Debug)]
pub struct Batch {
    /// The ticket that the signals about it carry.
    pub ticket: Ticket,
    /// How.
    pub how: MoveOptions,
    work: Arc<[Work]>,
    pieces: Range<usize>,
}

impl Deref for Batch {
    type Target = [Work];

    fn deref(&self) -> &[Work] {
        &self.work[self.pieces.clone()]
    }
}

/// Orders, first come first served.
#[derive(Debug, Default)]
pub struct Orders {
    waiting: VecDeque<Order>,
    tickets: u64,
    /// Pieces of all orders so far.
    pieces: u64,
}

impl Orders {
    /// Takes an order.
    pub fn take(&mut self, work: Arc<[Work]>, how: MoveOptions) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.pieces += work.len() as u64;
        if !work.is_empty() {
            self.waiting.push_back(Order { ticket, left: 0..work.len(), work, how });
        }
        ticket
    }

    /// At most `most` pieces of the order whose turn it is, all of one kind.
    pub fn next(&mut self, most: usize) -> Option<Batch> {
        let order = self.waiting.front_mut()?;
        let left = &order.work[order.left.clone()];
        let kind = left.first().map(std::mem::discriminant);
        let in_flight = order.how.in_flight.map_or(most, |count| most.min(count.get() as usize));
        let same = |work: &&Work| Some(std::mem::discriminant(*work)) == kind;
        let count = left.iter().take(in_flight).take_while(same).count();
        let pieces = order.left.start..order.left.start + count;
        order.left.start = pieces.end;
        let next = Batch { ticket: order.ticket, how: order.how, work: order.work.clone(), pieces };
        if order.left.is_empty() {
            self.waiting.pop_front();
        }
        Some(next)
    }

    /// Pieces that were done or given up.
    pub fn finished(&self) -> u64 {
        self.pieces - self.len() as u64
    }

    /// Pieces that wait.
    pub fn len(&self) -> usize {
        self.waiting.iter().map(|order| order.left.len()).sum()
    }
}

/// The answers for a batch that took `time`, in its order.
pub fn answers(
    ticket: Ticket,
    done: impl ExactSizeIterator<Item = (Subject, Outcome, u64)>,
    time: Time,
) -> impl Iterator<Item = Signal> {
    let share = Time(time.0 / done.len().max(1) as u64);
    done.map(move |(subject, outcome, copied)| Signal::Done {
        ticket,
        subject,
        outcome,
        cost: Cost { time: share, copied, shootdowns: u64::from(copied > 0), faults: 0 },
    })
}

/// What the kernel's refusal of one page means (`move_pages(2)`, errors in `status`).
pub fn outcome_of(errno: i32) -> Outcome {
    match errno {
        libc::ENOENT | libc::EFAULT | libc::ESRCH => Outcome::Gone,
        libc::ENOMEM => Outcome::NoSpace,
        // Mapped by several processes; or no page of its own that could move.
        libc::EACCES | libc::EINVAL | libc::EPERM | libc::ENODEV => Outcome::Unmovable,
        libc::ENOSYS => Outcome::Unsupported,
        _ => Outcome::Busy,
    }
}

/// What a failed call means for each page it was about.
pub fn outcome_of_call(error: &io::Error) -> Outcome {
    error.raw_os_error().map_or(Outcome::Busy, outcome_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use terrace_model::{PageSize, TierId};
    use terrace_policy::PageId;

    fn moves(vpns: std::ops::Range<u64>) -> impl Iterator<Item = Work> {
        vpns.map(|vpn| Work::Move(Move { page: PageId::new(0, vpn), to: TierId(0) }))
    }

    #[test]
    fn an_order_is_done_in_parts_no_larger_than_its_pages_in_flight() {
        let mut orders = Orders::default();
        let how = MoveOptions { in_flight: NonZeroU32::new(3), ..MoveOptions::default() };
        let first = orders.take(moves(0..5).collect(), how);
        let second = orders.take(moves(9..10).collect(), MoveOptions { in_flight: None, ..how });
        let mut sizes = Vec::new();
        while let Some(batch) = orders.next(512) {
            sizes.push((batch.ticket, batch.len()));
        }
        assert_eq!(sizes, [(first, 3), (first, 2), (second, 1)]);
        assert_eq!(orders.len(), 0);
        let nothing = orders.take(moves(0..0).collect(), how);
        assert!(orders.next(512).is_none() && nothing != second);
    }

    #[test]
    fn kinds_do_not_mix() {
        let mut orders = Orders::default();
        let resize = Work::Resize(Resize { page: PageId::new(0, 512), to: PageSize::Huge });
        let mixed = moves(0..2).chain([resize]).chain(moves(2..3));
        orders.take(mixed.collect(), MoveOptions { in_flight: None, ..MoveOptions::default() });
        let sizes: Vec<usize> = std::iter::from_fn(|| orders.next(512)).map(|batch| batch.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }
}

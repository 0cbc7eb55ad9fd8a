//! Orders of the policy on their way, and the answers.

use std::collections::VecDeque;
use std::io;
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

/// An order, less what is done.
#[derive(Clone, Debug)]
pub struct Order {
    /// What its answers carry.
    pub ticket: Ticket,
    /// What is left to do.
    pub work: VecDeque<Work>,
    /// How.
    pub how: MoveOptions,
}

/// Orders, first come first served.
#[derive(Debug, Default)]
pub struct Orders {
    waiting: VecDeque<Order>,
    tickets: u64,
}

impl Orders {
    /// Takes an order.
    pub fn take(&mut self, work: impl IntoIterator<Item = Work>, how: MoveOptions) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let work: VecDeque<Work> = work.into_iter().collect();
        if !work.is_empty() {
            self.waiting.push_back(Order { ticket, work, how });
        }
        ticket
    }

    /// At most `most` pieces of the order whose turn it is, all of one kind.
    pub fn next(&mut self, most: usize) -> Option<(Ticket, MoveOptions, Vec<Work>)> {
        let order = self.waiting.front_mut()?;
        let kind = order.work.front().map(std::mem::discriminant);
        let in_flight = order.how.in_flight.map_or(most, |count| most.min(count.get() as usize));
        let same = |work: &&Work| Some(std::mem::discriminant(*work)) == kind;
        let count = order.work.iter().take(in_flight).take_while(same).count();
        let pieces = order.work.drain(..count).collect();
        let next = (order.ticket, order.how, pieces);
        if order.work.is_empty() {
            self.waiting.pop_front();
        }
        Some(next)
    }

    /// Pieces that wait.
    pub fn len(&self) -> usize {
        self.waiting.iter().map(|order| order.work.len()).sum()
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
        let first = orders.take(moves(0..5), how);
        let second = orders.take(moves(9..10), MoveOptions { in_flight: None, ..how });
        let mut sizes = Vec::new();
        while let Some((ticket, _, work)) = orders.next(512) {
            sizes.push((ticket, work.len()));
        }
        assert_eq!(sizes, [(first, 3), (first, 2), (second, 1)]);
        assert_eq!(orders.len(), 0);
        let nothing = orders.take(moves(0..0), how);
        assert!(orders.next(512).is_none() && nothing != second);
    }

    #[test]
    fn kinds_do_not_mix() {
        let mut orders = Orders::default();
        let resize = Work::Resize(Resize { page: PageId::new(0, 512), to: PageSize::Huge });
        let mixed = moves(0..2).chain([resize]).chain(moves(2..3));
        orders.take(mixed, MoveOptions { in_flight: None, ..MoveOptions::default() });
        let sizes: Vec<usize> =
            std::iter::from_fn(|| orders.next(512)).map(|(_, _, work)| work.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }
}

//! Batches used again: a source that allocates each batch anew spends a good part of its time in page faults, because
//! the allocator gives that much memory back to the system as soon as the consumer frees it.

use crate::Batch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches that are remembered; beyond, they are allocated anew. More than the channels to consumers hold.
const REMEMBERED: usize = 64;

/// The batches that a source has handed out, to be filled again once no consumer holds them any more.
#[derive(Debug, Default)]
pub struct BatchPool {
    handed_out: VecDeque<Arc<Batch>>,
}

impl BatchPool {
    /// A batch that no consumer holds, or a new one. It still has its old content: for sources that overwrite columns
    /// of equal length cheaper than they fill them. [`Batch::clear`] empties it.
    pub fn take(&mut self) -> Batch {
        let Some(oldest) = self.handed_out.pop_front() else { return Batch::default() };
        match Arc::try_unwrap(oldest) {
            Ok(batch) => batch,
            Err(held) => {
                self.handed_out.push_back(held);
                Batch::default()
            }
        }
    }

    /// Shares a batch with a consumer and remembers it.
    pub fn hand_out(&mut self, batch: Batch) -> Arc<Batch> {
        let batch = Arc::new(batch);
        if self.handed_out.len() < REMEMBERED {
            self.handed_out.push_back(Arc::clone(&batch));
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, StreamId};

    #[test]
    fn a_batch_comes_back_only_when_nobody_holds_it() {
        let mut pool = BatchPool::default();
        let mut batch = Batch { stream: StreamId(7), ..Batch::default() };
        batch.push(0x1000, 8, AccessKind::Read, 0, 1);
        let held = pool.hand_out(batch);
        assert_eq!(pool.take(), Batch::default());
        assert_eq!(held.len(), 1);
        drop(held);
        assert_eq!(pool.take().stream, StreamId(7));
    }

    #[test]
    fn a_consumer_that_keeps_everything_is_served() {
        let mut pool = BatchPool::default();
        let kept: Vec<Arc<Batch>> = (0..3 * REMEMBERED as u32)
            .map(|i| {
                let mut batch = pool.take();
                batch.clear();
                batch.stream = StreamId(i);
                pool.hand_out(batch)
            })
            .collect();
        assert!(kept.iter().zip(0..).all(|(batch, i)| batch.stream == StreamId(i)));
    }
}

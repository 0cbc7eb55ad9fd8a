//! The wish to end a study early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Reactions = Vec<Box<dyn Fn() + Send>>;

/// Whether the caller asked to stop. Copies share one wish; what is complete by then is kept.
#[derive(Clone, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    reactions: Arc<Mutex<Reactions>>,
}

impl Stop {
    /// A stop that nobody has asked for yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Asks to stop. Returns whether that was asked for before.
    pub fn request(&self) -> bool {
        let again = self.flag.swap(true, Ordering::SeqCst);
        if !again {
            self.reactions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .for_each(|reaction| reaction());
        }
        again
    }

    /// Whether the caller asked to stop.
    pub fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Has `reaction` called when the caller asks to stop, or at once if that was before.
    pub fn on_request(&self, reaction: impl Fn() + Send + 'static) {
        let mut reactions = self.reactions.lock().unwrap_or_else(PoisonError::into_inner);
        if self.requested() {
            reaction();
        }
        reactions.push(Box::new(reaction));
    }

    /// The flag itself, for code that polls it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn each_reaction_is_called_once() {
        let (stop, called) = (Stop::new(), Arc::new(AtomicU32::new(0)));
        let count = || {
            let called = Arc::clone(&called);
            move || {
                called.fetch_add(1, Ordering::SeqCst);
            }
        };
        stop.on_request(count());
        assert!(!stop.requested() && !stop.request() && stop.request());
        stop.on_request(count());
        assert_eq!(called.load(Ordering::SeqCst), 2);
    }
}

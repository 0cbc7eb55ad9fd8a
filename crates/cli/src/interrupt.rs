//! Ctrl-C and `SIGTERM`: the first asks the command to stop and keep what is complete, the second ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Exit code of an interrupted process by the shell's convention: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

type Reactions = Vec<Box<dyn Fn() + Send>>;

/// Whether the user asked to stop.
#[derive(Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    reactions: Arc<Mutex<Reactions>>,
}

impl Interrupt {
    /// Takes over the signals for the rest of the process.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        let Interrupt { flag, reactions } = interrupt.clone();
        // Runs on a thread of its own, so it may lock and print.
        let handler = move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(INTERRUPTED);
            }
            reactions.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|reaction| reaction());
            crate::progress::note("stopping; what is complete is kept (again: stop at once)");
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            // Without the handler Ctrl-C still ends the process, only less gracefully.
            tracing::warn!("cannot take over Ctrl-C: {error}");
        }
        interrupt
    }

    /// Whether the user asked to stop.
    pub fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Has `reaction` called when the user asks to stop, or at once if that was before.
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

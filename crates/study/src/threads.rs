//! Threads that the system may refuse: by a limit on memory, or on processes.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Why a thread could not be started, and what to do.
pub(crate) fn refused(error: &io::Error) -> String {
    format!(
        "a thread cannot be started: {error}; raise the limit on memory or on processes (ulimit -v, ulimit -u)"
    )
}

/// Starts a thread of a scope. Errors: in words, as [`refused`].
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, String> {
    Builder::new().spawn_scoped(scope, work).map_err(|error| refused(&error))
}

/// What a thread of a scope has returned; where it panicked, so does the caller.
pub(crate) fn result<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

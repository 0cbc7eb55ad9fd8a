//! Following the targets: new processes are taken under management, ended ones let go.

use super::{COUNT_LEAST, Engine};
use std::io;
use std::time::Duration;

/// How soon a process is looked at again that is about to execute its program.
const EXEC: Duration = Duration::from_millis(20);

/// The targets at a look at them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The numbers of all, managed or not.
    pub all: Vec<u32>,
    /// Targets that may not be looked into.
    pub refused: Vec<u32>,
}

impl Engine {
    /// Adopts new processes and lets go of ended ones. Returns false when all have ended.
    pub(super) fn follow(&mut self, now: Duration) -> bool {
        let kernel = self.world.kernel().clone();
        let pids = match self.targets.now(&*kernel) {
            Ok(pids) => pids,
            Err(error) => {
                tracing::info!(%error, "the targets are gone");
                return false;
            }
        };
        let mut changed = self.world.renew();
        let mut refused = Vec::new();
        for pid in &pids {
            if !self.world.has(*pid) {
                match self.world.adopt(*pid) {
                    Ok(_) => changed = true,
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        tracing::debug!(pid, "not managed before it has executed its program");
                        self.next_membership = self.next_membership.min(now + EXEC);
                    }
                    // Besides those that may not be looked into: ended meanwhile, or a kernel thread; both have no memory.
                    Err(error) => {
                        tracing::debug!(pid, %error, "not managed");
                        if error.kind() == io::ErrorKind::PermissionDenied {
                            refused.push(*pid);
                        }
                    }
                }
            }
        }
        let ended: Vec<_> = self
            .world
            .spaces()
            .filter(|space| !pids.contains(&space.process.pid))
            .map(|space| space.id)
            .collect();
        changed |= !ended.is_empty();
        for id in ended {
            self.world.let_go(id);
        }
        if changed {
            self.next_look = Duration::ZERO;
            self.count_pause = COUNT_LEAST;
            self.next_count = now + COUNT_LEAST;
        }
        self.members = Members { refused, all: pids.clone() };
        self.populated |= !pids.is_empty();
        !(self.populated && pids.is_empty())
    }
}

//! Starting a command under management: its memory's policy is set before its first instruction, and whatever it leaves
//! behind is still followed.

use crate::facts::TierMap;
use crate::facts::paging::WEIGHTS;
use crate::journal::Journal;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use terrace_policy::support::whole_weights;

/// `MPOL_INTERLEAVE`.
const INTERLEAVE: libc::c_int = 3;
/// `MPOL_WEIGHTED_INTERLEAVE` (Linux 6.9).
const WEIGHTED: libc::c_int = 6;

/// Where a command's new pages go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NewPages {
    /// Where the kernel puts them.
    #[default]
    AsUsual,
    /// To these nodes in turn.
    Interleave {
        /// Nodes with their weights; all equal where the kernel has no weights.
        weights: Vec<(u32, u32)>,
    },
}

impl NewPages {
    /// Divides shares per tier. A tier's share is divided equally among its nodes.
    ///
    /// # Errors
    /// A share for a tier without nodes, in words.
    pub fn from_shares(shares: &[f64], tiers: &TierMap) -> Result<NewPages, String> {
        let mut of_node = Vec::new();
        for (at, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let nodes = tiers.nodes.get(at).map_or(&[][..], Vec::as_slice);
            if nodes.is_empty() {
                return Err(format!(
                    "tier {} has no node, so pages cannot be placed there",
                    tiers.topology.tiers[at].name
                ));
            }
            of_node.extend(nodes.iter().map(|node| (*node, share / nodes.len() as f64)));
        }
        of_node.sort_by_key(|(node, _)| *node);
        Ok(NewPages::Interleave { weights: weights(&of_node) })
    }

    fn is_weighted(&self) -> bool {
        match self {
            NewPages::AsUsual => false,
            NewPages::Interleave { weights } => weights.windows(2).any(|pair| pair[0].1 != pair[1].1),
        }
    }

    /// Sets the machine's weights, where they differ.
    ///
    /// # Errors
    /// The kernel has no weights, or they may not be set.
    pub fn prepare(&self, journal: &mut Journal) -> io::Result<()> {
        if let NewPages::Interleave { weights } = self
            && self.is_weighted()
        {
            for (node, weight) in weights {
                journal.set(&PathBuf::from(format!("{WEIGHTS}/node{node}")), &weight.to_string())?;
            }
        }
        Ok(())
    }
}

/// Each node with its weight.
fn weights(shares: &[(u32, f64)]) -> Vec<(u32, u32)> {
    let whole = whole_weights(&shares.iter().map(|(_, share)| *share).collect::<Vec<_>>());
    shares.iter().map(|(node, _)| *node).zip(whole).collect()
}

/// From now on this process inherits the orphans of its children, so that what a command leaves behind can be followed.
///
/// # Errors
/// The kernel does not allow it.
pub fn inherit_orphans() -> io::Result<()> {
    // SAFETY: plain numbers.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts `command`, its new pages placed as said and `environment` added to its own.
///
/// # Errors
/// It cannot be started, or its memory policy cannot be set.
pub fn launch(
    command: &[OsString],
    new_pages: &NewPages,
    environment: &[(OsString, OsString)],
) -> io::Result<Child> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut child = Command::new(program);
    child.args(arguments).envs(environment.iter().cloned());
    if let NewPages::Interleave { weights } = new_pages {
        let mode = if new_pages.is_weighted() { WEIGHTED } else { INTERLEAVE };
        let mut nodes = [0u64; 16];
        for (node, _) in weights {
            nodes[*node as usize / 64 % 16] |= 1 << (node % 64);
        }
        let set = move || {
            // SAFETY: `nodes` holds the 1024 bits announced; the call reads it and allocates nothing of ours.
            let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), 1024 + 1) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec only the system call above runs.
        unsafe { child.pre_exec(set) };
    }
    child.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_the_weight_of_its_share() {
        assert_eq!(weights(&[(0, 5.0 / 7.0), (1, 2.0 / 7.0)]), [(0, 5), (1, 2)]);
        assert_eq!(weights(&[(0, 5.0 / 6.0), (2, 1.0 / 6.0)]), [(0, 5), (2, 1)]);
    }
}

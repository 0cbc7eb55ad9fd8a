//! Which processes are under management: some by number, trees of them, or a cgroup.

use crate::facts::text;
use crate::kernel::{Kernel, read_text};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These processes and no others.
    Processes(Vec<u32>),
    /// These processes and all that descend from them.
    Trees(Vec<u32>),
    /// All processes of a cgroup and of those below it, by its folder.
    Cgroup(PathBuf),
}

/// The processes that are selected, followed through fork, exec and exit.
#[derive(Clone, Debug)]
pub struct Targets {
    selection: Selection,
    /// Members of trees: one whose parent has ended is still a member.
    members: BTreeSet<u32>,
    /// Never a target: Terrace does not manage itself.
    except: u32,
}

impl Targets {
    /// Those of a selection, except one.
    pub fn new(selection: Selection, except: u32) -> Targets {
        let members = match &selection {
            Selection::Processes(pids) | Selection::Trees(pids) => pids.iter().copied().collect(),
            Selection::Cgroup(_) => BTreeSet::new(),
        };
        Targets { selection, members, except }
    }

    /// Whether there are processes to be followed yet, ended or not.
    pub fn any(&self) -> bool {
        !self.members.is_empty()
    }

    /// One more process, or root of a tree.
    pub fn add(&mut self, pid: u32) {
        self.members.insert(pid);
    }

    /// The processes now, ascending. Processes that end while this looks are normal.
    ///
    /// # Errors
    /// The cgroup cannot be read: it was removed.
    pub fn now(&mut self, kernel: &dyn Kernel) -> io::Result<Vec<u32>> {
        let mut pids = match &self.selection {
            Selection::Processes(_) => {
                self.members.retain(|pid| exists(kernel, *pid));
                self.members.iter().copied().collect()
            }
            Selection::Trees(_) => {
                self.grow(kernel);
                self.members.iter().copied().collect()
            }
            Selection::Cgroup(folder) => {
                let mut pids = BTreeSet::new();
                match in_cgroup(kernel, folder.clone(), &mut pids) {
                    Ok(()) => self.members = pids,
                    Err(error) if is_gone(&error) => return Err(error),
                    // Those of the last time, until it can be read again.
                    Err(error) => tracing::debug!(%error, "cgroup"),
                }
                self.members.iter().copied().collect::<Vec<u32>>()
            }
        };
        pids.retain(|pid| *pid != self.except);
        Ok(pids)
    }

    /// Adds children of members, and drops members that ended.
    fn grow(&mut self, kernel: &dyn Kernel) {
        let parents = parents(kernel);
        loop {
            let joined: Vec<u32> = parents
                .iter()
                .filter(|(pid, parent)| self.members.contains(parent) && !self.members.contains(pid))
                .map(|(pid, _)| *pid)
                .collect();
            if joined.is_empty() {
                break;
            }
            self.members.extend(joined);
        }
        // One that could not be read just now has not ended for that.
        self.members.retain(|pid| parents.contains_key(pid) || exists(kernel, *pid));
    }
}

fn exists(kernel: &dyn Kernel, pid: u32) -> bool {
    !kernel.read(format!("/proc/{pid}/stat").as_ref()).is_err_and(|error| is_gone(&error))
}

/// Whether a file cannot be read because what it is about is no more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENODEV))
}

/// The parent of every process.
fn parents(kernel: &dyn Kernel) -> BTreeMap<u32, u32> {
    let names = kernel.list("/proc".as_ref()).unwrap_or_default();
    let pids = names.iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = read_text(kernel, format!("/proc/{pid}/stat")).ok()?;
        Some((pid, text::stat_field(&stat, 4)?.try_into().ok()?))
    })
    .collect()
}

fn in_cgroup(kernel: &dyn Kernel, folder: PathBuf, pids: &mut BTreeSet<u32>) -> io::Result<()> {
    let text = read_text(kernel, folder.join("cgroup.procs"))?;
    pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
    for name in kernel.list(&folder).unwrap_or_default() {
        // A cgroup below may be removed while we look.
        if !name.contains('.') {
            let _ = in_cgroup(kernel, folder.join(name), pids);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rooted;

    fn process(root: &std::path::Path, pid: u32, name: &str, parent: u32) {
        let folder = root.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stat"), format!("{pid} ({name}) S {parent} 1 1 0")).unwrap();
    }

    #[test]
    fn a_tree_keeps_orphans_and_drops_the_dead() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Rooted::new(root.path());
        for (pid, name, parent) in [(10, "sh", 1), (11, "a) S 99 (b", 10), (12, "c", 11), (20, "other", 1)] {
            process(root.path(), pid, name, parent);
        }
        let mut targets = Targets::new(Selection::Trees(vec![10]), 12);
        assert_eq!(targets.now(&kernel).unwrap(), [10, 11], "12 is Terrace itself");
        let mut targets = Targets::new(Selection::Trees(vec![10]), 0);
        assert_eq!(targets.now(&kernel).unwrap(), [10, 11, 12]);
        std::fs::remove_dir_all(root.path().join("proc/11")).unwrap();
        process(root.path(), 12, "c", 1);
        process(root.path(), 13, "d", 12);
        assert_eq!(targets.now(&kernel).unwrap(), [10, 12, 13]);
    }

    #[test]
    fn a_cgroup_holds_those_below_and_its_end_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Rooted::new(root.path());
        let below = root.path().join("sys/fs/cgroup/app/worker");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("cgroup.procs"), "7\n8\n").unwrap();
        std::fs::write(below.parent().unwrap().join("cgroup.procs"), "5\n").unwrap();
        let mut targets = Targets::new(Selection::Cgroup("/sys/fs/cgroup/app".into()), 8);
        assert_eq!(targets.now(&kernel).unwrap(), [5, 7]);
        std::fs::remove_dir_all(root.path().join("sys")).unwrap();
        assert!(targets.now(&kernel).is_err());
    }
}

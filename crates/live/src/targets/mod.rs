//! Which processes are under management: some by number, trees of them, or a cgroup.

mod first_look;
mod named;

pub use first_look::{FirstLook, first_look, nothing_managed};
pub use named::Named;

use crate::facts::text;
use crate::kernel::{Kernel, read_text};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// The field of `/proc/PID/stat` that says when a process began.
const BEGAN: usize = 22;

/// The field with the flags of the kernel's task.
const FLAGS: usize = 9;
/// `PF_KTHREAD` of linux/sched.h.
const KERNEL_THREAD: u64 = 0x20_0000;

/// What files in the folder of a cgroup begin with, before a dot (Documentation/admin-guide/cgroup-v2.rst).
const CONTROLS: [&str; 11] =
    ["cgroup", "cpu", "cpuset", "dmem", "hugetlb", "io", "irq", "memory", "misc", "pids", "rdma"];
/// What systemd's cgroups end with, after a dot.
const UNITS: [&str; 6] = ["mount", "scope", "service", "slice", "socket", "swap"];

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
    /// Members of trees: one whose parent has ended is still a member. With the time at which each began, in the kernel's
    /// ticks, as soon as it is known: a later process of the same number is no member for that.
    members: BTreeMap<u32, Option<u64>>,
    /// Never a target: Terrace does not manage itself.
    except: u32,
    /// Terrace's own children are members: a command that it has started, and what that leaves behind.
    inherits: bool,
}

impl Targets {
    /// The targets of a selection, except one.
    pub fn new(selection: Selection, except: u32) -> Targets {
        let members = match &selection {
            Selection::Processes(pids) | Selection::Trees(pids) => {
                pids.iter().map(|pid| (*pid, None)).collect()
            }
            Selection::Cgroup(_) => BTreeMap::new(),
        };
        Targets { selection, members, except, inherits: false }
    }

    /// Whether there are processes to be followed yet, ended or not.
    pub fn any(&self) -> bool {
        !self.members.is_empty()
    }

    /// A command that Terrace has started. Whatever it starts and leaves behind is Terrace's child from then on.
    pub fn add_command(&mut self, pid: u32) {
        self.members.insert(pid, None);
        self.inherits = true;
    }

    /// The processes now, ascending. Processes that end while this looks are normal.
    ///
    /// # Errors
    /// The cgroup cannot be read: it was removed.
    pub fn now(&mut self, kernel: &dyn Kernel) -> io::Result<Vec<u32>> {
        let mut pids = match &self.selection {
            Selection::Processes(_) => {
                self.members.retain(|pid, began| is_member(kernel, *pid, began));
                self.members.keys().copied().collect()
            }
            Selection::Trees(_) => {
                self.grow(kernel);
                self.members.keys().copied().collect()
            }
            Selection::Cgroup(folder) => {
                let mut pids = BTreeSet::new();
                match in_cgroup(kernel, folder.clone(), &mut pids) {
                    Ok(()) => self.members = pids.into_iter().map(|pid| (pid, None)).collect(),
                    Err(error) if is_gone(&error) => return Err(error),
                    // The members of the last time stay, until the group can be read again.
                    Err(error) => tracing::debug!(%error, "cgroup"),
                }
                self.members.keys().copied().collect::<Vec<u32>>()
            }
        };
        pids.retain(|pid| *pid != self.except);
        Ok(pids)
    }

    /// Adds children of members, and drops members that ended.
    fn grow(&mut self, kernel: &dyn Kernel) {
        // First, so that nobody joins for being the child of a later process with a member's number.
        self.members.retain(|pid, began| is_member(kernel, *pid, began));
        let births = births(kernel);
        loop {
            let is_new = |pid: &u32, birth: &Birth| {
                let is_left_behind = self.inherits && birth.parent == self.except;
                (is_left_behind || self.members.contains_key(&birth.parent))
                    && !self.members.contains_key(pid)
            };
            let joined: Vec<(u32, Option<u64>)> = births
                .iter()
                .filter(|(pid, birth)| is_new(pid, birth))
                .map(|(pid, birth)| (*pid, birth.began))
                .collect();
            if joined.is_empty() {
                break;
            }
            self.members.extend(joined);
        }
    }
}

/// The process that a number is a thread of, in words, where it is no process's own.
pub fn names_a_thread(kernel: &dyn Kernel, number: u32) -> Option<String> {
    let status = read_text(kernel, format!("/proc/{number}/status")).ok()?;
    let process: u32 = text::field(&status, "Tgid")?.parse().ok()?;
    (process != number).then(|| format!("{number} is a thread of process {process}: name that one"))
}

/// Why a process has no memory of its own, if it has none.
pub fn without_memory(kernel: &dyn Kernel, pid: u32) -> Option<&'static str> {
    let stat = read_text(kernel, format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(')')?.1.split_ascii_whitespace().next()?;
    match text::stat_field(&stat, FLAGS) {
        _ if matches!(state, "Z" | "X") => Some("has ended, and its parent has not waited for it yet"),
        Some(flags) if flags & KERNEL_THREAD != 0 => Some("is a thread of the kernel's"),
        _ => None,
    }
}

/// Whether the process of this number is still the one that began then. One that could not be read just now has not ended
/// for that.
fn is_member(kernel: &dyn Kernel, pid: u32, began: &mut Option<u64>) -> bool {
    match read_text(kernel, format!("/proc/{pid}/stat")) {
        Ok(stat) => match (text::stat_field(&stat, BEGAN), *began) {
            (Some(now), Some(before)) => now == before,
            (now, None) => {
                *began = now;
                true
            }
            (None, _) => true,
        },
        Err(error) => !is_gone(&error),
    }
}

/// Whether a file cannot be read because what it is about is no more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENODEV))
}

/// The parent of a process, and when the process began.
struct Birth {
    parent: u32,
    began: Option<u64>,
}

/// The births of all processes.
fn births(kernel: &dyn Kernel) -> BTreeMap<u32, Birth> {
    let names = kernel.list("/proc".as_ref()).unwrap_or_default();
    let pids = names.iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = read_text(kernel, format!("/proc/{pid}/stat")).ok()?;
        let parent = text::stat_field(&stat, 4)?.try_into().ok()?;
        Some((pid, Birth { parent, began: text::stat_field(&stat, BEGAN) }))
    })
    .collect()
}

fn in_cgroup(kernel: &dyn Kernel, folder: PathBuf, pids: &mut BTreeSet<u32>) -> io::Result<()> {
    let text = read_text(kernel, folder.join("cgroup.procs"))?;
    pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
    for name in kernel.list(&folder).unwrap_or_default() {
        // A cgroup below may be removed while we look.
        if !is_interface(&name) {
            let _ = in_cgroup(kernel, folder.join(name), pids);
        }
    }
    Ok(())
}

/// Whether a name in a cgroup's folder is one of the kernel's files: these begin with the name of what they control. Names
/// of cgroups may have dots as well (`redis.service`, `lxc.payload.web`), also such a beginning (`memory.slice`).
fn is_interface(name: &str) -> bool {
    name.split_once('.').is_some_and(|(control, rest)| {
        CONTROLS.contains(&control) && !UNITS.contains(&rest.rsplit('.').next().unwrap_or(rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rooted;

    fn process(root: &std::path::Path, pid: u32, name: &str, parent: u32) {
        born(root, pid, name, parent, 5000);
    }

    fn born(root: &std::path::Path, pid: u32, name: &str, parent: u32, began: u64) {
        let folder = root.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&folder).unwrap();
        let fields = "0 ".repeat(17);
        std::fs::write(folder.join("stat"), format!("{pid} ({name}) S {parent} {fields}{began} 0")).unwrap();
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
    fn what_a_command_leaves_behind_is_a_member_also_where_it_was_never_seen_before() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Rooted::new(root.path());
        for (pid, name, parent) in [(5, "terrace", 1), (10, "launcher", 5), (20, "other", 1)] {
            process(root.path(), pid, name, parent);
        }
        let mut targets = Targets::new(Selection::Trees(Vec::new()), 5);
        targets.add_command(10);
        assert_eq!(targets.now(&kernel).unwrap(), [10]);
        std::fs::remove_dir_all(root.path().join("proc/10")).unwrap();
        process(root.path(), 12, "daemon", 5);
        process(root.path(), 13, "its child", 12);
        assert_eq!(targets.now(&kernel).unwrap(), [12, 13]);
        let mut attached = Targets::new(Selection::Trees(vec![20]), 5);
        assert_eq!(attached.now(&kernel).unwrap(), [20], "nothing is inherited from what runs already");
    }

    #[test]
    fn zombies_and_threads_of_the_kernel_have_no_memory() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Rooted::new(root.path());
        for (pid, state, flags, expected) in [
            (1, "Z", 0x40_0000, Some("has ended")),
            (2, "I", 0x420_8040, Some("thread of the kernel")),
            (3, "S", 0x40_0100, None),
        ] {
            let folder = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("stat"), format!("{pid} (a) b) {state} 1 1 1 0 -1 {flags} 0"))
                .unwrap();
            let why = without_memory(&kernel, pid);
            assert!(
                why.is_some() == expected.is_some() && why.unwrap_or("").contains(expected.unwrap_or("")),
                "{why:?}"
            );
        }
        assert_eq!(without_memory(&kernel, 4), None);
    }

    #[test]
    fn whoever_gets_the_number_next_is_nobody() {
        for selection in [Selection::Processes(vec![10]), Selection::Trees(vec![10])] {
            let root = tempfile::tempdir().unwrap();
            let kernel = Rooted::new(root.path());
            born(root.path(), 10, "service", 1, 77);
            let mut targets = Targets::new(selection, 0);
            assert_eq!(targets.now(&kernel).unwrap(), [10]);
            assert_eq!(targets.now(&kernel).unwrap(), [10]);
            born(root.path(), 10, "stranger", 1, 78);
            born(root.path(), 11, "child of the stranger", 10, 79);
            assert_eq!(targets.now(&kernel).unwrap(), [0; 0]);
        }
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
        // The folders of services, slices and containers have dots in their names.
        for (name, pid) in [("app.slice/my-app@1.service", 20), ("lxc.payload.web", 21), ("memory.slice", 22)]
        {
            let below = root.path().join("sys/fs/cgroup/app").join(name);
            std::fs::create_dir_all(&below).unwrap();
            std::fs::write(below.join("cgroup.procs"), format!("{pid}\n")).unwrap();
        }
        std::fs::write(root.path().join("sys/fs/cgroup/app/app.slice/cgroup.procs"), "").unwrap();
        assert_eq!(targets.now(&kernel).unwrap(), [5, 7, 20, 21, 22]);
        for name in ["cgroup.procs", "memory.swap.max", "cpu.stat.local", "hugetlb.2MB.max", "irq.pressure"] {
            assert!(is_interface(name), "{name} is no cgroup");
        }
        std::fs::remove_dir_all(root.path().join("sys")).unwrap();
        assert!(targets.now(&kernel).is_err());
    }
}

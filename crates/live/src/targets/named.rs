//! From what a command line names to a selection of processes that exist.

use super::{Selection, names_a_thread, without_memory};
use crate::kernel::Kernel;
use crate::session::Problem;
use crate::systemd::Systemctl;
use std::path::{Path, PathBuf};

/// What was named. One kind of it at a time is taken, in this order.
#[derive(Clone, Debug, Default)]
pub struct Named<'a> {
    /// A service of systemd.
    pub service: Option<&'a str>,
    /// The folder of a cgroup.
    pub cgroup: Option<&'a Path>,
    /// Processes.
    pub processes: &'a [u32],
    /// The first processes of trees.
    pub trees: &'a [u32],
}

impl Named<'_> {
    /// The processes that are meant.
    ///
    /// # Errors
    /// There are no such processes, or they have no memory: in words, with the next step.
    pub fn selection(&self, kernel: &dyn Kernel, systemctl: &Systemctl) -> Result<Selection, Problem> {
        let Named { service, cgroup, processes, trees } = self;
        if let Some(name) = service {
            return Ok(Selection::Cgroup(systemctl.control_group(kernel, name)?));
        }
        if let Some(folder) = cgroup {
            if !folder.join("cgroup.procs").exists() {
                let folder = folder.display();
                return Err(Problem::Usage(format!("{folder} is no cgroup; they lie below /sys/fs/cgroup")));
            }
            return Ok(Selection::Cgroup(folder.to_path_buf()));
        }
        for pid in processes.iter().chain(*trees) {
            if !PathBuf::from(format!("/proc/{pid}")).exists() {
                return Err(Problem::Usage(format!("there is no process {pid}")));
            }
            if let Some(why) = names_a_thread(kernel, *pid) {
                return Err(Problem::Usage(why));
            }
        }
        // In a tree the root may have no memory while its children have all of it.
        for pid in *processes {
            if let Some(why) = without_memory(kernel, *pid) {
                return Err(Problem::Usage(format!("process {pid} has no memory to manage: {why}")));
            }
        }
        Ok(match processes.is_empty() {
            false => Selection::Processes(processes.to_vec()),
            true => Selection::Trees(trees.to_vec()),
        })
    }
}

impl Selection {
    /// The selection in a few words: `process 4711`, `tree of 1, 2`, or the last part of a cgroup's path.
    pub fn in_words(&self) -> String {
        let pids = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Selection::Cgroup(folder) => {
                folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
            }
            Selection::Trees(roots) => format!("tree of {}", pids(roots)),
            Selection::Processes(all) => format!("process {}", pids(all)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Linux;

    #[test]
    fn what_was_named_is_found_or_said_not_to_be_there() {
        let own = [std::process::id()];
        let found = |named: Named<'_>| named.selection(&Linux, &Systemctl::default());
        let selection = found(Named { trees: &own, ..Named::default() }).unwrap();
        assert_eq!(selection.in_words(), format!("tree of {}", own[0]));
        let selection = found(Named { processes: &own, ..Named::default() }).unwrap();
        assert_eq!(selection.in_words(), format!("process {}", own[0]));

        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("jobs");
        std::fs::create_dir(&group).unwrap();
        let named = || found(Named { cgroup: Some(&group), ..Named::default() });
        let Err(Problem::Usage(said)) = named() else { panic!("a folder is no cgroup") };
        assert!(said.contains("is no cgroup"), "{said}");
        std::fs::write(group.join("cgroup.procs"), "").unwrap();
        assert_eq!(named().unwrap().in_words(), "jobs");

        let none = [4_000_000_000];
        for named in
            [Named { trees: &none, ..Named::default() }, Named { processes: &none, ..Named::default() }]
        {
            let Err(Problem::Usage(said)) = found(named) else { panic!("no process has such a number") };
            assert_eq!(said, "there is no process 4000000000");
        }
    }
}

//! The control group of a service, asked of systemd: names may be aliases or instances of templates, and slices have
//! names of their own.

use super::notify::NOTIFY_SOCKET;
use crate::facts::system;
use crate::kernel::{Kernel, read_text};
use crate::session::Problem;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is asked of a unit.
const PROPERTIES: &str = "--property=Id,LoadState,ActiveState,SubState,ControlGroup";

/// The program that asks systemd.
#[derive(Clone, Debug)]
pub struct Systemctl(PathBuf);

impl Default for Systemctl {
    fn default() -> Systemctl {
        Systemctl(PathBuf::from("systemctl"))
    }
}

impl Systemctl {
    /// The folder of the control group of a service, or of another unit such as a slice. Names are those of `systemctl`:
    /// `.service` may be left out.
    ///
    /// # Errors
    /// There is no systemd, or no such service, or it does not run: in words, with the next step.
    pub fn control_group(&self, kernel: &dyn Kernel, name: &str) -> Result<PathBuf, Problem> {
        // systemctl would take a pattern for all services that fit, and a path for a mount point.
        if name.is_empty() || name.contains(|letter: char| "*?[/".contains(letter) || letter.is_whitespace())
        {
            return Err(Problem::Usage(format!(
                "--service {name:?}: no name of a service, such as redis-server; `systemctl list-units --type=service` \
                 shows them"
            )));
        }
        let answer = self.show(name)?;
        let mounts = read_text(kernel, "/proc/self/mounts").unwrap_or_default();
        let root = system::mount(&mounts, "cgroup2").ok_or_else(|| {
            Problem::Machine("control groups of version 2 are not mounted, which --service needs".to_owned())
        })?;
        folder(&answer, name, root.as_ref())
    }

    fn show(&self, name: &str) -> Result<String, Problem> {
        let mut command = Command::new(&self.0);
        command.args(["show", "--no-pager", PROPERTIES, "--", name]).stdin(Stdio::null());
        // Otherwise its messages could be taken for Terrace's own.
        command.env_remove(NOTIFY_SOCKET);
        let output = command.output().map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "there is no systemctl here".to_owned(),
                _ => format!("systemctl cannot be started: {error}"),
            };
            Problem::Machine(format!(
                "{why}, so systemd cannot be asked for {name}; name its folder with --cgroup"
            ))
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().map(|line| line.trim().trim_end_matches('.')).collect();
        Err(Problem::Machine(format!(
            "systemd does not answer for {name}: {}; where no systemd runs, name the folder of the processes with --cgroup",
            said.join("; ")
        )))
    }
}

/// The folder below `root`, from what `systemctl show` has said of a unit.
fn folder(answer: &str, name: &str, root: &Path) -> Result<PathBuf, Problem> {
    let properties: BTreeMap<&str, &str> =
        answer.lines().filter_map(|line| line.trim_end().split_once('=')).collect();
    let of = |property: &str| properties.get(property).copied().unwrap_or_default();
    let (id, active) = (of("Id"), of("ActiveState"));
    let state = format!("{active}, {}", of("SubState"));
    match of("LoadState") {
        "loaded" => {}
        "not-found" => {
            return Err(Problem::Usage(format!(
                "there is no service {id}; `systemctl list-units --type=service` shows those that there are"
            )));
        }
        "masked" => {
            return Err(Problem::Usage(format!("{id} is masked, so it does not run: systemctl unmask {id}")));
        }
        load => {
            return Err(Problem::Machine(format!(
                "{id} has no unit file that systemd takes ({load}): systemctl status {id}"
            )));
        }
    }
    let below = of("ControlGroup").trim_start_matches('/');
    match active {
        "active" | "reloading" | "activating" | "deactivating" | "refreshing"
            if !of("ControlGroup").is_empty() => {}
        "active" | "reloading" | "refreshing" => {
            return Err(Problem::Machine(format!(
                "{id} has no process ({state}), so there is nothing to manage"
            )));
        }
        _ => {
            return Err(Problem::Machine(format!(
                "{id} does not run ({state}); start it: systemctl start {id}"
            )));
        }
    }
    let folder = root.join(below);
    if !folder.join("cgroup.procs").exists() {
        let folder = folder.display();
        return Err(Problem::Machine(format!(
            "the control group of {name} ({id}) is not at {folder}: {id} has just ended, or is elsewhere in this \
             container; --cgroup names a folder"
        )));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rooted;

    /// What systemd 252 says of a unit.
    fn answer(id: &str, [load, active, sub]: [&str; 3], group: &str) -> String {
        format!("Id={id}\nControlGroup={group}\nLoadState={load}\nActiveState={active}\nSubState={sub}\n")
    }

    fn with_group(group: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(group.trim_start_matches('/'));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup.procs"), "").unwrap();
        root
    }

    #[test]
    fn names_of_slices_are_taken_as_they_are() {
        let group = r"/system.slice/system-my\x2dapp.slice/my-app@1.service";
        let root = with_group(group);
        let running = answer("my-app@1.service", ["loaded", "active", "running"], group);
        let found = folder(&running, "my-app@1", root.path()).unwrap();
        assert_eq!(found, root.path().join(&group[1..]));
        for state in ["activating", "reloading"] {
            let answer = answer("my-app@1.service", ["loaded", state, "start"], group);
            assert!(folder(&answer, "my-app@1", root.path()).is_ok(), "{state}: the processes are there");
        }
    }

    #[test]
    fn what_does_not_run_is_said_with_the_next_step() {
        let root = with_group("/system.slice/a.service");
        let failure = |load: &str, active: &str, sub: &str, group: &str| {
            let answer = answer("a.service", [load, active, sub], group);
            match folder(&answer, "a", root.path()).unwrap_err() {
                Problem::Usage(said) => format!("2 {said}"),
                Problem::Machine(said) => format!("1 {said}"),
            }
        };
        let start = "1 a.service does not run (inactive, dead); start it: systemctl start a.service";
        assert_eq!(failure("loaded", "inactive", "dead", ""), start);
        assert!(failure("loaded", "failed", "failed", "").contains("does not run (failed, failed)"));
        // The folder of a service that has ended may still be there.
        let left = failure("loaded", "failed", "failed", "/system.slice/a.service");
        assert!(left.contains("does not run"), "{left}");
        assert!(failure("loaded", "activating", "auto-restart", "").contains("does not run (activating"));
        assert!(
            failure("loaded", "active", "exited", "")
                .starts_with("1 a.service has no process (active, exited)")
        );
        assert!(
            failure("not-found", "inactive", "dead", "").starts_with("2 there is no service a.service; ")
        );
        assert!(failure("masked", "inactive", "dead", "").contains("systemctl unmask a.service"));
        assert!(failure("bad-setting", "inactive", "dead", "").contains("takes (bad-setting)"));
        let gone = failure("loaded", "active", "running", "/system.slice/b.service");
        assert!(gone.contains("system.slice/b.service: a.service has just ended"), "{gone}");
    }

    /// A program in place of systemctl; returns where the tests' machine lies.
    fn systemctl(script: &str) -> (tempfile::TempDir, Systemctl) {
        let root = with_group("/sys/fs/cgroup/system.slice/real.service");
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", root.path().join("sys/fs/cgroup").display());
        std::fs::write(root.path().join("proc/self/mounts"), mounts).unwrap();
        let program = root.path().join("systemctl");
        // By a process of its own: a file that this one had open for writing could not be executed while another test forks.
        let mut write = Command::new("sh");
        write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", script]);
        assert!(write.arg(&program).status().unwrap().success());
        (root, Systemctl(program))
    }

    #[test]
    fn systemd_is_asked_by_the_name_that_was_given() {
        // Checks what it is asked, and answers for the unit that the alias stands for.
        let script = format!(
            "[ \"$*\" = 'show --no-pager {PROPERTIES} -- -alias' ] || exit 9\n\
             printf 'Id=real.service\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\n'\n\
             echo ControlGroup=/system.slice/real.service"
        );
        let (root, systemctl) = systemctl(&script);
        let found = systemctl.control_group(&Rooted::new(root.path()), "-alias").unwrap();
        assert_eq!(found, root.path().join("sys/fs/cgroup/system.slice/real.service"));
    }

    #[test]
    fn without_systemd_the_next_step_is_a_folder() {
        let (root, refuses) = systemctl("echo 'System has not been booted with systemd.' >&2; exit 1");
        let kernel = Rooted::new(root.path());
        let none = Systemctl(root.path().join("none"));
        for (systemctl, why) in
            [(&refuses, "has not been booted with systemd;"), (&none, "no systemctl here")]
        {
            let Problem::Machine(said) = systemctl.control_group(&kernel, "a").unwrap_err() else {
                panic!("the request was fine")
            };
            assert!(said.contains(why) && said.contains("--cgroup"), "{said}");
        }
        for name in ["", "redis*", "a b", "/srv", "?", "[a]"] {
            let refused = none.control_group(&kernel, name);
            assert!(matches!(refused, Err(Problem::Usage(_))), "{name}");
        }
    }
}

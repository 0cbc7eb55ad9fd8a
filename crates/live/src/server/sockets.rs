//! Sockets in a folder: their names, making one that is nobody else's to open, and removing what the dead have left.

use crate::folder::Folder;
use crate::session::Problem;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use terrace_model::printable::one_line;

/// A socket's name until it is complete.
const DRAFT: &str = "s";

/// The default place of a process's socket.
pub fn socket_of(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.sock"))
}

/// The sockets in a folder of this user at which a process answers, by process.
pub fn sockets(folder: &Path) -> Vec<(u32, PathBuf)> {
    let names = Folder::open(folder).and_then(|folder| folder.names()).unwrap_or_default();
    let mut found: Vec<(u32, PathBuf)> = names
        .into_iter()
        .filter_map(|name| {
            let pid = name.strip_suffix(".sock")?.parse().ok()?;
            let path = folder.join(name);
            // A socket that a killed process left behind refuses; one that is not ours is not to be opened.
            let gone = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            let is_there = UnixStream::connect(&path).map_or_else(|error| !gone(&error), |_| true);
            is_there.then_some((pid, path))
        })
        .collect();
    found.sort();
    found
}

/// The socket in `folder` of the one process that answers there, or of the process that is chosen.
///
/// # Errors
/// None answers, or several do and none is chosen.
pub fn find(folder: &Path, pid: Option<u32>) -> Result<PathBuf, Problem> {
    let mut found = sockets(folder);
    if let Some(pid) = pid {
        found.retain(|(running, _)| *running == pid);
    }
    match found.as_slice() {
        [(_, socket)] => Ok(socket.clone()),
        [] => {
            let which = pid.map_or(String::new(), |pid| format!(" as process {pid}"));
            Err(Problem::Machine(format!(
                "no Terrace is running{which}; `terrace run` and `terrace attach` start one (looked in {}; what root \
                 runs only root can watch)",
                folder.display()
            )))
        }
        several => {
            let named = several.iter().map(|(pid, socket)| {
                let policy =
                    super::status(socket).map_or_else(|error| error.to_string(), |status| status.policy);
                format!("{pid} ({policy})")
            });
            let named = named.collect::<Vec<_>>().join(", ");
            Err(Problem::Usage(format!("several are running; choose one with --pid: {named}")))
        }
    }
}

/// What to say where one of these processes is managed by another Terrace too, which answers in `folder`. Dry runs move
/// nothing and do not count.
pub fn managed_elsewhere(folder: &Path, processes: &[u32]) -> Option<String> {
    let mut others = sockets(folder).into_iter().filter(|(pid, _)| *pid != std::process::id());
    others.find_map(|(pid, socket)| {
        let status = super::status(&socket).ok().filter(|status| !status.dry_run)?;
        let process = status.processes.iter().find(|process| processes.contains(&process.pid))?;
        Some(format!(
            "process {} ({}) is managed by another Terrace as well, process {pid} with the policy {}: each undoes what the other \
             moves; end one of them",
            process.pid,
            one_line(&process.name),
            one_line(&status.policy)
        ))
    })
}

/// A socket at `path` that was never anyone else's to open: made in a folder of its own and put in its place complete.
pub(super) fn private(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_in_use = std::fs::symlink_metadata(path).is_ok() && UnixStream::connect(path).is_ok();
    if is_in_use {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there"));
    }
    let draft = folder.join(format!(".{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&draft)?;
    let listener = bind(&draft.join(DRAFT), path);
    // Empty again, or of no use.
    let _ = std::fs::remove_dir_all(&draft);
    listener
}

fn bind(draft: &Path, path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(draft)?;
    std::fs::set_permissions(draft, PermissionsExt::from_mode(0o600))?;
    if std::fs::symlink_metadata(path).is_ok_and(|there| !is_socket(&there)) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what is there is no socket"));
    }
    std::fs::rename(draft, path)?;
    Ok(listener)
}

fn is_socket(there: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&there.file_type())
}

/// Removes what killed processes have left behind: sockets at which nobody answers, and drafts of sockets and journals.
/// Returns their paths.
pub fn remove_stale(folder: &Path) -> Vec<PathBuf> {
    let names = Folder::open(folder).and_then(|folder| folder.names()).unwrap_or_default();
    let mut stale: Vec<PathBuf> = names
        .iter()
        .map(|name| folder.join(name))
        .filter(|path| is_dead(path) || is_draft_of_the_dead(path))
        .collect();
    stale.retain(|path| {
        let _ = std::fs::remove_file(path.join(DRAFT));
        std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)).is_ok()
    });
    stale
}

fn is_dead(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sock")
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether a draft belongs to a process that is no more, by the number in its name: a folder of [`private`], or a file of
/// the journal.
fn is_draft_of_the_dead(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix('.').or_else(|| name.strip_suffix(".draft"));
    let pid = number.and_then(|number| number.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

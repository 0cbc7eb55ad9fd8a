//! The help of a command that is launched: a library that is preloaded into it hands over a userfaultfd of its memory, with
//! which its stores are known exactly (`crates/preload/helper`). With another one a thread of it takes page-table entries of
//! shared memory out, by which accesses are known (`crates/preload/dropper`), and with a third those are reported as they
//! happen (`crates/preload/sampler`).

mod places;

pub use places::{place, remove_stale};

use places::{PREFIX, is_noexec};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, OsString, c_int};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use terrace_handover::{CONTROL, VARIABLE};

const LIBRARY: &[u8] = include_bytes!(env!("TERRACE_HELPER_LIBRARY"));
const DROPPER_LIBRARY: &[u8] = include_bytes!(env!("TERRACE_DROPPER_LIBRARY"));
const SAMPLER_LIBRARY: &[u8] = include_bytes!(env!("TERRACE_SAMPLER_LIBRARY"));
/// What the dynamic linker looks at.
const PRELOAD: &str = "LD_PRELOAD";
/// How long a program that has connected may take to hand over its descriptor.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of descriptors from which on those of ended processes are looked for.
const MANY: usize = 64;
/// Where the libraries find the socket.
fn variable() -> OsString {
    OsStr::from_bytes(VARIABLE.to_bytes()).to_owned()
}

/// What one process has handed over.
#[derive(Debug, Default)]
struct Handed {
    tracker: Option<OwnedFd>,
    dropper: Option<UnixStream>,
}

/// What programs have handed over, by process.
#[derive(Clone, Debug, Default)]
pub struct Trackers(Arc<Mutex<HashMap<u32, Handed>>>, Arc<AtomicBool>);

impl Trackers {
    /// Whether any process has handed over something, ever.
    pub fn has_any(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    /// What a process has handed over since it was last asked for. A program that executes another does so anew.
    pub fn take(&self, pid: u32) -> Option<OwnedFd> {
        self.0.lock().ok()?.get_mut(&pid)?.tracker.take()
    }

    /// The other end of the socket of a process's thread that drops, likewise.
    pub fn take_dropper(&self, pid: u32) -> Option<UnixStream> {
        self.0.lock().ok()?.get_mut(&pid)?.dropper.take()
    }

    /// Puts back what was taken and belongs to a program that the process has executed since, unless there is newer.
    pub fn give_back(&self, pid: u32, tracker: OwnedFd) {
        self.put(pid, |handed| {
            handed.tracker.get_or_insert(tracker);
        });
    }

    /// Puts back the socket of the process's thread, as [`Trackers::give_back`] does the tracker.
    pub fn give_back_dropper(&self, pid: u32, thread: UnixStream) {
        self.put(pid, |handed| {
            handed.dropper.get_or_insert(thread);
        });
    }

    fn put(&self, pid: u32, hand_over: impl FnOnce(&mut Handed)) {
        self.1.store(true, Ordering::Relaxed);
        let Ok(mut all) = self.0.lock() else { return };
        if all.len() >= MANY {
            // SAFETY: no signal is sent with number 0.
            all.retain(|pid, _| unsafe { libc::kill(*pid as i32, 0) } == 0);
        }
        hand_over(all.entry(pid).or_default());
    }
}

/// A library that programs are started with: its name, and what is in it.
pub(crate) type Library = (&'static str, &'static [u8]);

const HELPER: Library = ("libterrace_helper.so", LIBRARY);
const DROPPER: Library = ("libterrace_dropper.so", DROPPER_LIBRARY);
const SAMPLER: Library = ("libterrace_sampler.so", SAMPLER_LIBRARY);

/// The libraries in a folder of their own, and the socket at which it is awaited. Both are gone when this is dropped; what
/// was handed over stays.
#[derive(Debug)]
pub struct Help {
    folder: TempDir,
    /// What is preloaded, in that order.
    libraries: &'static [Library],
    trackers: Trackers,
    stop: Arc<AtomicBool>,
}

impl Help {
    /// Waits for programs whose stores are tracked.
    ///
    /// # Errors
    /// No file or socket can be made in the folder for temporary files.
    pub fn start() -> io::Result<Help> {
        Help::with(&[HELPER])
    }

    /// Waits for programs that take out entries of their shared memory as well, when they are asked to.
    ///
    /// # Errors
    /// As [`Help::start`].
    pub fn start_with_dropper() -> io::Result<Help> {
        Help::with(&[HELPER, DROPPER])
    }

    /// Waits for programs that take out entries of their shared memory, and let faults in it be answered.
    ///
    /// # Errors
    /// As [`Help::start`].
    pub fn start_with_sampler() -> io::Result<Help> {
        Help::with(&[SAMPLER, DROPPER])
    }

    fn with(libraries: &'static [Library]) -> io::Result<Help> {
        let folder = folder_with(libraries)?;
        let help = Help { folder, libraries, trackers: Trackers::default(), stop: Arc::default() };
        let listener = UnixListener::bind(help.socket())?;
        std::fs::set_permissions(help.socket(), std::fs::Permissions::from_mode(0o600))?;
        let (trackers, stop) = (help.trackers.clone(), help.stop.clone());
        std::thread::Builder::new()
            .name("help".to_owned())
            .spawn(move || listen(&listener, &trackers, &stop))?;
        Ok(help)
    }

    /// What is handed over.
    pub fn trackers(&self) -> &Trackers {
        &self.trackers
    }

    /// What the command's environment has to say: names and values.
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        let ours = self.libraries.iter().map(|(name, _)| self.folder.path().join(name).into_os_string());
        [preloaded(ours), (variable(), self.socket().into_os_string())]
    }

    /// Stops listening, and leaves the library for programs that are started later.
    pub fn stay(mut self) {
        self.folder.disable_cleanup(true);
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Help {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Whoever waits for a connection gets one and sees that it is over.
        let _ = UnixStream::connect(self.socket());
        let _ = std::fs::remove_file(self.socket());
    }
}

/// A folder of these libraries, which is gone when it is dropped.
pub(crate) fn folder_with(libraries: &[Library]) -> io::Result<TempDir> {
    let temporary = place();
    remove_stale(&temporary);
    if is_noexec(&temporary)? {
        let place = temporary.display();
        return Err(io::Error::other(format!(
            "no program can load a library from {place}, which is mounted with noexec; set TMPDIR to a folder \
             that is not"
        )));
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&temporary)?;
    // The library is for every user that the command may become.
    let searchable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder.path(), searchable)?;
    for (name, bytes) in libraries {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(folder)
}

/// A file of the user's alone beside libraries, for what they share with Terrace.
pub(crate) fn shared_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path)?;
    // Whatever the user's mask.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// What the environment of a command has to say that loads a library of a folder and shares a file of it: names and values.
pub(crate) fn environment_with(
    folder: &Path,
    library: Library,
    (variable, file): (&CStr, &str),
) -> Vec<(OsString, OsString)> {
    let place = |name: &str| folder.join(name).into_os_string();
    vec![
        preloaded(std::iter::once(place(library.0))),
        (OsStr::from_bytes(variable.to_bytes()).to_owned(), place(file)),
    ]
}

/// The variable that has programs load these libraries, and then those that they load anyway.
pub(crate) fn preloaded(ours: impl Iterator<Item = OsString>) -> (OsString, OsString) {
    let others = std::env::var_os(PRELOAD).filter(|others| !others.is_empty());
    let preload: Vec<OsString> = ours.chain(others).collect();
    (PRELOAD.into(), preload.join(OsStr::new(":")))
}

/// Both environments as one: the libraries of both are loaded.
pub fn joined(one: Vec<(OsString, OsString)>, other: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut all = one;
    for (name, value) in other {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, libraries)) => {
                libraries.push(":");
                libraries.push(value);
            }
            None => all.push((name, value)),
        }
    }
    all
}

fn listen(listener: &UnixListener, trackers: &Trackers, stop: &AtomicBool) {
    while let Ok((stream, _)) = listener.accept() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match received(&stream) {
            Ok((pid, terrace_handover::DROPPER, descriptor)) => {
                tracing::debug!(pid, "the program helps: it takes out entries of shared memory");
                trackers.put(pid, |handed| handed.dropper = Some(descriptor.into()));
            }
            Ok((pid, _, descriptor)) => {
                tracing::debug!(pid, "the program helps: it has handed over a userfaultfd");
                trackers.put(pid, |handed| handed.tracker = Some(descriptor));
            }
            Err(error) => tracing::debug!(%error, "a program connected and did not help"),
        }
    }
}

/// The process at the other end, the byte that it says, and the descriptor that it hands over.
fn received(stream: &UnixStream) -> io::Result<(u32, u8, OwnedFd)> {
    stream.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let mut byte = [0u8];
    let mut control = [0u64; CONTROL / 8];
    // SAFETY: `peer` and `length` are what the option fills; the message refers to one byte and to a control buffer with
    // room for one descriptor, and all outlive the calls. Headers are read only where the macros find them.
    unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let fd = stream.as_raw_fd();
        if libc::getsockopt(fd, level, option, (&raw mut peer).cast(), &raw mut length) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        if libc::recvmsg(fd, &raw mut message, libc::MSG_CMSG_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_level != level || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let descriptor = OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned());
        Ok((peer.pid as u32, byte[0], descriptor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Sends what `control` says, as the library does.
    fn offer(help: &Help, descriptor: Option<c_int>) {
        let stream = UnixStream::connect(help.socket()).unwrap();
        let Some(descriptor) = descriptor else {
            (&stream).write_all(b"GET / HTTP/1.1").unwrap();
            return;
        };
        let (mut byte, mut control) = ([0u8], [0u64; CONTROL / 8]);
        // SAFETY: as in `received`.
        unsafe {
            let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor);
            assert_eq!(libc::sendmsg(stream.as_raw_fd(), &raw const message, 0), 1);
        }
    }

    #[test]
    fn modes_do_not_depend_on_the_users_mask() {
        let help = Help::start().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(help.folder.path()), 0o711);
        assert_eq!(mode(&help.folder.path().join("libterrace_helper.so")), 0o755);
        assert_eq!(mode(&help.socket()), 0o600);
    }

    #[test]
    fn a_descriptor_arrives_by_process_and_strange_visitors_do_no_harm() {
        let help = Help::start().unwrap();
        let [(_, preload), (name, socket)] = help.environment();
        assert!(preload.to_string_lossy().contains("libterrace_helper.so"));
        assert_eq!((name, socket), (variable(), help.socket().into_os_string()));
        let own = std::process::id();
        drop(UnixStream::connect(help.socket()).unwrap());
        offer(&help, None);
        // Says nothing and stays.
        let silent = UnixStream::connect(help.socket()).unwrap();
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(b"terrace").unwrap();
        offer(&help, Some(file.as_raw_fd()));
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let arrived = loop {
            match help.trackers().take(own) {
                Some(arrived) => break std::fs::File::from(arrived),
                None => assert!(std::time::Instant::now() < deadline, "nothing arrives"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(arrived.metadata().unwrap().len(), 7, "the same file");
        assert!(help.trackers().take(own).is_none(), "each is taken once");
        drop(silent);
        let folder = help.folder.path().to_owned();
        drop(help);
        assert!(!folder.exists());
    }
}

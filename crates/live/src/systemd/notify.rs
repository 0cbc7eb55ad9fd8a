//! What the service manager is told (sd_notify(3)): that the management has begun, what it does, and that it ends.
//!
//! Without a manager that waits for it (`NOTIFY_SOCKET` is not set) nothing is sent. The crate `sd-notify` does the same for
//! sockets with a path alone; managers in containers may have one without (an address that begins with `@`).

use crate::engine::State;
use crate::status::Status;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use terrace_model::printable::one_line;

/// The variable with the address of the manager's socket.
pub(super) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The shortest time between two descriptions of what is done.
const EVERY: Duration = Duration::from_secs(10);
/// The longest wait for a manager that takes nothing.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A way to the service manager.
#[derive(Debug, Default)]
pub struct Notifier {
    manager: Option<UnixDatagram>,
    is_ready: bool,
    /// The last description, and when it was sent.
    last: Option<(String, Instant)>,
}

impl Notifier {
    /// To the manager that has started this process, if that waits to be told.
    pub fn from_environment() -> Notifier {
        std::env::var_os(NOTIFY_SOCKET).map_or_else(Notifier::default, |address| Notifier::to(&address))
    }

    /// To the socket at an address: a path, or a name without one after `@`.
    fn to(address: &OsStr) -> Notifier {
        let manager = connected(address).inspect_err(|error| {
            tracing::warn!(?address, %error, "the service manager cannot be told that Terrace manages");
        });
        Notifier { manager: manager.ok(), ..Notifier::default() }
    }

    /// Describes what is done, for `systemctl status`.
    pub fn describe(&mut self, what: &str) {
        let what = one_line(what);
        self.send(&format!("STATUS={what}"));
        self.last = Some((what, Instant::now()));
    }

    /// The management has begun, so what waits for this service may begin too. `what` describes it in place of a snapshot.
    pub fn ready(&mut self, what: Option<&str>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.send("READY=1");
        }
        // Without a description the next snapshot is one.
        self.last = None;
        if let Some(what) = what {
            self.describe(what);
        }
    }

    /// Describes what a snapshot shows: where that differs from the description before, ten seconds apart, and after
    /// [`Notifier::ready`].
    pub fn update(&mut self, status: &Status) {
        let is_due = |(_, sent): &(String, Instant)| sent.elapsed() >= EVERY;
        if !self.is_ready || !self.last.as_ref().is_none_or(is_due) {
            return;
        }
        let what = in_words(status);
        if self.last.as_ref().is_none_or(|(last, _)| *last != what) {
            self.describe(&what);
        }
    }

    /// The management ends; what was set is put back.
    pub fn stopping(&mut self) {
        self.send("STOPPING=1");
        self.describe("putting back what was set");
    }

    fn send(&self, message: &str) {
        if let Some(manager) = &self.manager
            && let Err(error) = manager.send(message.as_bytes())
        {
            tracing::warn!(message, %error, "the service manager was not told");
        }
    }
}

fn connected(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        [b'/', ..] => socket.connect(address)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor a name after @")),
    }
    socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok(socket)
}

/// A snapshot in one line: `nimble: 2 processes, 96.0 MiB promoted, 0.0 MiB demoted, paused`.
pub(super) fn in_words(status: &Status) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let count = status.processes.len();
    let state = match status.state {
        State::Paused => ", paused",
        State::HeldBack => ", held back while tasks wait for memory",
        State::Working | State::Resting | State::Stopped => "",
    };
    format!(
        "{}: {count} process{}, {:.1} MiB promoted, {:.1} MiB demoted{state}{}",
        status.policy,
        if count == 1 { "" } else { "es" },
        mib(status.moves.promoted),
        mib(status.moves.demoted),
        if status.dry_run { ", dry run" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(manager: &UnixDatagram) -> Vec<String> {
        manager.set_nonblocking(true).unwrap();
        let mut bytes = [0; 4096];
        let mut reported = Vec::new();
        while let Ok(length) = manager.recv(&mut bytes) {
            reported.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
        }
        reported
    }

    fn snapshot() -> Status {
        let text = include_str!("../../tests/fixtures/status.json");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_manager_is_notified_of_the_beginning_of_changes_and_of_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut notifier = Notifier::to(path.as_os_str());
        let mut status = snapshot();
        notifier.describe("setting up\nREADY=1");
        assert_eq!(received(&manager), ["STATUS=setting up\\nREADY=1"], "one line, whatever is in a name");
        notifier.last = None;
        notifier.update(&status);
        assert_eq!(received(&manager), [""; 0], "the management has not begun");

        let first = in_words(&status);
        notifier.ready(None);
        notifier.update(&status);
        assert_eq!(received(&manager), ["READY=1".to_owned(), format!("STATUS={first}")]);
        status.moves.promoted += 3 << 20;
        notifier.update(&status);
        assert_eq!(received(&manager), [""; 0], "not at every change");
        let long_ago = Instant::now().checked_sub(EVERY).unwrap();
        notifier.last = Some((first, long_ago));
        notifier.update(&status);
        assert_eq!(received(&manager), [format!("STATUS={}", in_words(&status))]);
        notifier.last = Some((in_words(&status), long_ago));
        notifier.update(&status);
        assert_eq!(received(&manager), [""; 0], "nothing has changed");
        notifier.stopping();
        assert_eq!(received(&manager), ["STOPPING=1", "STATUS=putting back what was set"]);
    }

    #[test]
    fn a_manager_may_listen_at_a_name_without_a_path() {
        let name = format!("terrace-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::to(format!("@{name}").as_ref()).ready(Some("begun"));
        assert_eq!(received(&manager), ["READY=1", "STATUS=begun"]);
    }

    #[test]
    fn nobody_who_listens_is_no_failure() {
        for address in ["", "relative", "vsock:2:1234", "/nowhere/notify", "@nobody-listens-here"] {
            Notifier::to(address.as_ref()).ready(Some("begun"));
        }
    }

    #[test]
    fn a_snapshot_fits_one_line() {
        let mut status = snapshot();
        status.policy = "nimble".to_owned();
        status.processes.truncate(1);
        (status.moves.promoted, status.moves.demoted) = (96 << 20, 1 << 19);
        (status.state, status.dry_run) = (State::Resting, false);
        assert_eq!(in_words(&status), "nimble: 1 process, 96.0 MiB promoted, 0.5 MiB demoted");
        status.processes.clear();
        (status.state, status.dry_run) = (State::Paused, true);
        let paused = "nimble: 0 processes, 96.0 MiB promoted, 0.5 MiB demoted, paused, dry run";
        assert_eq!(in_words(&status), paused);
    }
}

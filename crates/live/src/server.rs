//! The status for others: HTTP on a Unix socket that only its owner may use, and on request the metrics on a TCP port.
//!
//! A few lines of our own instead of a web server: whoever may connect must not be able to take more than a second and a few
//! kilobytes from a process that moves the memory of others. A request has one line that matters, bodies are not read, and
//! every answer ends its connection. A few connections are served at a time, and where there are more the oldest has to go:
//! clients that connect and say nothing keep nobody out.

use crate::control::Control;
use crate::folder::Folder;
use crate::metrics;
use crate::status::{Board, Status};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest head of a request.
const HEAD: usize = 8 * 1024;
/// Longest time that one request may take to arrive, and its answer to leave.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest answer that a client reads.
const ANSWER: u64 = 64 << 20;

/// Connections of one listener that are open at a time.
const CONNECTIONS: usize = 16;

/// A socket's name until it is complete.
const DRAFT: &str = "s";

/// The default place of a process's socket.
pub fn socket_of(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.sock"))
}

/// The sockets at which someone answers in a folder of this user's, by process.
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

/// Serves a board until it is dropped; then the socket is gone.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    metrics: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
}

/// What those who connect may ask for.
#[derive(Clone)]
struct Service {
    board: Board,
    /// None where only metrics may be read.
    control: Option<Control>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `socket`, whose folder must be there, and for metrics alone at `metrics`. What a killed process has left at `socket` is replaced.
    ///
    /// # Errors
    /// A place where nothing can be made, or an address that is taken.
    pub fn start(
        socket: &Path,
        metrics: Option<SocketAddr>,
        board: Board,
        control: &Control,
    ) -> io::Result<Server> {
        let stop = Arc::new(AtomicBool::new(false));
        let tcp = metrics.map(TcpListener::bind).transpose()?;
        let unix = private(socket)?;
        let metrics = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut server = Server { socket: socket.to_owned(), metrics: None, stop: stop.clone() };
        let service = Service { board, control: Some(control.clone()), stop };
        if let Some(tcp) = tcp {
            server.metrics = metrics;
            let service = Service { control: None, ..service.clone() };
            thread("metrics", move || service.serve(|| tcp.accept().map(|(stream, _)| stream)))?;
        }
        thread("status", move || service.serve(|| unix.accept().map(|(stream, _)| stream)))?;
        Ok(server)
    }

    /// Where metrics are served by TCP; the port is known only now where any was asked for.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Whoever waits for a connection gets one and sees that it is over.
        let _ = UnixStream::connect(&self.socket);
        let _ = self.metrics.map(|address| TcpStream::connect_timeout(&address, PATIENCE));
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
}

/// A socket at `path` that was never anyone else's to open: made in a folder of its own and put in its place complete.
fn private(path: &Path) -> io::Result<UnixListener> {
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

/// A connection whose patience can be set.
trait Stream: Read + Write + Send + Sized + 'static {
    fn patience(&self, left: Duration) -> io::Result<()>;
    /// Another handle of the same connection.
    fn another(&self) -> io::Result<Self>;
    /// Ends it, whoever reads or writes.
    fn hang_up(&self);
}

/// The open connections of a listener, the oldest first, by a number each.
struct Connections<S>(Mutex<(u64, VecDeque<(u64, S)>)>);

impl<S: Stream> Connections<S> {
    /// One more. Where there are too many the oldest ends.
    fn add(&self, stream: S) -> u64 {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, open) = &mut *guard;
        if open.len() >= CONNECTIONS
            && let Some((_, oldest)) = open.pop_front()
        {
            oldest.hang_up();
        }
        *number += 1;
        open.push_back((*number, stream));
        *number
    }

    fn remove(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.retain(|(one, _)| *one != number);
    }
}

impl Stream for UnixStream {
    fn another(&self) -> io::Result<UnixStream> {
        self.try_clone()
    }

    fn hang_up(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn patience(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

impl Stream for TcpStream {
    fn another(&self) -> io::Result<TcpStream> {
        self.try_clone()
    }

    fn hang_up(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn patience(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

/// An answer.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn plain(status: &'static str, body: &str) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }
}

impl Service {
    fn serve<S: Stream>(&self, mut accept: impl FnMut() -> io::Result<S>) {
        let open = Arc::new(Connections(Mutex::new((0, VecDeque::new()))));
        loop {
            let accepted = accept().and_then(|stream| Ok((stream.another()?, stream)));
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match accepted {
                Ok((mut stream, handle)) => {
                    let number = open.add(handle);
                    let (service, all) = (self.clone(), open.clone());
                    let served = thread("connection", move || {
                        if let Err(error) = service.one(&mut stream) {
                            tracing::debug!(%error, "a request was given up");
                        }
                        all.remove(number);
                    });
                    if let Err(error) = served {
                        open.remove(number);
                        tracing::debug!(%error, "cannot serve a connection");
                    }
                }
                // Too many open files, say: that passes.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    std::thread::sleep(PATIENCE);
                }
            }
        }
    }

    fn one<S: Stream>(&self, stream: &mut S) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let Answer { status, kind, body } = match head(stream, deadline)? {
            Some(head) => self.answer(&head),
            None => Answer::plain("431 Request Header Fields Too Large", "the request is too long"),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        for part in [head.as_bytes(), body.as_bytes()] {
            write_until(stream, part, deadline)?;
        }
        Ok(())
    }

    fn answer(&self, head: &str) -> Answer {
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some(version)) = (words.next(), words.next(), words.next()) else {
            return Answer::plain("400 Bad Request", "this is not HTTP");
        };
        if !version.starts_with("HTTP/1.") {
            return Answer::plain("505 HTTP Version Not Supported", "HTTP 1.1 is spoken here");
        }
        let path = path.split('?').next().unwrap_or_default();
        match (method, path, &self.control) {
            ("GET", "/metrics", _) => self.show(metrics::CONTENT_TYPE, metrics::text),
            ("GET", "/status", Some(_)) => self.show("application/json", |status| {
                serde_json::to_string(status).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
            }),
            ("POST", "/pause" | "/resume", Some(control)) => {
                control.pause.store(path == "/pause", Ordering::Relaxed);
                Answer::plain("200 OK", if path == "/pause" { "paused" } else { "resumed" })
            }
            (_, "/metrics", _) | (_, "/status" | "/pause" | "/resume", Some(_)) => Answer::plain(
                "405 Method Not Allowed",
                "GET /status, GET /metrics, POST /pause, POST /resume",
            ),
            _ => Answer::plain("404 Not Found", "nothing here"),
        }
    }

    fn show(&self, kind: &'static str, text: impl Fn(&Status) -> String) -> Answer {
        match self.board.latest() {
            Some(status) => Answer { status: "200 OK", kind, body: text(&status) },
            None => Answer::plain("503 Service Unavailable", "nothing is known yet; ask again in a second"),
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The head of a request; none where it is too long. A whole second for all of it: single bytes at intervals do not help.
fn head(stream: &mut impl Stream, deadline: Instant) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut some = [0; 1024];
    loop {
        stream.patience(left(deadline)?)?;
        match stream.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&some[..count]),
        }
        if bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
        if bytes.len() > HEAD {
            return Ok(None);
        }
    }
}

fn write_until(stream: &mut impl Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.patience(left(deadline)?)?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Asks a server at a socket; returns the body of what it says.
///
/// # Errors
/// Nobody answers, or not what was hoped for: then with what it said.
pub fn ask(socket: &Path, method: &str, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // A machine under load may take its time.
    stream.patience(PATIENCE * 5)?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: terrace\r\n\r\n")?;
    let mut text = String::new();
    stream.take(ANSWER).read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(body.trim_end())),
    }
}

/// The latest snapshot of the process behind a socket.
///
/// # Errors
/// Nobody answers, or someone who is not Terrace.
pub fn status(socket: &Path) -> io::Result<Status> {
    serde_json::from_str(&ask(socket, "GET", "/status")?).map_err(io::Error::other)
}

/// Removes what killed processes have left behind: sockets at which nobody answers, and drafts of sockets and journals; answers
/// which.
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

/// Of a process that is no more, by the number in its name: a folder of [`private`], or a file of the journal.
fn is_draft_of_the_dead(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix('.').or_else(|| name.strip_suffix(".draft"));
    let pid = number.and_then(|number| number.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;

    struct Bench {
        folder: tempfile::TempDir,
        control: Control,
        board: Board,
    }

    impl Bench {
        fn new() -> Bench {
            let folder = tempfile::tempdir().unwrap();
            Folder::create(&folder.path().join("terrace")).unwrap();
            Bench { folder, control: Control::default(), board: Board::default() }
        }

        fn socket(&self) -> PathBuf {
            socket_of(&self.folder.path().join("terrace"), 42)
        }

        fn start(&self, metrics: Option<&str>) -> Server {
            let metrics = metrics.map(|address| address.parse().unwrap());
            Server::start(&self.socket(), metrics, self.board.clone(), &self.control).unwrap()
        }

        /// Whatever comes back for these bytes.
        fn raw(&self, bytes: &[u8]) -> String {
            let mut stream = UnixStream::connect(self.socket()).unwrap();
            let _ = stream.write_all(bytes);
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    }

    #[test]
    fn status_and_metrics_are_served_and_the_socket_goes_with_the_server() {
        let bench = Bench::new();
        let server = bench.start(None);
        let error = status(&bench.socket()).unwrap_err().to_string();
        assert!(error.contains("ask again"), "{error}");
        bench.board.put(Arc::new(example()));
        assert_eq!(status(&bench.socket()).unwrap(), example());
        assert!(ask(&bench.socket(), "GET", "/metrics").unwrap().contains("terrace_tier_used_bytes"));
        let mode = std::fs::metadata(bench.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let folder = bench.folder.path().join("terrace");
        assert_eq!(sockets(&folder), [(42, bench.socket())]);
        drop(server);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no socket, no draft");
        assert!(sockets(&folder).is_empty());
    }

    #[test]
    fn pause_and_resume_by_post_alone() {
        let bench = Bench::new();
        let _server = bench.start(None);
        let paused = || bench.control.pause.load(Ordering::Relaxed);
        assert!(ask(&bench.socket(), "GET", "/pause").is_err() && !paused());
        assert_eq!(ask(&bench.socket(), "POST", "/pause").unwrap(), "paused\n");
        assert!(paused());
        ask(&bench.socket(), "POST", "/resume").unwrap();
        assert!(!paused());
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_out() {
        let bench = Bench::new();
        let server = bench.start(Some("127.0.0.1:0"));
        bench.board.put(Arc::new(example()));
        let address = server.metrics().unwrap();
        // One after the other they would take two minutes.
        let idle: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("terrace_tier_used_bytes"), "{text}");
        drop(idle);
    }

    #[test]
    fn a_socket_in_no_folder_makes_none() {
        let bench = Bench::new();
        let folder = bench.folder.path().join("none");
        let started = Server::start(&folder.join("x.sock"), None, bench.board.clone(), &bench.control);
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!folder.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let bench = Bench::new();
        drop(UnixListener::bind(bench.socket()).unwrap());
        assert!(sockets(&bench.folder.path().join("terrace")).is_empty(), "nobody answers");
        let _server = bench.start(None);
        bench.board.put(Arc::new(example()));
        assert!(status(&bench.socket()).is_ok());
        let second = Server::start(&bench.socket(), None, Board::default(), &bench.control);
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(status(&bench.socket()).is_ok());
        assert!(remove_stale(&bench.folder.path().join("terrace")).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(folder.path().join("7.sock")).unwrap());
        std::fs::write(folder.path().join("8.json"), "").unwrap();
        std::fs::write(folder.path().join("x"), "mine").unwrap();
        // No process has such a number; this one lives.
        let (dead, alive) = (u32::MAX, std::process::id());
        let drafts =
            [format!(".{dead}"), format!("{dead}.draft"), format!(".{alive}"), format!("{alive}.draft")]
                .map(|name| folder.path().join(name));
        for draft in &drafts {
            if draft.extension().is_some() {
                std::fs::write(draft, "{").unwrap();
            } else {
                std::fs::create_dir(draft).unwrap();
                drop(UnixListener::bind(draft.join("s")).unwrap());
            }
        }
        let mut removed = remove_stale(folder.path());
        removed.sort();
        let mut expected = vec![folder.path().join("7.sock"), drafts[0].clone(), drafts[1].clone()];
        expected.sort();
        assert_eq!(removed, expected);
        assert!(expected.iter().all(|path| !path.exists()) && drafts[2..].iter().all(|path| path.exists()));
        let refused = Server::start(&folder.path().join("x"), None, Board::default(), &Control::default());
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(folder.path().join("x")).unwrap(), "mine");
    }

    #[test]
    fn bad_requests_do_no_harm() {
        let bench = Bench::new();
        let _server = bench.start(None);
        bench.board.put(Arc::new(example()));
        assert!(bench.raw(b"hello\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(bench.raw(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(bench.raw(b"DELETE /status HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(bench.raw(b"GET /status HTTP/2\r\n\r\n").starts_with("HTTP/1.1 505 "));
        assert!(bench.raw(b"\xff\xfe \0 \0\r\n\r\n").starts_with("HTTP/1.1 505 "));
        let body = b"POST /x HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n";
        assert!(bench.raw(body).starts_with("HTTP/1.1 404 "));
        // Answered or cut off, but never held on to.
        bench.raw(&vec![b'x'; 4 * HEAD]);
        // Someone who says nothing is waited for no longer than that.
        let silent = UnixStream::connect(bench.socket()).unwrap();
        assert!(status(&bench.socket()).is_ok());
        drop(silent);
    }

    #[test]
    fn by_tcp_there_are_metrics_and_nothing_else() {
        let bench = Bench::new();
        let server = bench.start(Some("127.0.0.1:0"));
        bench.board.put(Arc::new(example()));
        let get = |request: &str| {
            let mut stream = TcpStream::connect(server.metrics().unwrap()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let metrics = get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"));
        assert!(metrics.ends_with("# EOF\n"));
        assert!(get("GET /status HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(get("POST /pause HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(!bench.control.pause.load(Ordering::Relaxed));
    }
}

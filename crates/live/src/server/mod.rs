//! The status for others: HTTP on a Unix socket that only its owner may use, and on request the metrics on a TCP port.
//!
//! A few lines of our own instead of a web server: whoever may connect must not be able to take more than a second and a few
//! kilobytes from a process that moves the memory of others. A request has one line that matters, bodies are not read, and
//! every answer ends its connection. A few connections are served at a time, and where there are more the oldest has to go:
//! clients that connect and say nothing keep nobody out.

mod connections;
pub(crate) mod fuzz;
mod sockets;

pub use sockets::{find, managed_elsewhere, remove_stale, socket_of, sockets};

use crate::control::Control;
use crate::metrics;
use crate::status::{Board, Status};
use connections::{Connections, Stream, head, write_until};
use sockets::private;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time that one request may take to arrive, and its answer to leave.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time that a client waits for an answer; a machine under load may take its time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that a request waits for the first map, which is made when it is asked for. Less than a client's timeout.
const FIRST_MAP: Duration = Duration::from_secs(4);
/// How often such a request looks for it.
const LOOK: Duration = Duration::from_millis(50);
/// Longest answer that a client reads.
const ANSWER: u64 = 64 << 20;

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
    /// Listens at `socket`, whose folder must be there, and for metrics alone at `metrics`. What a killed process has left
    /// at `socket` is replaced.
    ///
    /// # Errors
    /// A place where nothing can be made, or an address that is taken; the message of the latter says so.
    pub fn start(
        socket: &Path,
        metrics: Option<SocketAddr>,
        board: Board,
        control: &Control,
    ) -> io::Result<Server> {
        let stop = Arc::new(AtomicBool::new(false));
        let bind = |address| TcpListener::bind(address).map_err(|error| no_metrics(address, &error));
        let tcp = metrics.map(bind).transpose()?;
        let unix = private(socket).map_err(|error| no_socket(socket, &error))?;
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
        let _ = self.metrics.map(|address| TcpStream::connect_timeout(&address, REQUEST_TIMEOUT));
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Why metrics cannot be served there, and what helps.
fn no_metrics(address: SocketAddr, error: &io::Error) -> io::Error {
    let what = format!(
        "cannot listen at {address}, the address of the metrics: {error}; choose another with --metrics (port 0 is any \
         that is free)"
    );
    io::Error::new(error.kind(), what)
}

/// Why the status cannot be served there.
fn no_socket(socket: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen at {}: {error}", socket.display()))
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
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

    fn not_yet() -> Answer {
        Answer::plain("503 Service Unavailable", "nothing is known yet; ask again in a second")
    }

    fn json(document: &impl serde::Serialize) -> Answer {
        let body = serde_json::to_string(document);
        let body = body.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
        Answer { status: "200 OK", kind: "application/json", body }
    }
}

impl Service {
    fn serve<S: Stream>(&self, mut accept: impl FnMut() -> io::Result<S>) {
        let open = Arc::new(Connections::default());
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
                    std::thread::sleep(REQUEST_TIMEOUT);
                }
            }
        }
    }

    fn one<S: Stream>(&self, stream: &mut S) -> io::Result<()> {
        self.one_until(stream, Instant::now() + REQUEST_TIMEOUT)
    }

    fn one_until<S: Stream>(&self, stream: &mut S, deadline: Instant) -> io::Result<()> {
        let head = head(stream, deadline)?;
        let arrived = Instant::now();
        let Answer { status, kind, body } = match head {
            Some(head) => self.answer(&head),
            None => Answer::plain("431 Request Header Fields Too Large", "the request is too long"),
        };
        // What the answer took to be made is not the client's time.
        let deadline = deadline + arrived.elapsed();
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
            ("GET", "/status", Some(_)) => match self.board.latest() {
                Some(status) => Answer::json(&*status),
                None => Answer::not_yet(),
            },
            ("GET", "/map", Some(_)) => self.map(FIRST_MAP),
            ("POST", "/pause" | "/resume", Some(control)) => {
                control.pause.store(path == "/pause", Ordering::Relaxed);
                Answer::plain("200 OK", if path == "/pause" { "paused" } else { "resumed" })
            }
            (_, "/metrics", _) | (_, "/status" | "/map" | "/pause" | "/resume", Some(_)) => Answer::plain(
                "405 Method Not Allowed",
                "GET /status, GET /map, GET /metrics, POST /pause, POST /resume",
            ),
            _ => Answer::plain("404 Not Found", "nothing here"),
        }
    }

    /// The latest map. The first is waited for, on the thread of this connection alone.
    fn map(&self, timeout: Duration) -> Answer {
        let until = Instant::now() + timeout;
        loop {
            match self.board.map() {
                Some(map) => return Answer::json(&*map),
                None if self.stop.load(Ordering::Relaxed) || Instant::now() >= until => {
                    return Answer::not_yet();
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    fn show(&self, kind: &'static str, text: impl Fn(&Status) -> String) -> Answer {
        match self.board.latest() {
            Some(status) => Answer { status: "200 OK", kind, body: text(&status) },
            None => Answer::not_yet(),
        }
    }
}

/// Asks a server at a socket; returns the body of what it says.
///
/// # Errors
/// Nobody answers, or the answer is an error; the message quotes it.
pub fn ask(socket: &Path, method: &str, path: &str) -> io::Result<String> {
    ask_within(ANSWER_TIMEOUT, socket, method, path)
}

fn ask_within(timeout: Duration, socket: &Path, method: &str, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        // The kernel speaks of a file that is missing or of a connection.
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            io::Error::new(error.kind(), "no Terrace is running there")
        }
        _ => error,
    })?;
    stream.set_timeout(timeout)?;
    let silent = |error| unanswered(socket, error);
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: terrace\r\n\r\n").map_err(silent)?;
    let mut text = String::new();
    stream.take(ANSWER).read_to_string(&mut text).map_err(silent)?;
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "Terrace ended in the middle of its answer");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(body.trim_end())),
    }
}

/// The error in words where it is that of a time that has run out.
fn unanswered(socket: &Path, error: io::Error) -> io::Error {
    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return error;
    }
    let pid = socket.file_stem().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let what = match pid {
        Some(pid) => {
            format!("Terrace {pid} does not answer; it may be stopped (`kill -CONT {pid}` lets it go on)")
        }
        None => "Terrace does not answer there; it may be stopped (`kill -CONT` lets it go on)".to_owned(),
    };
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// The latest snapshot of the process behind a socket.
///
/// # Errors
/// Nobody answers, or the answer is not that of Terrace.
pub fn status(socket: &Path) -> io::Result<Status> {
    serde_json::from_str(&ask(socket, "GET", "/status")?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;

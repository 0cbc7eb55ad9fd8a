//! Connections: how long each may take, how much it may send, and how many are open at a time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest head of a request.
pub(super) const HEAD: usize = 8 * 1024;

/// Connections of one listener that are open at a time.
const CONNECTIONS: usize = 16;

/// A connection whose timeout can be set.
pub(super) trait Stream: Read + Write + Send + Sized + 'static {
    fn set_timeout(&self, left: Duration) -> io::Result<()>;
    /// Another handle of the same connection.
    fn another(&self) -> io::Result<Self>;
    /// Ends it, whoever reads or writes.
    fn hang_up(&self);
}

/// The open connections of a listener, the oldest first, by a number each.
pub(super) struct Connections<S>(Mutex<(u64, VecDeque<(u64, S)>)>);

impl<S> Default for Connections<S> {
    fn default() -> Connections<S> {
        Connections(Mutex::new((0, VecDeque::new())))
    }
}

impl<S: Stream> Connections<S> {
    /// One more. Where there are too many the oldest ends.
    pub fn add(&self, stream: S) -> u64 {
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

    pub fn remove(&self, number: u64) {
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

    fn set_timeout(&self, left: Duration) -> io::Result<()> {
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

    fn set_timeout(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The head of a request; none where it is too long. A whole second for all of it: single bytes at intervals do not help.
pub(super) fn head(stream: &mut impl Stream, deadline: Instant) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut some = [0; 1024];
    loop {
        stream.set_timeout(left(deadline)?)?;
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

pub(super) fn write_until(stream: &mut impl Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_timeout(left(deadline)?)?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

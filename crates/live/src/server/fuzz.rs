//! Any bytes as a request.

use super::Service;
use super::connections::Stream;
use crate::control::Control;
use crate::status::Board;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes in place of a connection.
struct Sent {
    request: io::Cursor<Vec<u8>>,
    answer: Vec<u8>,
}

impl Read for Sent {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.request.read(bytes)
    }
}

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Sent {
    fn set_timeout(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn another(&self) -> io::Result<Sent> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn hang_up(&self) {}
}

/// Bytes get one whole answer, or none where they end too early; only a request to pause changes anything.
///
/// # Panics
/// When a promise is broken.
pub fn request(data: &[u8]) {
    let control = Control::default();
    // Nobody makes a map, so none is to be waited for.
    let stop = Arc::new(AtomicBool::new(true));
    let service = Service { board: Board::default(), control: Some(control.clone()), stop };
    let mut stream = Sent { request: io::Cursor::new(data.to_vec()), answer: Vec::new() };
    // A machine that is busy elsewhere may let this thread wait for longer than a client is waited for.
    match service.one_until(&mut stream, Instant::now() + Duration::from_secs(3600)) {
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert!(stream.answer.is_empty());
        }
        Ok(()) => {
            let answer = String::from_utf8(stream.answer).expect("answers are UTF-8");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.starts_with("HTTP/1.1 "), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        }
    }
    let pauses = data.starts_with(b"POST /pause");
    assert!(pauses || !control.pause.load(Ordering::Relaxed), "paused by {data:?}");
    assert!(!control.stop.load(Ordering::Relaxed));
}

//! Terrace's side of the socket to a process's thread that takes entries out (`crates/preload/dropper`). Nothing here waits.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use terrace_handover::entries::{DONE, DROP, LIST, LOST};

/// Bytes of an answer's head, and of each pair that follows.
const PAIR: usize = 16;
/// More pairs than the library ever has areas.
const MOST: u64 = 4096;

/// One process's thread.
#[derive(Debug)]
pub struct Dropper {
    thread: UnixStream,
    /// The bytes of an answer that has not arrived completely.
    arrived: Vec<u8>,
    areas: Vec<Range<u64>>,
    lost: bool,
}

impl Dropper {
    pub fn new(thread: UnixStream) -> io::Result<Dropper> {
        thread.set_nonblocking(true)?;
        Ok(Dropper { thread, arrived: Vec::new(), areas: Vec::new(), lost: false })
    }

    /// Page numbers of the areas, ascending, as the last answer has them; none where nothing is dropped any more.
    pub fn areas(&self) -> &[Range<u64>] {
        if self.lost { &[] } else { &self.areas }
    }

    /// Asks for the areas; the answer is there at some later look.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn ask(&mut self) -> io::Result<()> {
        self.send([LIST, 0, 0]).map(|_| ())
    }

    /// Has the entries of page numbers taken out; returns whether it could be asked for.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn drop_entries(&mut self, pages: Range<u64>) -> io::Result<bool> {
        self.send([DROP, pages.start << 12, pages.end << 12])
    }

    fn send(&mut self, request: [u64; 3]) -> io::Result<bool> {
        let bytes: Vec<u8> = request.iter().flat_map(|number| number.to_ne_bytes()).collect();
        match self.thread.write(&bytes) {
            // The kernel takes so few bytes whole or not at all.
            Ok(count) if count == bytes.len() => Ok(true),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the answers that have arrived. Returns for each drop, in the order of the requests, the time at which it began;
    /// none where it was not done.
    ///
    /// # Errors
    /// The thread has ended, or says what makes no sense.
    pub fn poll(&mut self) -> io::Result<Vec<Option<Duration>>> {
        let mut drops = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            match self.thread.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.arrived.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut at = 0;
        while let Some((what, count)) = pair(&self.arrived, at) {
            if count > MOST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let end = at + PAIR * (1 + count as usize);
            if end > self.arrived.len() {
                break;
            }
            let pairs = (1..=count as usize).filter_map(|number| pair(&self.arrived, at + PAIR * number));
            let pairs: Vec<(u64, u64)> = pairs.collect();
            at = end;
            match what {
                LIST => {
                    let areas = pairs.iter().filter(|(start, end)| start < end);
                    self.areas = areas.map(|(start, end)| start >> 12..end >> 12).collect();
                    self.areas.sort_by_key(|area| area.start);
                }
                DROP => {
                    if pairs.iter().any(|(outcome, _)| *outcome == LOST) && !self.lost {
                        self.lost = true;
                        tracing::warn!(
                            "the program changes mappings by system calls of its own; its accesses are no longer looked for"
                        );
                    }
                    let done = |one: &&(u64, u64)| one.0 == DONE;
                    drops.push(pairs.first().filter(done).map(|(_, began)| Duration::from_nanos(*began)));
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        self.arrived.drain(..at);
        Ok(drops)
    }
}

/// Two numbers from `at` on, if they are there.
fn pair(bytes: &[u8], at: usize) -> Option<(u64, u64)> {
    let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    Some((number(at)?, number(at + 8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn answers_in_pieces_are_put_together_and_nonsense_ends_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut dropper = Dropper::new(ours).unwrap();
        let answer = said(&[LIST, 2, 0x9000, 0xb000, 0x2000, 0x5000, DROP, 1, 0, 77]);
        for piece in answer.chunks(7) {
            assert_eq!(dropper.poll().unwrap(), []);
            theirs.write_all(piece).unwrap();
        }
        assert_eq!(dropper.poll().unwrap(), [Some(Duration::from_nanos(77))]);
        assert_eq!(dropper.areas(), [2..5, 9..11]);
        assert!(dropper.drop_entries(2..5).unwrap());
        let mut request = [0; 24];
        theirs.read_exact(&mut request).unwrap();
        assert_eq!(request.to_vec(), said(&[DROP, 0x2000, 0x5000]));
        theirs.write_all(&said(&[DROP, 1, LOST, 5])).unwrap();
        assert_eq!(dropper.poll().unwrap(), [None]);
        assert!(dropper.areas().is_empty(), "nothing is known for certain any more");
        theirs.write_all(&said(&[7, 0])).unwrap();
        assert!(dropper.poll().is_err());
    }

    #[test]
    fn a_thread_that_does_not_read_makes_nobody_wait() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut dropper = Dropper::new(ours).unwrap();
        let asked = (0..1_000_000).take_while(|_| dropper.drop_entries(0..1).unwrap()).count();
        assert!((1..1_000_000).contains(&asked), "{asked}");
        drop(theirs);
        assert!(dropper.drop_entries(0..1).is_err() && dropper.poll().is_err());
    }
}

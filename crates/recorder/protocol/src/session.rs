//! Where a running recorder is found, and what is said to it.
//!
//! Each recording has a folder that only its user can enter, with the libraries and a socket. The socket accepts while
//! the recording goes on, so that connecting to it shows whether a program that is about to start can be recorded. A
//! process that joins the recording sends a [`Request`], and the recorder takes the process id from the kernel
//! (`SO_PEERCRED`): what a process calls itself means nothing outside its pid namespace.

/// The plugin's file in the folder.
pub const PLUGIN: &str = "libterrace_plugin.so";
/// The file of the library that follows executed programs.
pub const PRELOAD: &str = "libterrace_preload.so";
/// The file of the library that reports allocations.
pub const ALLOCATIONS: &str = "libterrace_allocations.so";
/// A link to the shared memory, which needs the process file system of the recorder.
pub const MEMORY: &str = "memory";
/// The socket's file.
pub const SOCKET: &str = "socket";
/// Longest path of a socket (`sun_path` of unix(7), with its final zero).
pub const MAX_SOCKET_PATH: usize = 107;

/// What a process asks of the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A descriptor of the shared memory. Answered only to those who reach the socket in the folder.
    Memory,
    /// Write my process id to this place of the table of processes.
    Join {
        /// [`crate::layout::Header::secret`].
        secret: u64,
        /// Number of the place.
        place: u64,
    },
}

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 16;

impl Request {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let (secret, place) = match self {
            Request::Memory => (0, 0),
            Request::Join { secret, place } => (secret, place + 1),
        };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&secret.to_le_bytes());
        bytes[8..].copy_from_slice(&place.to_le_bytes());
        bytes
    }

    /// As it was received.
    pub fn from_bytes(bytes: [u8; REQUEST_BYTES]) -> Request {
        let (low, high) = bytes.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of 16 bytes"));
        match (word(low), word(high)) {
            (_, 0) => Request::Memory,
            (secret, place) => Request::Join { secret, place: place - 1 },
        }
    }
}

/// Name of the socket that processes reach from wherever they are: in another root directory, or as another user. It
/// exists in the recorder's network namespace.
pub fn abstract_name(number: u64) -> String {
    format!("terrace-record-{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_round_trip() {
        for request in
            [Request::Memory, Request::Join { secret: 7, place: 0 }, Request::Join { secret: 0, place: 9 }]
        {
            assert_eq!(Request::from_bytes(request.to_bytes()), request);
        }
    }
}

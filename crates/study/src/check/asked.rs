//! What a check cannot be asked, and what it does not read.

use super::Check;
use crate::Error;
use crate::input::recording_words;
use std::os::unix::fs::FileTypeExt;

/// Options of a recording that leave out a part of the program.
const OF_PARTS: [&str; 5] = ["--skip", "--limit", "--every", "--region", "--end-at-limit"];

impl Check {
    /// Refuses what has no meaning for a program that also runs natively, from its start to its end.
    pub(super) fn refuse(&self) -> Result<(), Error> {
        if self.pairs == 0 {
            return Err(Error::request("--pairs 0 measures nothing; give at least 1"));
        }
        if self.recording.gpu {
            return Err(Error::request(
                "a check runs the program natively on this machine's processors; --gpu records kernels, see terrace compare --gpu",
            ));
        }
        match recording_words(&self.recording).iter().find(|word| OF_PARTS.contains(&word.as_str())) {
            None => Ok(()),
            Some(word) => Err(Error::request(format!(
                "{word} records a part of the program, and natively the whole of it is measured; leave {word} out, or give the \
                 program less to do"
            ))),
        }
    }
}

/// What to say where a file or another program was meant to be the program's input, which is empty.
pub(super) fn unread_input() -> Option<String> {
    let kind = std::fs::metadata("/dev/stdin").ok()?.file_type();
    (kind.is_fifo() || kind.is_file()).then(|| {
        "The program's input was empty in each run: what is sent to Terrace's own is not passed on. A program that reads a \
         file as its input is checked by sh -c './app < file'."
            .to_owned()
    })
}

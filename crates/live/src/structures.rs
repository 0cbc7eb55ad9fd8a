//! The data structures of a command that is launched: a library that is preloaded into it writes down what it allocates and
//! frees (`crates/preload/placer`), in a table that is made here. To policies they are blocks.

use crate::help;
use crate::placement::{self, LIBRARY};
use std::ffi::OsString;
use std::io;
use tempfile::TempDir;
pub use terrace_placement::structures::Structures;
use terrace_placement::structures::VARIABLE;

/// The table's file.
const TABLE: &str = "structures";

/// The library in a folder of its own, beside the table. Both are gone when this is dropped; the table's mapping stays.
#[derive(Debug)]
pub struct TrackedStructures {
    folder: TempDir,
    table: Structures,
}

impl TrackedStructures {
    /// Prepares an empty table.
    ///
    /// # Errors
    /// No file can be made in the folder for temporary files.
    pub fn start() -> io::Result<TrackedStructures> {
        let folder = placement::folder()?;
        let file = help::shared_file(&folder.path().join(TABLE))?;
        let table = Structures::create(&file)?;
        Ok(TrackedStructures { folder, table })
    }

    /// The table.
    pub fn table(&self) -> Structures {
        self.table
    }

    /// What the command's environment has to say: names and values.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        help::environment_with(self.folder.path(), LIBRARY, (VARIABLE, TABLE))
    }

    /// Leaves library and table for programs that are started later.
    pub fn stay(mut self) {
        self.folder.disable_cleanup(true);
    }

    /// What a user should know at the end, if anything. `program` is what was started.
    pub fn warning(&self, program: &str) -> Option<String> {
        match (self.table.processes(), self.table.lost()) {
            (0, _) => Some(format!(
                "{program} did not load the library that reports data structures, so the blocks were areas of its memory. \
                 Programs that are linked statically or run with other privileges do not load it"
            )),
            (_, 0) => None,
            (_, lost) => Some(format!(
                "{lost} data structures found no room in the table and counted as part of their areas"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};
    use terrace_placement::structures::Structure;

    /// The sizes of a process's structures beyond those of the interpreter itself.
    fn large(table: &Structures, pid: u32) -> Vec<u64> {
        let mut sizes = Vec::new();
        table.each(&mut |structure: Structure| {
            if structure.pid == pid && structure.bytes > 2_000_000 {
                sizes.push(structure.bytes);
            }
        });
        sizes.sort_unstable();
        sizes
    }

    /// A process that ends with the test, however that ends.
    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_programs_large_allocations_are_known_while_they_last() {
        let tracked = TrackedStructures::start().unwrap();
        let table = tracked.folder.path().join(TABLE);
        assert_eq!(std::fs::metadata(table).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(tracked.warning("app").unwrap().starts_with("app did not load the library"));
        // An interpreter's long strings come from malloc.
        let script = "import os, sys\n\
                      a = bytearray(3000000)\n\
                      b = bytearray(5000000)\n\
                      print('two', flush=True); sys.stdin.readline()\n\
                      del b\n\
                      a.extend(bytes(1000000))\n\
                      child = os.fork()\n\
                      if child == 0:\n\
                      \x20   c = bytearray(7000000)\n\
                      \x20   print('child', os.getpid(), flush=True); sys.stdin.readline()\n\
                      \x20   os._exit(0)\n\
                      os.waitpid(child, 0)\n\
                      print('waited', flush=True); sys.stdin.readline()\n\
                      os.execvp('sleep', ['sleep', '600'])\n";
        let mut program = Ended(
            Command::new("python3")
                .args(["-S", "-c", script])
                .envs(tracked.environment())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let pid = program.0.id();
        let mut said = BufReader::new(program.0.stdout.take().unwrap()).lines();
        let mut says = || said.next().unwrap().unwrap();
        let mut stdin = program.0.stdin.take().unwrap();
        let mut answer = || stdin.write_all(b"\n").unwrap();
        // What an object takes is a little more than its contents, and what grows is given more.
        let is = |size: u64, least: u64| size >= least && size < least * 5 / 4;
        let wait = |what: &str, pid: u32, expected: &[u64]| {
            let begin = Instant::now();
            loop {
                let large = large(&tracked.table(), pid);
                if large.len() == expected.len() && large.iter().zip(expected).all(|(a, b)| is(*a, *b)) {
                    return;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {large:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        assert_eq!(says(), "two");
        wait("both", pid, &[3_000_000, 5_000_000]);
        answer();
        let child: u32 = says().strip_prefix("child ").unwrap().parse().unwrap();
        wait("the child", child, &[4_000_000, 7_000_000]);
        wait("its parent", pid, &[4_000_000]);
        answer();
        assert_eq!(says(), "waited");
        answer();
        wait("another program in its place", pid, &[]);
        // More where `python3` is a script that finds it.
        assert!(tracked.table().processes() >= 2);
        assert_eq!(tracked.warning("app"), None);
    }
}

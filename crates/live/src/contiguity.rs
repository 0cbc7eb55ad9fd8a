//! How contiguous the memory of a process is, from the frame numbers that the kernel shows of it.

use crate::kernel::{IN_MEMORY, Kernel, Process, read_text};
use crate::space::parse_maps;
use std::io;
use terrace_policy::Runs;

pub use terrace_policy::Contiguity;

/// An entry of `pagemap`: the number of the frame, or zero where the reader may not know.
const FRAME: u64 = (1 << 55) - 1;
/// Entries per read.
const ENTRIES: usize = 32_768;

/// Looks at the memory that is the program's own: anonymous, shared without a file, stacks and reserved huge pages.
///
/// # Errors
/// The process has ended, may not be looked into, or the kernel hides frame numbers from this user (`EPERM`).
pub fn measure(kernel: &dyn Kernel, process: &Process) -> io::Result<Contiguity> {
    let maps = read_text(kernel, format!("/proc/{}/maps", process.pid))?;
    let mut runs = Runs::default();
    let mut entries = vec![0; ENTRIES];
    for mapping in parse_maps(&maps) {
        let mut page = mapping.first;
        while page < mapping.end {
            let wanted = ENTRIES.min((mapping.end - page) as usize);
            let count = kernel.pagemap(process, page, &mut entries[..wanted])?;
            if count == 0 {
                break;
            }
            for (at, entry) in
                entries[..count].iter().enumerate().filter(|(_, entry)| **entry & IN_MEMORY != 0)
            {
                if entry & FRAME == 0 {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                runs.add(page + at as u64, entry & FRAME, 1);
            }
            page += count as u64;
        }
        // Two mappings that touch are two areas, whatever their frames.
        runs.close();
    }
    Ok(runs.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_of_this_process_is_one_run() {
        let found = measure(
            &crate::kernel::Linux,
            &crate::kernel::Kernel::open(&crate::kernel::Linux, std::process::id()).unwrap(),
        );
        match found {
            Ok(found) => assert!(found.pages > 0 && found.regions <= found.pages),
            // Without privileges the kernel hides the frames; then there is no half an answer.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}

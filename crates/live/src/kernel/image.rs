//! Which program's memory a process has: whatever it executes gets a memory of its own, at the same number.

use crate::facts::text;

/// `PF_FORKNOEXEC` of linux/sched.h: the process has executed nothing since it was forked.
const FORKED: u64 = 0x40;
/// Field of `/proc/PID/stat` with the flags of the kernel's task.
const FLAGS: usize = 9;
/// Fields that tell where a program's parts were loaded: code, its end, stack, data, its end, heap.
const PLACES: [usize; 6] = [26, 27, 28, 45, 46, 47];

/// What distinguishes the memory of one program from that of another which the same process executes.
///
/// The kernel clears `PF_FORKNOEXEC` at the first exec after a fork, and a program is loaded at random addresses. Two
/// programs in a row that are loaded at the same addresses are distinguished by the end of the first memory instead
/// ([`super::Kernel::has_same_memory`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The process has executed nothing since it was forked, so its memory is its parent's or a copy of it.
    pub is_forked: bool,
    places: [u64; PLACES.len()],
}

impl Image {
    /// Reads the text of `/proc/PID/stat`; none where the text is incomplete.
    pub fn parse(stat: &str) -> Option<Image> {
        let mut places = [0; PLACES.len()];
        for (place, field) in places.iter_mut().zip(PLACES) {
            *place = text::stat_field(stat, field)?;
        }
        Some(Image { is_forked: text::stat_field(stat, FLAGS)? & FORKED != 0, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(flags: u64, heap: u64) -> String {
        let fields = (10..=44).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        format!("7 (a) b) S 1 7 7 0 -1 {flags} {fields} 45 46 {heap} 48 49 50 51 0")
    }

    #[test]
    fn an_exec_shows_in_the_flag_or_in_the_addresses() {
        let image = Image::parse(&stat(0x40_0040, 47)).unwrap();
        assert!(image.is_forked);
        assert_eq!(image, Image::parse(&stat(0x40_0140, 47)).unwrap(), "other flags say nothing");
        assert_ne!(image, Image::parse(&stat(0x40_0000, 47)).unwrap());
        assert_ne!(image, Image::parse(&stat(0x40_0040, 48)).unwrap());
        assert_eq!(Image::parse("7 (a) S 1 7"), None);
        assert_eq!(Image::parse(""), None);
    }
}

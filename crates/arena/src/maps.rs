//! The areas of this process that huge pages may lie in, from `/proc/self/maps`.

use std::ops::Range;

/// Private memory without a file that the program may read and write, stacks of threads that the C library made included.
///
/// Calls `visit` for each, by address. The stack of the first thread is not among them: it grows downwards, and a huge page
/// at its end would be memory that the program did not ask for.
pub fn anonymous(maps: &[u8], mut visit: impl FnMut(Range<usize>)) {
    for line in maps.split(|byte| *byte == b'\n') {
        if let Some(range) = of_line(line) {
            visit(range);
        }
    }
}

/// `7f00-7f10 rw-p 00000000 00:00 0   [heap]`
fn of_line(line: &[u8]) -> Option<Range<usize>> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut ends = words.next()?.split(|byte| *byte == b'-').map(hexadecimal);
    let (start, end) = (ends.next()??, ends.next()??);
    if words.next()? != b"rw-p" {
        return None;
    }
    let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
    let name = words.next().unwrap_or_default();
    let is_plain = name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:");
    (inode == b"0" && is_plain && start < end).then_some(start..end)
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    usize::from_str_radix(str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_memory_without_a_file_counts() {
        let maps = b"00400000-00401000 r-xp 00000000 fe:01 123 /usr/bin/x\n\
            00600000-00a00000 rw-p 00000000 00:00 0 [heap]\n\
            7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
            7f0000400000-7f0000500000 ---p 00000000 00:00 0 \n\
            7f0000500000-7f0000600000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n\
            7f0000600000-7f0000700000 rw-p 00000000 fe:01 9 /lib/libc.so\n\
            7f0000700000-7f0000800000 rw-p 00000000 00:00 0 [anon:pool]\n\
            7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\n\
            not a line\n";
        let mut found = Vec::new();
        anonymous(maps, |range| found.push(range));
        let expected =
            [0x600000..0xa00000, 0x7f00_0000_0000..0x7f00_0040_0000, 0x7f00_0070_0000..0x7f00_0080_0000];
        assert_eq!(found, expected);
    }

    #[test]
    fn this_process_has_some() {
        let file = crate::system::File::open(c"/proc/self/maps").unwrap();
        let mut text = Vec::new();
        file.read(&mut text);
        let here = Box::new(1u64);
        let (at, mut holds) = (&raw const *here as usize, false);
        anonymous(&text, |range| holds |= range.contains(&at));
        assert!(holds);
    }
}

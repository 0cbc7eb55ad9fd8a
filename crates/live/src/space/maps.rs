//! `/proc/PID/maps`: the areas of a process that Terrace may manage.
//!
//! Read here rather than by a library: the file is text that the target's file names are part of, and the parser must
//! never fail on one line because of another.

use terrace_model::PageSize;
use terrace_policy::AreaKind;

/// A mapping that may be managed. Bounds are page numbers of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First page.
    pub first: u64,
    /// The page after the last.
    pub end: u64,
    /// What backs it.
    pub kind: AreaKind,
    /// Whether the program may store to it.
    pub writable: bool,
    /// The size of its pages where all have one size that is not the base page: a reservation of huge pages.
    pub fixed_size: Option<PageSize>,
    /// What it shows of which file: the file's number, and how far its pages lie from those of the address space.
    pub shows: (u64, u64),
}

/// The mappings of a `maps` file that hold memory of the program's own: anonymous memory, stacks, memory shared without
/// a file, reserved huge pages. Pages of files stay with the page cache's owner, the kernel. Lines that make no sense are
/// passed over.
pub fn parse(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = text.lines().filter_map(line).collect();
    mappings.sort_by_key(|mapping| mapping.first);
    // Lines that contradict each other cannot both be right; the kernel never writes them.
    let mut end = 0;
    mappings.retain(|mapping| {
        let apart = mapping.first >= end;
        end = end.max(mapping.end);
        apart
    });
    mappings
}

fn line(text: &str) -> Option<Mapping> {
    let mut fields = text.split_ascii_whitespace();
    let (first, end) = fields.next()?.split_once('-')?;
    let [first, end] = [first, end].map(|address| u64::from_str_radix(address, 16).ok());
    let permissions = fields.next()?.as_bytes();
    let [_, write, _, shared] = permissions else { return None };
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(1)?;
    let path = fields.next().unwrap_or("");
    let (first, end) = (first? >> 12, end? >> 12);
    // Above half the space lies the kernel's own page for old system calls.
    if first >= end || end > 1 << 51 {
        return None;
    }
    let kind = kind(path, inode, *shared == b's')?;
    let fixed_size = (kind == AreaKind::HugeTlb).then_some(reserved_size(path, first, end));
    let shows = (inode.parse().unwrap_or(0), (offset >> 12).wrapping_sub(first));
    Some(Mapping { first, end, kind, writable: *write == b'w', fixed_size, shows })
}

fn kind(path: &str, inode: &str, shared: bool) -> Option<AreaKind> {
    if path.starts_with("/anon_hugepage") || path.contains("hugetlbfs") || path.contains("/hugepages") {
        return Some(AreaKind::HugeTlb);
    }
    let without_file = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "[anon_shmem:"];
    match path {
        "[heap]" => Some(AreaKind::Anonymous),
        "[stack]" => Some(AreaKind::Stack),
        "" if inode == "0" => Some(if shared { AreaKind::Shared } else { AreaKind::Anonymous }),
        _ if path.starts_with("[anon:") => Some(AreaKind::Anonymous),
        _ if shared && without_file.iter().any(|prefix| path.starts_with(prefix)) => Some(AreaKind::Shared),
        _ => None,
    }
}

impl Mapping {
    /// Whether its pages may have 1 GiB although its file's name does not say so: `numa_maps` shows it.
    pub fn may_be_giant(&self) -> bool {
        self.fixed_size == Some(PageSize::Huge) && whole_giants(self.first, self.end)
    }
}

fn whole_giants(first: u64, end: u64) -> bool {
    (first | end).is_multiple_of(PageSize::Giant.base_pages())
}

/// The file does not state the size for certain: that of anonymous mappings is not in its name.
fn reserved_size(path: &str, first: u64, end: u64) -> PageSize {
    let named = path.contains("1G") || path.contains("1048576");
    if whole_giants(first, end) && named { PageSize::Giant } else { PageSize::Huge }
}

/// First pages of the mappings whose pages have 1 GiB, in the text of `/proc/PID/numa_maps`.
pub fn giants(numa_maps: &str) -> Vec<u64> {
    let line = |line: &str| {
        let first = u64::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok()?;
        line.contains("kernelpagesize_kB=1048576").then_some(first >> 12)
    };
    numa_maps.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "\
55d0c0000000-55d0c0021000 r--p 00000000 fe:00 1234                       /usr/bin/redis-server
55d0c1000000-55d0c1100000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 
7f0000200000-7f0000400000 ---p 00000000 00:00 0 
7f0000400000-7f0000800000 rw-s 00000000 00:01 77                         /memfd:arena (deleted)
7f0000800000-7f0000a00000 rw-s 00000000 00:05 78                         /dev/zero (deleted)
7f0000a00000-7f0000b00000 rw-s 00000000 fe:00 79                         /var/lib/data file.db
7f0040000000-7f0080000000 rw-p 00000000 00:0f 80                         /anon_hugepage (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7ffd00100000-7ffd00104000 r--p 00000000 00:00 0                          [vvar]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn what_is_the_programs_own() {
        let kinds: Vec<(u64, AreaKind)> = parse(SAMPLE).iter().map(|m| (m.first << 12, m.kind)).collect();
        assert_eq!(
            kinds,
            [
                (0x55d0c1000000, AreaKind::Anonymous),
                (0x7f0000000000, AreaKind::Anonymous),
                (0x7f0000200000, AreaKind::Anonymous),
                (0x7f0000400000, AreaKind::Shared),
                (0x7f0000800000, AreaKind::Shared),
                (0x7f0040000000, AreaKind::HugeTlb),
                (0x7ffd00000000, AreaKind::Stack),
            ]
        );
        let reserved = parse(SAMPLE)[5];
        assert_eq!((reserved.end - reserved.first, reserved.fixed_size), (1 << 18, Some(PageSize::Huge)));
        assert!(parse(SAMPLE)[1].writable && !parse(SAMPLE)[2].writable);
    }

    #[test]
    fn a_line_that_makes_no_sense_harms_no_other() {
        let text =
            format!("nonsense\n1-\n5-3 rw-p 0 0 0\n10000-20000 rw-p 00000000 00:00 0\n{SAMPLE}\u{fffd}");
        assert_eq!(parse(&text).len(), 8);
    }

    #[test]
    fn pages_of_a_gigabyte_are_recognized_by_numa_maps() {
        let text = "7f0000000000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4
7f0040000000 default file=/anon_hugepage\\040(deleted) huge anon=1 dirty=1 N1=1 kernelpagesize_kB=1048576
nonsense kernelpagesize_kB=1048576
";
        assert_eq!(giants(text), [0x7f0040000]);
        let may: Vec<u64> = parse(SAMPLE).iter().filter(|m| m.may_be_giant()).map(|m| m.first).collect();
        assert_eq!(may, [0x7f0040000]);
    }

    proptest! {
        #[test]
        fn any_text_gives_mappings_in_order_and_apart(text in "[0-9a-f]{0,5}-[0-9a-f]{0,6} [rwxp-]{4} 0 0 0( /SYSV)?\n".prop_map(|line| line.repeat(3)), noise in any::<String>()) {
            let mappings = parse(&(text + &noise));
            prop_assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].first));
            prop_assert!(mappings.iter().all(|mapping| mapping.first < mapping.end));
        }
    }
}

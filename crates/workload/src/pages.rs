//! Page sizes that back a native run's memory, and what the system really gave.

use crate::WorkloadError;
use terrace_model::{AddressRange, Bytes};

/// Which pages back the memory of a native run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativePages {
    /// What the system gives a program that asks for nothing.
    #[default]
    System,
    /// 4 KiB: `madvise(MADV_NOHUGEPAGE)`.
    Base,
    /// 2 MiB transparent huge pages: `madvise(MADV_HUGEPAGE)`.
    TransparentHuge,
    /// 2 MiB pages of the kernel's pool: `MAP_HUGETLB`.
    PooledHuge,
    /// 1 GiB pages of the kernel's pool: `MAP_HUGETLB`.
    PooledGiant,
}

/// Bytes of resident memory by the size of the pages that hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentPages {
    /// In pages of less than 2 MiB.
    pub base: u64,
    /// In pages of 2 MiB.
    pub huge: u64,
    /// In pages of 1 GiB.
    pub giant: u64,
}

impl ResidentPages {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.base + self.huge + self.giant
    }

    /// `75.0 % in 2 MiB, 25.0 % in 4 KiB`: the shares of the sizes, largest first; sizes without any are left out.
    pub fn shares(&self) -> String {
        let total = self.total().max(1) as f64;
        let sizes = [("1 GiB", self.giant), ("2 MiB", self.huge), ("4 KiB", self.base)];
        let share = |(name, bytes): &(&str, u64)| format!("{:.1} % in {name}", 100.0 * *bytes as f64 / total);
        let given: Vec<String> = sizes.iter().filter(|(_, bytes)| *bytes > 0).map(share).collect();
        if given.is_empty() { "unknown".to_owned() } else { given.join(", ") }
    }

    /// Resident pages of this range of the calling process, as its kernel reports.
    pub(crate) fn of(range: AddressRange) -> ResidentPages {
        std::fs::read_to_string("/proc/self/smaps").map(|text| parse_smaps(&text, range)).unwrap_or_default()
    }
}

const HUGEPAGES: &str = "/sys/kernel/mm/hugepages";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

impl NativePages {
    /// Bytes of the kernel's pages of a pool; none where no pool is asked for.
    pub(crate) fn pooled(self) -> Option<u64> {
        match self {
            NativePages::PooledHuge => Some(2 << 20),
            NativePages::PooledGiant => Some(1 << 30),
            NativePages::System | NativePages::Base | NativePages::TransparentHuge => None,
        }
    }

    /// Whether the system has what these pages need for `ranges`.
    pub(crate) fn check(self, ranges: &[AddressRange]) -> Result<(), WorkloadError> {
        match self {
            NativePages::System | NativePages::Base => Ok(()),
            NativePages::TransparentHuge => check_transparent(std::fs::read_to_string(TRANSPARENT).ok()),
            NativePages::PooledHuge | NativePages::PooledGiant => {
                let page = self.pooled().unwrap_or_default();
                let needed: u64 = rounded(ranges, page).iter().map(|range| range.bytes / page).sum();
                let counter = |name: &str| {
                    let path = format!("{HUGEPAGES}/hugepages-{}kB/{name}", page >> 10);
                    std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
                };
                let pool = counter("nr_hugepages").map(|pages| Pool {
                    pages,
                    free: counter("free_hugepages")
                        .unwrap_or_default()
                        .saturating_sub(counter("resv_hugepages").unwrap_or_default()),
                });
                check_pool(page, needed, pool)
            }
        }
    }
}

/// A pool of huge pages.
struct Pool {
    pages: u64,
    /// Neither used nor promised.
    free: u64,
}

fn check_pool(page: u64, needed: u64, pool: Option<Pool>) -> Result<(), WorkloadError> {
    let size = Bytes(page);
    match pool {
        None => Err(WorkloadError::Pages {
            wanted: size,
            problem: "this kernel or processor has none".to_owned(),
            next: "take another size".to_owned(),
        }),
        Some(pool) if pool.free < needed => {
            let file = format!("{HUGEPAGES}/hugepages-{}kB/nr_hugepages", page >> 10);
            let wanted = pool.pages + needed - pool.free;
            Err(WorkloadError::Pages {
                wanted: size,
                problem: format!(
                    "the run needs {needed}, and {} of the pool's {} are free",
                    pool.free, pool.pages
                ),
                next: format!(
                    "as root: echo {wanted} > {file} (scripts/native-pages does so and puts it back), or give the \
                     workload a smaller size"
                ),
            })
        }
        Some(_) => Ok(()),
    }
}

fn check_transparent(enabled: Option<String>) -> Result<(), WorkloadError> {
    let problem = match enabled {
        Some(text) if !text.contains("[never]") => return Ok(()),
        Some(_) => "transparent huge pages are switched off (\"never\")",
        None => "this kernel has no transparent huge pages",
    };
    Err(WorkloadError::Pages {
        wanted: Bytes::mib(2),
        problem: problem.to_owned(),
        next: format!("as root: echo madvise > {TRANSPARENT}, or take 2m-pool"),
    })
}

/// The ranges in whole pages of `page` bytes, joined where they touch.
pub(crate) fn rounded(ranges: &[AddressRange], page: u64) -> Vec<AddressRange> {
    let mut whole: Vec<(u64, u64)> = ranges
        .iter()
        .filter(|range| range.bytes > 0)
        .map(|range| (range.start.0 / page * page, (range.start.0 + range.bytes).next_multiple_of(page)))
        .collect();
    whole.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in whole {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined.into_iter().map(|(start, end)| AddressRange::new(start, end - start)).collect()
}

/// Sums the mappings that overlap `range`. Pages of a pool are not part of `Rss`, and transparent ones are.
fn parse_smaps(text: &str, range: AddressRange) -> ResidentPages {
    let mut pages = ResidentPages::default();
    let (mut inside, mut page) = (false, 4096);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(key), value) = (words.next(), words.next()) else { continue };
        if let Some((start, end)) = key.split_once('-')
            && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        {
            inside = start < range.start.0 + range.bytes && range.start.0 < end;
            continue;
        }
        let Some(bytes) = value.and_then(|v| v.parse::<u64>().ok()).map(|kib| kib << 10) else { continue };
        if !inside {
            continue;
        }
        match key {
            "KernelPageSize:" => page = bytes,
            "Rss:" => pages.base += bytes,
            "AnonHugePages:" => {
                pages.base = pages.base.saturating_sub(bytes);
                pages.huge += bytes;
            }
            "Private_Hugetlb:" | "Shared_Hugetlb:" if page == 1 << 30 => pages.giant += bytes,
            "Private_Hugetlb:" | "Shared_Hugetlb:" => pages.huge += bytes,
            _ => {}
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, bytes: u64) -> AddressRange {
        AddressRange::new(start, bytes)
    }

    #[test]
    fn pages_are_distinguished_by_smaps() {
        let text = "\
1000000-2000000 rw-p 00000000 00:00 0
Size:              16384 kB
KernelPageSize:        4 kB
Rss:               16384 kB
AnonHugePages:      4096 kB
Private_Hugetlb:       0 kB
40000000-80000000 rw-p 00000000 00:0f 7  /anon_hugepage (deleted)
KernelPageSize:  1048576 kB
Rss:                   0 kB
AnonHugePages:         0 kB
Private_Hugetlb: 1048576 kB
80000000-80200000 rw-p 00000000 00:0f 7  /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
Private_Hugetlb:    2048 kB
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:                   4 kB
";
        let expected = ResidentPages { base: 12 << 20, huge: 6 << 20, giant: 1 << 30 };
        assert_eq!(parse_smaps(text, range(0, 1 << 40)), expected);
        assert_eq!(parse_smaps(text, range(0x4000_0000, 1 << 30)).total(), 1 << 30);
        assert_eq!(parse_smaps("", range(0, 1 << 40)), ResidentPages::default());
    }

    #[test]
    fn ranges_become_whole_pages() {
        let mib = 1 << 20;
        let ranges = [range(5 * mib, mib), range(4 * mib, 1), range(9 * mib, 2 * mib), range(0, 0)];
        assert_eq!(rounded(&ranges, 2 * mib), [range(4 * mib, 2 * mib), range(8 * mib, 4 * mib)]);
        assert_eq!(rounded(&ranges, 1 << 30), [range(0, 1 << 30)]);
    }

    #[test]
    fn what_is_missing_is_named_with_the_next_step() {
        let message = |result: Result<(), WorkloadError>| result.unwrap_err().to_string();
        assert!(check_pool(1 << 30, 3, Some(Pool { pages: 4, free: 3 })).is_ok());
        let text = message(check_pool(1 << 30, 3, Some(Pool { pages: 4, free: 1 })));
        assert!(text.contains("needs 3, and 1 of the pool's 4 are free"), "{text}");
        assert!(
            text.contains("echo 6 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"),
            "{text}"
        );
        assert!(message(check_pool(1 << 30, 3, None)).contains("take another size"));
        assert!(check_transparent(Some("always [madvise] never".to_owned())).is_ok());
        let text = message(check_transparent(Some("always madvise [never]".to_owned())));
        assert!(text.contains("switched off") && text.contains("echo madvise >"), "{text}");
        assert!(message(check_transparent(None)).contains("2m-pool"));
    }
}

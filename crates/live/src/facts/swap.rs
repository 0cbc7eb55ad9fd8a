//! Swap, and whether it stays in memory, compressed.

use super::text;
use crate::kernel::{Kernel, read_text};
use terrace_model::Bytes;

/// One swap area in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// The device or file.
    pub path: String,
    /// What it holds.
    pub size: Bytes,
    /// What it holds now.
    pub used: Bytes,
}

impl SwapArea {
    /// Whether it is compressed memory rather than a disk.
    pub fn is_zram(&self) -> bool {
        self.path.strip_prefix("/dev/zram").is_some_and(|number| number.parse::<u32>().is_ok())
    }
}

/// Where pages go that are swapped out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// The areas, as `/proc/swaps` lists them.
    pub areas: Vec<SwapArea>,
    /// Whether pages are kept compressed in memory before they go to an area; none where the kernel has no zswap.
    pub zswap: Option<bool>,
    /// Whether the kernel has zram or could load it.
    pub zram: bool,
}

impl Swap {
    /// Reads it.
    pub fn discover(kernel: &dyn Kernel) -> Swap {
        let swaps = read_text(kernel, "/proc/swaps").unwrap_or_default();
        let zswap = read_text(kernel, "/sys/module/zswap/parameters/enabled").ok();
        // The folder alone: reading the file `hot_add` in it would create a device.
        let zram = kernel.list("/sys/class/zram-control".as_ref()).is_ok();
        Swap { areas: areas(&swaps), zswap: zswap.and_then(|enabled| text::switch(&enabled)), zram }
    }

    /// The areas whose pages stay in memory, compressed: zram, and with zswap all.
    pub fn compressed(&self) -> impl Iterator<Item = &SwapArea> {
        let all = self.zswap == Some(true);
        self.areas.iter().filter(move |area| all || area.is_zram())
    }
}

/// The areas in the text of `/proc/swaps`. Names may hold anything, so the columns are counted from the right.
pub fn areas(text: &str) -> Vec<SwapArea> {
    let area = |line: &str| {
        let mut columns = line.split_whitespace().rev();
        let _priority: i64 = columns.next()?.parse().ok()?;
        let used: u64 = columns.next()?.parse().ok()?;
        let size: u64 = columns.next()?.parse().ok()?;
        let path = line.split_whitespace().next()?.to_owned();
        // A line of figures alone names no area.
        columns.nth(1)?;
        Some(SwapArea { path, size: Bytes(size.checked_mul(1024)?), used: Bytes(used.checked_mul(1024)?) })
    };
    text.lines().skip(1).filter_map(area).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
        /dev/zram0                              partition\t1048572\t\t256\t\t100\n\
        /swap\\040file                           file\t\t4194300\t\t0\t\t-2\n";

    #[test]
    fn areas_and_what_of_them_is_compressed() {
        let mut swap = Swap { areas: areas(SWAPS), zswap: Some(false), zram: true };
        assert_eq!(swap.areas.len(), 2);
        assert_eq!(swap.areas[0].used, Bytes::kib(256));
        assert_eq!(swap.compressed().map(|area| area.path.as_str()).collect::<Vec<_>>(), ["/dev/zram0"]);
        swap.zswap = Some(true);
        assert_eq!(swap.compressed().count(), 2);
        assert_eq!(areas("Filename Type Size Used Priority\n1 2 3\n"), []);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            areas(&String::from_utf8_lossy(&bytes));
        }
    }
}

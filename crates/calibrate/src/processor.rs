//! What the kernel says of the processor: its name, how many may be used, its caches.

use crate::nodes::parse_list;
use std::fs;
use std::path::Path;

/// A data cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Capacity.
    pub bytes: u64,
    /// Number of ways.
    pub ways: u32,
    /// Processors that share it.
    pub sharers: usize,
}

/// The processor as `/proc/cpuinfo` and `/sys/devices/system/cpu` describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `AuthenticAMD`, `GenuineIntel` or another.
    pub vendor: String,
    /// As sold.
    pub name: String,
    /// Family as the processor counts.
    pub family: u32,
    /// Processors that this process may run on.
    pub count: usize,
    /// Data caches by level, nearest first.
    pub caches: Vec<Cache>,
    /// Whether a hypervisor runs below.
    pub guest: bool,
}

impl Processor {
    /// This machine's.
    pub fn here() -> Processor {
        let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut processor = Processor::of(&information, Path::new("/sys/devices/system/cpu/cpu0/cache"));
        processor.count = std::thread::available_parallelism().map_or(1, usize::from);
        processor
    }

    fn of(information: &str, caches: &Path) -> Processor {
        let value = |key: &str| {
            let line =
                information.lines().find(|line| line.split(':').next().is_some_and(|k| k.trim() == key));
            line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim()).to_owned()
        };
        let mut processor = Processor {
            vendor: value("vendor_id"),
            name: name(&value),
            family: value("cpu family").parse().unwrap_or(0),
            guest: value("flags").split_whitespace().any(|flag| flag == "hypervisor"),
            ..Processor::default()
        };
        for index in 0..8 {
            let read = |file: &str| fs::read_to_string(caches.join(format!("index{index}/{file}")));
            let (Ok(kind), Ok(size), Ok(ways)) = (read("type"), read("size"), read("ways_of_associativity"))
            else {
                continue;
            };
            let bytes = size.trim().strip_suffix('K').and_then(|size| size.parse::<u64>().ok());
            if let (Some(kib), Ok(ways), true) = (bytes, ways.trim().parse(), kind.trim() != "Instruction") {
                let sharers = parse_list(&read("shared_cpu_list").unwrap_or_default()).len().max(1);
                processor.caches.push(Cache { bytes: kib << 10, ways, sharers });
            }
        }
        processor
    }

    /// Bytes of all last-level caches that the processors use together.
    pub fn last_level(&self) -> u64 {
        self.caches.last().map_or(0, |last| last.bytes * self.count.div_ceil(last.sharers) as u64)
    }

    /// The preset that describes this processor best.
    pub fn nearest_preset(&self) -> &'static str {
        match (self.vendor.as_str(), self.family) {
            ("AuthenticAMD", 0x1a..) => "zen5-turin",
            ("AuthenticAMD", _) => "zen4-cxl",
            _ => "skylake-6140",
        }
    }
}

/// As sold, or where the kernel does not tell that, as for Arm, the numbers of the maker and of the part.
fn name(value: &impl Fn(&str) -> String) -> String {
    let (sold, maker, part) = (value("model name"), value("CPU implementer"), value("CPU part"));
    if sold.is_empty() && !maker.is_empty() { format!("CPU implementer {maker}, part {part}") } else { sold }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_read_from_the_kernels_files() {
        let directory = std::env::temp_dir().join(format!("terrace-calibrate-{}", std::process::id()));
        for (index, kind, size, ways) in
            [(0, "Data", "48K", "12"), (1, "Instruction", "32K", "8"), (2, "Unified", "1024K", "16")]
        {
            let one = directory.join(format!("index{index}"));
            fs::create_dir_all(&one).unwrap();
            let shared = if index == 2 { "0-1,8" } else { "0" };
            for (file, text) in
                [("type", kind), ("size", size), ("ways_of_associativity", ways), ("shared_cpu_list", shared)]
            {
                fs::write(one.join(file), format!("{text}\n")).unwrap();
            }
        }
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor lm\n";
        let mut processor = Processor::of(text, &directory);
        fs::remove_dir_all(&directory).unwrap();
        let first = Cache { bytes: 48 << 10, ways: 12, sharers: 1 };
        assert_eq!(processor.caches, [first, Cache { bytes: 1 << 20, ways: 16, sharers: 3 }]);
        processor.count = 4;
        assert_eq!(processor.last_level(), 2 << 20, "two of them for four processors");
        assert!(processor.guest);
        assert_eq!(processor.nearest_preset(), "zen5-turin");
        let intel = Processor { vendor: "GenuineIntel".to_owned(), ..Processor::default() };
        assert_eq!(intel.nearest_preset(), "skylake-6140");
    }

    #[test]
    fn a_processor_without_a_name_has_the_numbers_of_its_maker_and_part() {
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        let processor = Processor::of(text, Path::new("/nowhere"));
        assert_eq!(processor.name, "CPU implementer 0x41, part 0xd0c");
        assert_eq!(Processor::of("", Path::new("/nowhere")).name, "");
    }
}

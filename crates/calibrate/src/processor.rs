//! What the kernel says of the processor: its name, how many may be used, its caches.

use std::fs;
use std::path::Path;

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
    /// Data caches by level, nearest first: bytes, and ways.
    pub caches: Vec<(u64, u32)>,
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
            name: value("model name"),
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
                processor.caches.push((kib << 10, ways));
            }
        }
        processor
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
            for (file, text) in [("type", kind), ("size", size), ("ways_of_associativity", ways)] {
                fs::write(one.join(file), format!("{text}\n")).unwrap();
            }
        }
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor lm\n";
        let processor = Processor::of(text, &directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(processor.caches, [(48 << 10, 12), (1 << 20, 16)]);
        assert!(processor.guest);
        assert_eq!(processor.nearest_preset(), "zen5-turin");
        let intel = Processor { vendor: "GenuineIntel".to_owned(), ..Processor::default() };
        assert_eq!(intel.nearest_preset(), "skylake-6140");
    }
}

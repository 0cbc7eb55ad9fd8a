//! The shapes in which `/proc` and `/sys` say things. Whatever the text, nothing here panics: what cannot be read is
//! left out, for a kernel newer than Terrace may say more than Terrace knows.

use terrace_model::Bytes;

/// Most numbers that a list may name: the kernel has at most 1,024 nodes and 8,192 CPUs, so a longer one is damage.
const LONGEST_LIST: usize = 1 << 14;

/// A list of numbers as `0-3,8`, ascending and each once. Parts that are none are left out.
pub fn numbers(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            let room = LONGEST_LIST.saturating_sub(found.len());
            found.extend((first..=last).take(room));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The amount after `key:` in a text like `/proc/meminfo`, or in a node's with its `Node 0 ` before every key.
pub fn kilobytes(text: &str, key: &str) -> Option<Bytes> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().strip_suffix("kB").unwrap_or(value).trim();
        let kib = (name.split_whitespace().next_back()? == key).then(|| value.parse::<u64>().ok())??;
        Some(Bytes(kib.checked_mul(1024)?))
    })
}

/// The value after `key:` in a text like `/proc/PID/status`.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

/// A field of `/proc/PID/stat` by its number in proc(5), of those after the name: 3 is the state. The name may hold
/// anything, also `)`.
pub fn stat_field(stat: &str, number: usize) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// The choice in brackets of `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// A switch as the kernel shows it: `1`, `Y`, `true`.
pub fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "1" | "Y" | "y" | "true" => Some(true),
        "0" | "N" | "n" | "false" => Some(false),
        _ => None,
    }
}

/// A number, decimal or after `0x` hexadecimal.
pub fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_numbers() {
        assert_eq!(numbers("0-1,3\n"), [0, 1, 3]);
        assert_eq!(numbers(""), [] as [u32; 0]);
        assert_eq!(numbers("5,x,2-1,0-"), [5]);
        assert_eq!(numbers("0-4294967295").len(), LONGEST_LIST);
    }

    #[test]
    fn amounts_of_machine_and_node() {
        assert_eq!(kilobytes("MemTotal:  24 kB\nMemFree: 8 kB\n", "MemFree"), Some(Bytes(8192)));
        let node = "Node 1 MemTotal:  24 kB\nNode 1 Inactive(file): 4 kB\nNode 1 HugePages_Free: 3\n";
        assert_eq!(kilobytes(node, "MemTotal"), Some(Bytes(24 << 10)));
        assert_eq!(kilobytes(node, "Inactive(file)"), Some(Bytes(4096)));
        assert_eq!(kilobytes(node, "Inactive"), None);
    }

    #[test]
    fn fields_of_a_process_with_any_name() {
        let stat = "11 (a) S 99 (b) S 10 1 1 0 -1";
        assert_eq!((stat_field(stat, 4), stat_field(stat, 6)), (Some(10), Some(1)));
        for number in [0, 2, 3, 8, 9] {
            assert_eq!(stat_field(stat, number), None, "none, no number or a negative one");
        }
    }

    #[test]
    fn choices_switches_and_numbers() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert_eq!((switch("Y\n"), switch("false"), switch("maybe")), (Some(true), Some(false), None));
        assert_eq!((number("0x1ff\n"), number(" 12"), number("-")), (Some(511), Some(12), None));
        assert_eq!(field("Name:\tcat\nCapEff:\t00ff\n", "CapEff"), Some("00ff"));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = String::from_utf8_lossy(&bytes);
            let list = numbers(&text);
            prop_assert!(list.len() <= LONGEST_LIST && list.is_sorted());
            kilobytes(&text, "MemTotal");
            field(&text, "CapEff");
            stat_field(&text, 4);
            chosen(&text);
            switch(&text);
            number(&text);
        }

        #[test]
        fn every_list_reads_back(mut list in proptest::collection::vec(0u32..2000, 0..50)) {
            let text = list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            list.sort_unstable();
            list.dedup();
            prop_assert_eq!(numbers(&text), list);
        }
    }
}

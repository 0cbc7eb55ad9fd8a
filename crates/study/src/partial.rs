//! What to know of recordings that end before their programs, and of traces that are damaged.

use terrace_model::text::grouped;
use terrace_trace::Header;

/// What a reader of numbers must know of an input of so many accesses that is a part of what the program did. `damaged`: no
/// more could be read of it. `stopped`: its recording was, just now.
pub fn remark(header: &Header, accesses: u64, damaged: bool, stopped: bool) -> Option<String> {
    if damaged {
        return Some(format!(
            "the trace is damaged: only {} accesses could be read, and what may come after them is not in these numbers",
            grouped(accesses)
        ));
    }
    let limit = header.expected_accesses.filter(|_| header.origin == "recorded");
    if let Some(limit) = limit.filter(|limit| accesses >= *limit) {
        return Some(format!(
            "the recording ends at a limit of {} accesses: what the program did after them is not in these numbers",
            grouped(limit)
        ));
    }
    (stopped || header.is_partial).then(|| {
        "the recording was stopped before the program's end: what the program did after that is not in these numbers"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_said_with_what_could_be_read() {
        let said = remark(&Header::default(), 12_345, true, false).unwrap();
        assert!(said.starts_with("the trace is damaged: only 12,345 accesses could be read, "), "{said}");
    }

    #[test]
    fn a_limit_and_a_stop_are_said_and_a_whole_recording_says_nothing() {
        let recorded = Header { origin: "recorded".to_owned(), ..Header::default() };
        let cut = Header { expected_accesses: Some(1_000_000), ..recorded.clone() };
        let said = remark(&cut, 1_000_000, false, false).unwrap();
        assert!(said.starts_with("the recording ends at a limit of 1,000,000 accesses: "), "{said}");
        assert_eq!(remark(&cut, 999_999, false, false), None, "the program ended before");
        assert_eq!(remark(&recorded, 5, false, false), None);
        let partial = Header { is_partial: true, ..recorded.clone() };
        for said in [remark(&partial, 5, false, false), remark(&recorded, 5, false, true)] {
            assert!(said.unwrap().starts_with("the recording was stopped before the program's end: "));
        }
        let workload =
            Header { origin: "workload".to_owned(), expected_accesses: Some(5), ..Header::default() };
        assert_eq!(remark(&workload, 5, false, false), None, "all of it");
    }
}

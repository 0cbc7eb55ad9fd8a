//! What to know of recordings that end before their programs, of traces that are damaged, and of those that lack what time
//! depends on.

use terrace_model::text::grouped;
use terrace_trace::{Format, Header, TraceEnding};

/// What a reader of numbers must know of an input of so many accesses that is a part of what the program did.
pub fn remark(header: &Header, accesses: u64, ending: TraceEnding) -> Option<String> {
    if ending == TraceEnding::Damaged {
        return Some(format!(
            "{DAMAGED}: only {} accesses could be read, and what may come after them is not in these numbers",
            grouped(accesses)
        ));
    }
    if ending == TraceEnding::Cut {
        return Some(format!(
            "{CUT} of {} accesses: what the program did before and after them is not in these numbers",
            grouped(accesses)
        ));
    }
    let limit = header.expected_accesses.filter(|_| header.origin == "recorded");
    if let Some(limit) = limit.filter(|limit| accesses >= *limit) {
        return Some(format!(
            "{LIMITED} of {} accesses: what the program did after them is not in these numbers",
            grouped(limit)
        ));
    }
    (ending == TraceEnding::Stopped).then(|| {
        format!("{STOPPED} before the program's end: what the program did after that is not in these numbers")
    })
}

/// What a reader of times must know of a trace whose format does not say which loads wait for others.
pub fn independent(header: &Header) -> Option<String> {
    Format::lacks_dependences(header).then(|| {
        format!(
            "{LOADS}: a {} trace does not say which loads wait for others, so all overlap as far as the core allows; slow \
             memory looks better than it is",
            header.origin
        )
    })
}

/// What this module says, among the notes of a run, as remarks of advice: for those who make a result of several runs of one
/// input.
pub fn remarks(notes: &[String]) -> Vec<String> {
    let is_part =
        |note: &&String| [DAMAGED, CUT, LIMITED, STOPPED].iter().any(|start| note.starts_with(start));
    let part = notes.iter().find(is_part).map(|note| format!("Part: {note}."));
    let loads = notes.iter().find_map(|note| note.strip_prefix(LOADS)).map(|rest| format!("Loads{rest}."));
    part.into_iter().chain(loads).collect()
}

const DAMAGED: &str = "the trace is damaged";
const CUT: &str = "the trace is a part";
const LIMITED: &str = "the recording ends at a limit";
const STOPPED: &str = "the recording was stopped";
const LOADS: &str = "loads";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_said_with_what_could_be_read() {
        let said = remark(&Header::default(), 12_345, TraceEnding::Damaged).unwrap();
        assert!(said.starts_with("the trace is damaged: only 12,345 accesses could be read, "), "{said}");
    }

    #[test]
    fn a_part_says_so_whatever_its_recording_ended_with() {
        let limited =
            Header { origin: "recorded".to_owned(), expected_accesses: Some(70), ..Header::default() };
        let said = remark(&limited, 70, TraceEnding::Cut).unwrap();
        assert!(said.starts_with("the trace is a part of 70 accesses: "), "{said}");
    }

    #[test]
    fn a_remark_is_found_among_other_notes() {
        let header =
            Header { origin: "recorded".to_owned(), expected_accesses: Some(1), ..Header::default() };
        for ending in [TraceEnding::Whole, TraceEnding::Stopped, TraceEnding::Cut, TraceEnding::Damaged] {
            let said = remark(&header, 1, ending).unwrap();
            let notes = ["the trace has no allocations".to_owned(), said.clone(), "another".to_owned()];
            assert_eq!(remarks(&notes), [format!("Part: {said}.")]);
        }
        assert!(remarks(&["the trace has no allocations".to_owned()]).is_empty());
        let lackey = Header { origin: "lackey".to_owned(), ..Header::default() };
        let said = remarks(&[independent(&lackey).unwrap()]);
        assert!(
            said[0].starts_with("Loads: a lackey trace does not say which loads wait for others, "),
            "{said:?}"
        );
        assert_eq!((independent(&header), said.len()), (None, 1));
    }

    #[test]
    fn a_limit_and_a_stop_are_said_and_a_whole_recording_says_nothing() {
        let recorded = Header { origin: "recorded".to_owned(), ..Header::default() };
        let cut = Header { expected_accesses: Some(1_000_000), ..recorded.clone() };
        let said = remark(&cut, 1_000_000, TraceEnding::Whole).unwrap();
        assert!(said.starts_with("the recording ends at a limit of 1,000,000 accesses: "), "{said}");
        assert_eq!(remark(&cut, 999_999, TraceEnding::Whole), None, "the program ended before");
        assert_eq!(remark(&recorded, 5, TraceEnding::Whole), None);
        let said = remark(&recorded, 5, TraceEnding::Stopped).unwrap();
        assert!(said.starts_with("the recording was stopped before the program's end: "), "{said}");
        let workload =
            Header { origin: "workload".to_owned(), expected_accesses: Some(5), ..Header::default() };
        assert_eq!(remark(&workload, 5, TraceEnding::Whole), None, "all of it");
    }
}

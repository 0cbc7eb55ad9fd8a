//! What to know of recordings that end before their programs, of traces that are damaged, and of those that lack what time
//! depends on.

use terrace_model::text::grouped;
use terrace_sim::design::{CoreParameters, ModelParameters};
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
    if ending == TraceEnding::Whole && accesses == 0 {
        return Some("the input has no accesses, so there is nothing to simulate".to_owned());
    }
    (ending == TraceEnding::Stopped).then(|| {
        format!("{STOPPED} before the program's end: what the program did after that is not in these numbers")
    })
}

/// What a reader of a design's times must know of a trace that does not say which loads wait for others. Nothing where the
/// cores wait for every load.
pub fn independent(header: &Header, cores: &CoreParameters) -> Option<String> {
    let waits = cores
        .each()
        .iter()
        .all(|core| matches!(&core.model, ModelParameters::InOrder(keys) if keys.loads <= 1));
    let source = loads(header).filter(|_| !waits)?;
    Some(format!(
        "{LOADS}: {source} does not say which loads wait for others, so all overlap as far as the core allows; slow memory \
         looks better than it is"
    ))
}

/// Which kind of trace does not say which loads wait for others, where one does not.
fn loads(header: &Header) -> Option<String> {
    Format::lacks_dependences(header).then(|| match header.independent_loads {
        true => "a trace recorded with --no-dependences".to_owned(),
        false => format!("a {} trace", header.origin),
    })
}

/// What `trace info` says of loads, where it is less than usual.
pub fn unsaid(header: &Header) -> Option<String> {
    loads(header).map(|source| format!("{source} does not say which wait for others"))
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
    use terrace_model::Frequency;
    use terrace_sim::design::InOrderKeys;

    fn cores() -> CoreParameters {
        CoreParameters {
            model: ModelParameters::default(),
            count: 2,
            threads: 1,
            outstanding: None,
            frequency: Frequency(1e9),
            dispatch_width: 1,
            reorder_buffer: 64,
            store_buffer: 2,
            base_cpi: 1.0,
            groups: Vec::new(),
        }
    }

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
        let said = remarks(&[independent(&lackey, &cores()).unwrap()]);
        assert!(
            said[0].starts_with("Loads: a lackey trace does not say which loads wait for others, "),
            "{said:?}"
        );
        assert_eq!((independent(&header, &cores()), said.len()), (None, 1));
    }

    #[test]
    fn loads_that_all_are_waited_for_need_no_remark() {
        let recorded = Header { origin: "recorded".to_owned(), ..Header::default() };
        let without = Header { independent_loads: true, ..recorded.clone() };
        let said = independent(&without, &cores()).unwrap();
        assert!(said.starts_with("loads: a trace recorded with --no-dependences does not say "), "{said}");
        assert_eq!(independent(&recorded, &cores()), None);
        assert_eq!((unsaid(&recorded), unsaid(&without).is_some()), (None, true));
        let one = ModelParameters::InOrder(InOrderKeys { loads: 1 });
        let several = ModelParameters::InOrder(InOrderKeys { loads: 2 });
        for (model, is_said) in [(one, false), (several, true)] {
            let cores = CoreParameters { model, ..cores() };
            assert_eq!(independent(&without, &cores).is_some(), is_said, "{:?}", cores.model);
        }
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

//! Mixes: what each program's consumer gets of it, in whatever order the programs are read.

use proptest::prelude::*;
use std::sync::Arc;
use terrace_model::AddressRange;
use terrace_trace::{
    AccessKind, Agent, Batch, Event, EventSource, Header, MapKind, MarkKind, Mix, MixPart, MixedProgram,
    Protection, SourceError, StreamId, VecSource, marks_region,
};

/// What a test program does, one thing after the other.
#[derive(Clone, Debug)]
enum Step {
    Access { stream: u32, page: u64 },
    Spawn { stream: u32, process: u32, forked_from: Option<u32> },
    Map { stream: u32, page: u64 },
    Alloc { stream: u32, site: u32, object: u64 },
    Free { stream: u32, object: u64 },
    Exit { stream: u32 },
    Region { stream: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0u32..3;
    prop_oneof![
        (stream.clone(), 0u64..1 << 30).prop_map(|(stream, page)| Step::Access { stream, page }),
        (stream.clone(), 0u32..4, any::<bool>()).prop_map(|(stream, process, forks)| Step::Spawn {
            stream,
            process,
            forked_from: forks.then_some(stream / 2)
        }),
        (stream.clone(), 0u64..1 << 30).prop_map(|(stream, page)| Step::Map { stream, page }),
        (stream.clone(), 0u32..50, 0u64..9).prop_map(|(stream, site, object)| Step::Alloc {
            stream,
            site,
            object
        }),
        (stream.clone(), 0u64..9).prop_map(|(stream, object)| Step::Free { stream, object }),
        stream.clone().prop_map(|stream| Step::Exit { stream }),
        stream.prop_map(|stream| Step::Region { stream }),
    ]
}

/// The batches of a program: one for each step, the sequence numbers counted from 1.
fn batches(steps: &[Step]) -> Vec<Batch> {
    let mut sequence = 0;
    let batch = |step: &Step| {
        let page = |page: u64| AddressRange::new(page << 12, 4096);
        let events = |stream: &u32, events: Vec<Event>| (*stream, events);
        let (stream, events) = match step {
            Step::Access { stream, page } => {
                let mut batch = Batch { stream: StreamId(*stream), after: sequence, ..Batch::default() };
                batch.push(page << 12, 8, AccessKind::Write, 0, 3);
                return batch;
            }
            Step::Spawn { stream, process, forked_from } => {
                let forked_from = forked_from.map(StreamId);
                let (agent, name) = (Agent::Cpu, "child".to_owned());
                let spawn = Event::Spawn { process: *process, thread: 0, agent, forked_from, os_id: 7, name };
                events(stream, vec![spawn])
            }
            Step::Map { stream, page: at } => {
                let (kind, protection) = (MapKind::Anonymous, Protection::READ_WRITE);
                events(stream, vec![Event::Map { range: page(*at), kind, protection, name: String::new() }])
            }
            Step::Alloc { stream, site, object } => {
                let named = Event::Site { site: *site, name: format!("site {site}") };
                events(stream, vec![named, Event::Alloc { object: *object, site: *site, range: page(5) }])
            }
            Step::Free { stream, object } => events(stream, vec![Event::Free { object: *object }]),
            Step::Exit { stream } => events(stream, vec![Event::Exit { process_ends: false }]),
            Step::Region { stream } => {
                let (kind, name) = (MarkKind::RegionBegin, String::new());
                events(stream, vec![Event::Mark { kind, name, value: 0 }])
            }
        };
        let mut batch = Batch { stream: StreamId(stream), after: sequence, ..Batch::default() };
        for event in events {
            let global = event.is_global();
            sequence += u64::from(global);
            batch.push_event(if global { sequence } else { 0 }, event);
        }
        batch
    };
    steps.iter().map(batch).collect()
}

fn part(name: &str, batches: Vec<Batch>) -> MixPart {
    let program = MixedProgram { name: name.to_owned(), marks_region: false };
    MixPart::new(program, move || Ok(Box::new(VecSource::new(Header::default(), batches.clone()))))
}

/// The program's own batch again, by the rule of the numbers.
fn own(mixed: &Batch, program: u32, programs: u32) -> Batch {
    let back = |number: &mut u32| {
        assert_eq!(*number % programs, program, "another program's number");
        *number /= programs;
    };
    let mut batch = mixed.clone();
    back(&mut batch.stream.0);
    for event in &mut batch.events {
        match &mut event.event {
            Event::Spawn { process, forked_from, .. } => {
                back(process);
                forked_from.iter_mut().for_each(|stream| back(&mut stream.0));
            }
            Event::Site { site, .. } | Event::Alloc { site, .. } => back(site),
            _ => {}
        }
    }
    batch
}

proptest! {
    /// Whatever the order in which programs are read and begun again, each yields its own batches and no others.
    #[test]
    fn each_program_yields_its_own_batches_unaltered_but_for_numbers(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..40), 1..5),
        reads in prop::collection::vec((any::<prop::sample::Index>(), 0u8..20), 0..300),
    ) {
        let expected: Vec<Vec<Batch>> = programs.iter().map(|steps| batches(steps)).collect();
        let parts = expected.iter().enumerate().map(|(at, batches)| part(&at.to_string(), batches.clone()));
        let mut mix = Mix::open(parts).unwrap();
        let count = expected.len();
        let mut position = vec![0; count];
        for (program, action) in reads {
            let program = program.index(count);
            if action == 0 {
                mix.restart(program).unwrap();
                position[program] = 0;
                continue;
            }
            let batch = mix.next_of(program).unwrap();
            let batch = batch.map(|batch| own(&batch, program as u32, count as u32));
            prop_assert_eq!(batch.as_ref(), expected[program].get(position[program]));
            position[program] += usize::from(batch.is_some());
        }
        // What is left, in the order for who does not care.
        while let Some(batch) = mix.next_batch().unwrap() {
            let program = batch.stream.index() % count;
            let batch = own(&batch, program as u32, count as u32);
            prop_assert_eq!(Some(&batch), expected[program].get(position[program]));
            position[program] += 1;
        }
        for (program, batches) in expected.iter().enumerate() {
            prop_assert_eq!(position[program], batches.len());
        }
    }
}

#[test]
fn a_mix_of_one_is_the_program_itself() {
    let steps = [
        Step::Spawn { stream: 1, process: 2, forked_from: Some(0) },
        Step::Alloc { stream: 1, site: 7, object: 3 },
        Step::Access { stream: 1, page: 5 },
    ];
    let mut mix = Mix::open([part("alone", batches(&steps))]).unwrap();
    for expected in batches(&steps) {
        assert_eq!(*mix.next_batch().unwrap().unwrap(), expected);
    }
    assert!(mix.next_batch().unwrap().is_none());
}

#[test]
fn programs_are_read_in_step_where_nobody_chooses() {
    let accesses = |count: u64| (0..count).map(|page| Step::Access { stream: 0, page }).collect::<Vec<_>>();
    let mut mix = Mix::open([part("a", batches(&accesses(3))), part("b", batches(&accesses(5)))]).unwrap();
    let mut order = Vec::new();
    while let Some(batch) = mix.next_batch().unwrap() {
        order.push(batch.stream.0);
    }
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 1, 1]);
}

#[test]
fn what_is_wrong_names_the_program() {
    let said = |parts: Vec<MixPart>| match Mix::open(parts) {
        Err(error) => error.to_string(),
        Ok(mut mix) => loop {
            match mix.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("nothing is wrong"),
                Err(error) => {
                    let end = mix.next_batch();
                    assert!(!matches!(end, Ok(Some(batch)) if batch.stream.0 % 2 == 1), "it goes on");
                    break error.to_string();
                }
            }
        },
    };
    let access = |page| batches(&[Step::Access { stream: 0, page }]);
    assert_eq!(
        said(vec![part("good", access(1)), part("bad", access(1 << 50))]),
        "bad: stream 0, access 0: 8 bytes at address 0x4000000000000000: expected a user address below \
         0x100000000000000, as 5 levels of page tables have them"
    );
    let large = batches(&[Step::Alloc { stream: 0, site: u32::MAX, object: 1 }]);
    assert_eq!(
        said(vec![part("good", access(1)), part("bad", large)]),
        "bad: site 4294967295: too large a number in a mix of 2 programs"
    );
    let program = MixedProgram { name: "gone".to_owned(), marks_region: false };
    let gone = MixPart::new(program, || Err(SourceError::Malformed("no such file".to_owned())));
    assert_eq!(said(vec![part("good", access(1)), gone]), "gone: no such file");
}

#[test]
fn regions_are_found_and_batches_that_others_hold_are_not_touched() {
    let steps = [Step::Access { stream: 1, page: 5 }, Step::Region { stream: 1 }];
    let source = |steps: &[Step]| VecSource::new(Header::default(), batches(steps));
    assert!(marks_region(&mut source(&steps)).unwrap());
    assert!(!marks_region(&mut source(&steps[..1])).unwrap());
    // One batch in the hands of a cache and of a mix.
    let kept = Arc::new(batches(&steps)[0].clone());
    struct Shared(Header, Option<Arc<Batch>>);
    impl EventSource for Shared {
        fn header(&self) -> &Header {
            &self.0
        }
        fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
            Ok(self.1.take())
        }
    }
    let shared = Arc::clone(&kept);
    let program = MixedProgram { name: "b".to_owned(), marks_region: false };
    let shared =
        MixPart::new(program, move || Ok(Box::new(Shared(Header::default(), Some(Arc::clone(&shared))))));
    let mut mix = Mix::open([part("a", Vec::new()), shared]).unwrap();
    assert_eq!(mix.next_batch().unwrap().unwrap().stream.0, 3);
    assert_eq!(kept.stream.0, 1);
}

use super::*;
use terrace_protocol::entry::{
    Base, Effect, Entry, Expected, NO_DESTINATION, NO_REGISTER, OWN_EFFECTS, RUN, RUN_RECORDS,
};

const READ: u32 = 1 << 16;
const WRITE: u32 = 2 << 16;

fn record(address: u64, pending: u64, number: u32, info: u32) -> Record {
    [address | pending << 48, u64::from(number) | u64::from(info) << 32]
}

fn eight(rw: u32) -> u32 {
    3 << 4 | rw
}

/// Pads the table to what the mask can reach from small numbers.
fn decode(table: &[Entry], records: &[Record]) -> (Batch, Stream) {
    let mut stream = Stream::new(StreamId(0));
    // SAFETY: the tests name entries inside the table only.
    let entries = unsafe { Entries::new(table.as_ptr()) };
    let (used, _, stop) = stream.decode(records, entries, &mut Blocks::default(), u64::MAX, true, true);
    assert_eq!((used, stop), (records.len(), Stop::End));
    let batch = stream.take(&mut BatchPool::default());
    assert_eq!(batch.validate(), Ok(()));
    (Arc::unwrap_or_clone(batch), stream)
}

fn entry(callbacks: u8, before: u16, tail: u16) -> Entry {
    Entry { callbacks, before, tail, ..Entry::UNKNOWN }
}

#[test]
fn instructions_are_conserved() {
    // A block of ten instructions: a load as the third, a store as the seventh; then a block of five without.
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(1, 3, 0), entry(1, 4, 3)];
    let round = [record(0x1000, 0, 2, eight(READ)), record(0x2000, 0, 3, eight(WRITE))];
    let (batch, _) = decode(&table, &[round[0], round[1], record(0x1000, 5, 2, eight(READ)), round[1]]);
    assert_eq!(batch.instructions, [3, 4, 3 + 5 + 3, 4]);
    assert_eq!(batch.kind[1], AccessKind::Write);
}

#[test]
fn vector_accesses_are_one_access() {
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(2, 1, 1)];
    let at = |address| record(address, 0, 2, eight(READ));
    // Executed twice, at addresses that touch each other.
    let (batch, _) = decode(&table, &[at(0x1000), at(0x1008), at(0x1010), at(0x1018)]);
    assert_eq!(batch.addr, [0x1000, 0x1010]);
    assert_eq!(batch.size, [16, 16]);
    assert_eq!(batch.instructions, [1, 2]);
}

#[test]
fn an_instruction_taken_in_parts_is_the_same() {
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(4, 1, 0), entry(1, 1, 0)];
    // SAFETY: as in `decode`.
    let entries = unsafe { Entries::new(table.as_ptr()) };
    let mut records: Vec<Record> = (0..4).map(|i| record(0x1000 + i * 8, 0, 2, eight(WRITE))).collect();
    records.push(record(0x1020, 0, 3, eight(WRITE)));
    for cut in 0..=records.len() {
        let mut stream = Stream::new(StreamId(0));
        stream.decode(&records[..cut], entries, &mut Blocks::default(), u64::MAX, true, false);
        assert_eq!(stream.is_inside_instruction(), (1..4).contains(&cut));
        stream.decode(&records[cut..], entries, &mut Blocks::default(), u64::MAX, true, false);
        let batch = stream.take(&mut BatchPool::default());
        assert_eq!((&batch.size[..], &batch.instructions[..]), (&[32, 8][..], &[1, 1][..]), "{cut}");
    }
    // A batch that is full waits for the rest, but not if something else comes.
    let mut stream = Stream::new(StreamId(0));
    let filler = vec![record(0x9000, 0, 3, eight(WRITE)); BATCH_ACCESSES - 1];
    stream.decode(&filler, entries, &mut Blocks::default(), u64::MAX, true, false);
    stream.decode(&records[..2], entries, &mut Blocks::default(), u64::MAX, true, false);
    assert!(!stream.is_full());
    let (used, _, stop) =
        stream.decode(&records[4..], entries, &mut Blocks::default(), u64::MAX, true, false);
    assert_eq!((used, stop, stream.is_full()), (0, Stop::Full, true));
}

#[test]
fn read_modify_write_counts_its_instruction_once() {
    let update = Entry { shape: shape::UPDATE, expected: Expected::update(8), left: 1, ..entry(1, 1, 0) };
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(2, 1, 0), update];
    let load = record(0x1000, 0, 2, eight(READ));
    let store = record(0x1000, 0, 2, eight(WRITE));
    let atomic = record(0x1000, 0, 2, eight(READ | WRITE));
    let both = record(0x1000, 0, 3, eight(READ | WRITE));
    let (batch, _) = decode(&table, &[load, store, atomic, load, store, both]);
    assert_eq!(batch.instructions, [1, 0, 1, 0, 1, 0, 1, 0]);
    assert_eq!(batch.addr, [0x1000; 8]);
    let kinds: Vec<u8> = batch.kind.iter().map(|&k| k as u8).collect();
    assert_eq!(kinds, [0, 1, 0, 1, 0, 1, 0, 1]);
}

/// A block of mov rax, [rbx]; mov [rbx + 8], rcx; add [rbx - 16], rcx; mov rdx, [rip + …], and as a run of its own
/// mov rsi, [rdi]: two records for six accesses, whatever the room in which they are decoded.
#[test]
fn derived_accesses_need_no_record() {
    let eight_bytes = |loads| Expected::new(3, 8, loads);
    let access = |left, loads, shape| Entry { left, shape, expected: eight_bytes(loads), ..entry(0, 1, 0) };
    let derived = |slot, distance: i64| Base::new(slot, distance as u64);
    let table = [
        Entry::UNKNOWN,
        Entry::UNKNOWN,
        Entry { callbacks: 1, base: Base::OWN.going_on(), ..access(5, true, shape::ONE) },
        Entry { base: derived(0, 8).going_on(), ..access(4, false, shape::ONE) },
        Entry { base: derived(0, -16).going_on(), ..access(3, true, shape::UPDATE) },
        Entry { base: derived(Base::CONSTANT, 0x4000), ..access(2, true, shape::ONE) },
        Entry { callbacks: 1, tail: 2, ..access(1, true, shape::ONE) },
    ];
    // SAFETY: as in `decode`.
    let entries = unsafe { Entries::new(table.as_ptr()) };
    let rounds = 20;
    let records: Vec<Record> = (1..=rounds)
        .flat_map(|i| [record(i << 20, 0, 2, eight(READ)), record(0x9000, 0, 6, eight(READ))])
        .collect();
    let expected: Vec<u64> =
        (1..=rounds).flat_map(|i| [0, 8, -16, -16].map(|d| (i << 20).wrapping_add_signed(d))).collect();
    for room in [1, 2, 5, 100, u64::MAX] {
        let mut stream = Stream::new(StreamId(0));
        let (mut passing, mut passed, mut used, mut touched) = (Stream::new(StreamId(0)), 0, 0, Vec::new());
        let mut blocks = Blocks::default();
        let mut at = 0;
        while at < records.len() || stream.has_derived() {
            at += stream.decode(&records[at..], entries, &mut blocks, room, true, true).0;
            let now = passing.pass_over(&records[used..], entries, room, |a, _| touched.push(a));
            (used, passed) = (used + now.0, passed + now.1);
        }
        let batch = stream.take(&mut BatchPool::default());
        assert_eq!(batch.validate(), Ok(()));
        let (own, other): (Vec<u64>, Vec<u64>) = batch.addr.iter().partition(|&&a| a >= 1 << 19);
        assert_eq!(own, expected, "room {room}");
        assert_eq!(other, [0x4000, 0x9000].repeat(rounds as usize));
        assert_eq!(batch.instructions[6..12], [3, 1, 1, 0, 1, 1]);
        assert_eq!((used, passed, touched.len()), (at, batch.len() as u64, 5 * rounds as usize));
    }
}

#[test]
fn chains_are_followed_through_registers() {
    // 2: mov rax, [rax]. 3: mov rcx, [rbx + 8]. Then rbx := rax + rcx, without access. 4: mov [rbx], rdx.
    let mut chase = entry(1, 1, 0);
    (chase.load_address, chase.destination) = ([0, NO_REGISTER], 0);
    let mut other = entry(1, 1, 0);
    (other.load_address, other.destination) = ([3, NO_REGISTER], 1);
    let mut sum = Entry { shape: shape::EFFECTS, before: 1, effects_before: 1, ..Entry::UNKNOWN };
    sum.effects[0] = Effect::new(3, 0, 1);
    let mut store = entry(1, 1, 0);
    store.store_address = [3, NO_REGISTER];
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, chase, other, sum, store];
    let load = |number| record(0x1000, 0, number, eight(READ));
    let records = [load(2), load(2), load(2), load(3), [0, 4], record(8, 0, 5, eight(WRITE)), load(2)];
    let (batch, _) = decode(&table, &records);
    // The store's address derives from the load before it; the chase's from the load before that one.
    assert_eq!(batch.depends_on, [0, 1, 1, 0, 1, 2]);
    assert_eq!(batch.instructions, [1, 1, 1, 1, 2, 1]);
}

#[test]
fn effects_run_on_into_the_next_places() {
    let mut load = entry(1, 1, 0);
    load.destination = 0;
    // rax moves on through eleven registers, one after the other; the last is an address.
    let chain: Vec<Effect> = (0..11).map(|r| Effect::new(r + 1, r, NO_REGISTER)).collect();
    let mut long = entry(1, 1, 0);
    long.load_address = [11, NO_REGISTER];
    long.effects_before = 11;
    long.effects.copy_from_slice(&chain[..OWN_EFFECTS]);
    let mut table = vec![Entry::UNKNOWN, Entry::UNKNOWN, load, long, Entry::UNKNOWN];
    // SAFETY: eight effects fit into the last entry.
    unsafe {
        let behind = table.as_mut_ptr().add(4).cast::<Effect>();
        std::ptr::copy_nonoverlapping(chain[OWN_EFFECTS..].as_ptr(), behind, 8);
    }
    let load = |number| record(0x1000, 0, number, eight(READ));
    let (batch, _) = decode(&table, &[load(2), load(3)]);
    assert_eq!(batch.depends_on, [0, 1]);
}

#[test]
fn far_loads_are_not_known() {
    let mut chase = entry(1, 1, 0);
    (chase.load_address, chase.destination) = ([0, NO_REGISTER], 0);
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, chase, entry(1, 1, 0)];
    for (between, expected) in [(253, 254), (254, 255), (255, 0)] {
        let mut records = vec![record(0x1000, 0, 2, eight(READ))];
        records.extend(vec![record(0x1000, 0, 3, eight(READ)); between]);
        records.push(record(0x1000, 0, 2, eight(READ)));
        let (batch, _) = decode(&table, &records);
        assert_eq!(*batch.depends_on.last().unwrap(), expected);
    }
}

#[test]
fn many_instructions_become_an_event() {
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(1, 1, 0)];
    let (batch, mut stream) = decode(&table, &[record(8, 65_535, 2, eight(READ))]);
    assert_eq!(batch.events[0].event, Event::Compute { instructions: 65_536 });
    assert_eq!(batch.instruction_count(), 65_536);
    stream.add_instructions(7);
    stream.flush_instructions();
    assert_eq!(stream.take(&mut BatchPool::default()).instruction_count(), 7);
}

/// Executions of random blocks, some begun in the middle, some cut short, some not as expected.
#[test]
fn the_short_ways_and_the_long_way_agree() {
    let mut random = 7u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    // No load defines register 4, which stands for none.
    let defined = |register: u64| if register == 4 { 5 } else { register as u8 };
    let mut table = vec![Entry::UNKNOWN; 80];
    let mut left = 0;
    // The run's records, its accesses, and the records with which its anchors begin.
    let (mut made, mut accesses, mut anchors) = (0, 0, Vec::new());
    for i in 2..table.len() {
        let [base, index] = [next(16) as u8, next(16) as u8];
        let destination = defined(next(17));
        let loads = next(2) == 0;
        let (shape, callbacks, size) = [
            (shape::ONE, 1, 4),
            (shape::ONE, 1, 8),
            (shape::VECTOR, 2, 16),
            (shape::VECTOR, 4, 32),
            (shape::UPDATE, 1, 8),
            (shape::EFFECTS, 0, 0),
            (shape::OTHER, 0, 8),
        ][next(7) as usize];
        let loads = loads || shape == shape::UPDATE;
        let effects_before = next(4) as u8;
        let begins = left == 0;
        if begins {
            left = (1 + next(12)).min(80 - i as u64) as u8;
        }
        let many = if shape == shape::UPDATE { 2 } else { 1 };
        let is_alone = shape == shape::OTHER || shape == shape::EFFECTS;
        let is_full = made + usize::from(callbacks) > RUN_RECORDS || accesses + many > RUN;
        if begins || is_alone || is_full || next(8) == 0 {
            (made, accesses, anchors) = (0, 0, Vec::new());
        }
        let is_derived = made > 0 && next(2) == 0;
        let base_of = match next(4) {
            _ if !is_derived && made == 0 => Base::OWN,
            _ if !is_derived => Base::new(made as u8, 0),
            0 => Base::new(Base::CONSTANT, next(1 << 40)),
            _ => Base::new(anchors[next(anchors.len() as u64) as usize], next(1 << 40).wrapping_sub(1 << 39)),
        };
        if is_derived {
            table[i - 1].base = table[i - 1].base.going_on();
        } else {
            anchors.push(made as u8);
            made += usize::from(callbacks);
        }
        accesses += many;
        if is_alone {
            made = RUN;
        }
        let entry = &mut table[i];
        *entry = Entry {
            pc: next(1 << 30),
            base: base_of,
            before: next(9) as u16,
            tail: next(9) as u16,
            expected: match shape {
                shape::UPDATE => Expected::update(size),
                _ => Expected::new(u32::from(size).clamp(1, 8).trailing_zeros(), size, loads),
            },
            callbacks: if is_derived { 0 } else { callbacks },
            destination: if loads { destination } else { NO_DESTINATION },
            load_address: [base, index],
            store_address: [base, index],
            effects_before,
            effects_after: if shape == shape::EFFECTS {
                0
            } else {
                next(4 - u64::from(effects_before)) as u8
            },
            shape,
            left,
            ..Entry::UNKNOWN
        };
        entry.effects =
            std::array::from_fn(|_| Effect::new(defined(next(16)), next(16) as u8, next(16) as u8));
        left -= 1;
    }
    let starts: Vec<u32> = (2..80).filter(|&i| table[i as usize].base.begins()).collect();
    assert!(starts.len() > 20 && table.iter().filter(|e| e.is_derived()).count() > 10);
    let mut records = Vec::new();
    let (mut number, mut begins) = (2, true);
    for _ in 0..40_000 {
        let entry = table[number as usize];
        // Instructions of other blocks come with the first access of one.
        let (address, pending) = (next(1 << 40), if begins && next(9) == 0 { next(65_536) } else { 0 });
        // Most often the block goes on.
        begins = entry.left == 1 || next(20) == 0;
        let following = if begins { starts[next(starts.len() as u64) as usize] } else { number + 1 };
        let number = std::mem::replace(&mut number, following);
        if entry.is_derived() {
            continue;
        }
        if entry.shape == shape::EFFECTS {
            records.push([pending << 48, u64::from(number)]);
            continue;
        }
        let unusual = next(60) == 0;
        let made = match entry.shape {
            shape::OTHER if unusual => next(6),
            _ if unusual => 1 + next(5),
            _ => u64::from(entry.callbacks.max(1)),
        };
        let step = u64::from(entry.expected.size().min(8));
        for part in 0..made {
            let info = match entry.expected.0 & Expected::INFO {
                _ if unusual && next(2) == 0 => eight(READ | WRITE),
                info => info,
            };
            let offset = if entry.shape == shape::UPDATE { 0 } else { part * step };
            records.push(record(address + offset, if part == 0 { pending } else { 0 }, number, info));
        }
    }
    // No record is as expected, and no run begins with one.
    let unexpected = |e: &Entry| match e.shape {
        shape::EFFECTS => Entry { shape: shape::OTHER, left: 0, ..*e },
        _ => Entry { expected: Expected(e.expected.0 & !Expected::INFO), left: 0, ..*e },
    };
    let long: Vec<Entry> = table.iter().map(unexpected).collect();
    let all = |table: &[Entry]| {
        // SAFETY: as in `decode`.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        let (mut stream, mut pool) = (Stream::new(StreamId(0)), BatchPool::default());
        let (mut batches, mut at, mut blocks) = (Vec::new(), 0, Blocks::default());
        while at < records.len() {
            let end = records.len().min(at + 1000);
            at += stream.decode(&records[at..end], entries, &mut blocks, 700, true, true).0;
            if stream.is_full() {
                batches.push(stream.take(&mut pool));
            }
        }
        batches.push(stream.take(&mut pool));
        (batches, blocks.count())
    };
    let ((short, templates), (long, none)) = (all(&table), all(&long));
    assert_eq!((templates > 20, none), (Blocks::can_decode(), 0));
    assert_eq!(short.len(), long.len());
    for (short, long) in short.iter().zip(&long) {
        let different = (0..short.len().min(long.len())).find(|&i| short.access(i) != long.access(i));
        assert_eq!(different.map(|i| (i, short.access(i), long.access(i))), None);
        assert_eq!((short.len(), &short.events), (long.len(), &long.events));
    }
}

#[test]
fn passing_over_counts_what_decoding_counts() {
    let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(2, 1, 1), entry(1, 1, 0)];
    // SAFETY: as in `decode`.
    let entries = unsafe { Entries::new(table.as_ptr()) };
    let mut records = Vec::new();
    for i in 0..100u64 {
        records.push(record(0x1000 + i * 16, 0, 2, eight(READ)));
        records.push(record(0x1008 + i * 16, 0, 2, eight(READ)));
        records.push(record(0x9000, 0, 3, eight(READ | WRITE)));
        records.push(record(0x9000, 0, 3, eight(WRITE)));
    }
    let mut decoded = Stream::new(StreamId(0));
    let (_, all, _) = decoded.decode(&records, entries, &mut Blocks::default(), u64::MAX, false, false);
    assert_eq!(all, 400);
    for limit in [1, 2, 3, 77, 400] {
        let (mut a, mut b) = (Stream::new(StreamId(0)), Stream::new(StreamId(0)));
        let passed = a.pass_over(&records, entries, limit, |_, _| {});
        let decoded = b.decode(&records, entries, &mut Blocks::default(), limit, false, false);
        assert_eq!((passed.0, passed.1), (decoded.0, decoded.1), "{limit}");
    }
}

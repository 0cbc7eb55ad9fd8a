//! What happens when QEMU translates a block: each instruction that touches memory gets an entry and a callback.
//!
//! Instructions are counted without a callback of their own. A *carrier* is an instruction whose number of callbacks
//! per execution is known; its entry says how many instructions retired since the previous carrier of the block, and
//! the last carrier also how many follow it. A block without carrier counts itself in one callback.
//!
//! Most accesses have no callback: their addresses follow from another's of the block ([`crate::addresses`]).

use crate::addresses::{Addresses, writes};
use crate::{access, maps, qemu, ring};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfo, InstructionInfoFactory, OpAccess, Register,
};
use qemu::{Block, NO_REGISTERS, PluginId, READ, READ_WRITE};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_protocol::entry::{
    Effect, Entry, Expected, MAX_EFFECTS, NO_DESTINATION, NO_REGISTER, OWN_EFFECTS, places, shape,
};
use terrace_protocol::layout::{ADDRESS_BITS, BLOCK_ENTRIES, BLOCKS, UNKNOWN_ENTRY};

/// QEMU translates at most this many instructions at once.
const MAX_INSTRUCTIONS: usize = 512;

static DEPENDENCES: AtomicBool = AtomicBool::new(false);
static DERIVES: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicBool = AtomicBool::new(false);
static TRANSLATOR: Mutex<Option<Translator>> = Mutex::new(None);

/// Whether effects on registers are noted.
pub fn set_dependences(on: bool) {
    DEPENDENCES.store(on, Relaxed);
    maps::remember_own();
}

/// Whether accesses may do without a callback.
pub fn set_derives(on: bool) {
    DERIVES.store(on, Relaxed);
}

/// Called by QEMU for each translated block, one at a time.
pub extern "C" fn translated(_id: PluginId, block: *mut Block) {
    if ring::is_discarding() {
        return;
    }
    if !STARTED.swap(true, SeqCst) {
        // The main thread is the only one yet, and the program is loaded but has not run.
        ring::announce(0);
        maps::emit_initial(0);
    }
    let mut translator = TRANSLATOR.lock().unwrap_or_else(|e| e.into_inner());
    translator.get_or_insert_with(Translator::new).block(block);
}

/// As [`translated`], for the counting mode.
pub extern "C" fn count_only(_id: PluginId, block: *mut Block) {
    // SAFETY: QEMU passes a block that is valid during the call.
    unsafe {
        for i in 0..qemu::qemu_plugin_tb_n_insns(block) {
            let instruction = qemu::qemu_plugin_tb_get_insn(block, i);
            qemu::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                access::count_only,
                NO_REGISTERS,
                READ_WRITE,
                std::ptr::null_mut(),
            );
        }
    }
}

struct Translator {
    factory: InstructionInfoFactory,
    /// Where a block's entries begin, by its address and content: QEMU forgets translations and makes them again.
    known: HashMap<(u64, u64), u32>,
    /// The block of entries being filled, and how many of it are; belongs to the process `owner`.
    current: Option<(usize, usize)>,
    owner: usize,
    plan: Plan,
}

/// What one block needs.
#[derive(Default)]
struct Plan {
    /// Per instruction: index into `entries`, where it has one.
    entry_of: Vec<Option<usize>>,
    entries: Vec<Planned>,
    /// Instructions that no entry carries.
    uncounted: u64,
}

/// An entry with all its effects, and its place counted from the block's first.
struct Planned {
    entry: Entry,
    effects: Vec<Effect>,
    place: usize,
}

impl Translator {
    fn new() -> Translator {
        Translator {
            factory: InstructionInfoFactory::new(),
            known: HashMap::new(),
            current: None,
            owner: ring::process(),
            plan: Plan::default(),
        }
    }

    fn block(&mut self, block: *mut Block) {
        // SAFETY: QEMU passes a block that is valid during the call.
        let (start, code) = unsafe {
            let instructions = qemu::qemu_plugin_tb_n_insns(block);
            let mut code: Vec<(u64, &[u8])> = Vec::with_capacity(instructions);
            for i in 0..instructions {
                let instruction = qemu::qemu_plugin_tb_get_insn(block, i);
                let size = qemu::qemu_plugin_insn_size(instruction);
                let data = qemu::qemu_plugin_insn_data(instruction);
                code.push((
                    qemu::qemu_plugin_insn_vaddr(instruction),
                    std::slice::from_raw_parts(data, size),
                ));
            }
            (qemu::qemu_plugin_tb_vaddr(block), code)
        };
        self.plan.make(&mut self.factory, &code, DEPENDENCES.load(Relaxed), DERIVES.load(Relaxed));
        let mut hasher = DefaultHasher::new();
        code.hash(&mut hasher);
        let key = (start, hasher.finish());
        let first = match self.known.get(&key) {
            Some(&first) => first,
            None => {
                let first = self.store();
                self.known.insert(key, first);
                first
            }
        };
        self.register(block, first);
    }

    /// Writes the plan's entries into the shared table; the number of the first, 0 when the table is full.
    fn store(&mut self) -> u32 {
        let count = self.plan.places();
        if count == 0 {
            return UNKNOWN_ENTRY;
        }
        // A forked child must not fill the block that its parent fills too.
        if self.owner != ring::process() {
            self.owner = ring::process();
            self.current = None;
        }
        if self.current.is_none_or(|(_, used)| used + count > BLOCK_ENTRIES) {
            let owner = ring::family() as u32 + 1;
            self.current = (0..BLOCKS)
                .find(|&block| {
                    let state = ring::shared().block_owner(block);
                    state.load(Relaxed) == 0 && state.compare_exchange(0, owner, SeqCst, Relaxed).is_ok()
                })
                // The first two entries of all have a meaning of their own.
                .map(|block| (block, if block == 0 { UNKNOWN_ENTRY as usize + 1 } else { 0 }));
        }
        let Some((block, used)) = &mut self.current else {
            ring::shared().header().entries_exhausted.store(1, Relaxed);
            return 0;
        };
        let first = *block * BLOCK_ENTRIES + *used;
        *used += count;
        let entries = self.plan.entries.len();
        for (i, planned) in self.plan.entries.iter().enumerate() {
            let mut entry = planned.entry;
            entry.left = u8::try_from(entries - i).unwrap_or(u8::MAX);
            let (own, more) = planned.effects.split_at(planned.effects.len().min(OWN_EFFECTS));
            entry.effects[..own.len()].copy_from_slice(own);
            // SAFETY: inside the block of entries this process owns, of which `places` counted enough.
            unsafe {
                let place = ring::shared().entries().add(first + planned.place);
                place.write(entry);
                std::ptr::copy_nonoverlapping(more.as_ptr(), place.add(1).cast(), more.len());
            }
        }
        first as u32
    }

    /// Registers the callbacks of a block whose entries begin at `first`.
    fn register(&self, block: *mut Block, first: u32) {
        let plan = &self.plan;
        let number = |entry: usize| match first {
            0 => UNKNOWN_ENTRY as usize,
            _ => first as usize + plan.entries[entry].place,
        };
        let mut is_first = true;
        for (i, entry) in plan.entry_of.iter().enumerate() {
            // An instruction in which we see no memory operand gets its callback too: if QEMU sees one, it is right.
            let user_data = entry.map_or(UNKNOWN_ENTRY as usize, number) as *mut c_void;
            let known = entry.filter(|_| first != 0).map(|entry| &plan.entries[entry].entry);
            if known.is_some_and(Entry::is_derived) {
                continue;
            }
            let is_update = known.is_some_and(|entry| entry.shape == shape::UPDATE);
            let (callback, which): (qemu::MemoryCallback, _) = match (is_update, is_first) {
                // QEMU 7.2 calls back for the store instead.
                (true, true) => (access::first_update, READ),
                (true, false) => (access::update, READ),
                (false, true) => (access::first_access, READ_WRITE),
                (false, false) => (access::access, READ_WRITE),
            };
            // SAFETY: the block is valid during the translation callback.
            unsafe {
                let instruction = qemu::qemu_plugin_tb_get_insn(block, i);
                qemu::qemu_plugin_register_vcpu_mem_cb(instruction, callback, NO_REGISTERS, which, user_data);
            }
            is_first &= entry.is_none();
        }
        let effects_only = plan.entries.last().is_some_and(|e| e.entry.shape == shape::EFFECTS);
        let lost = if first == 0 { plan.entry_of.len() as u64 } else { plan.uncounted };
        // SAFETY: as above.
        unsafe {
            if effects_only && first != 0 {
                let user_data = number(plan.entries.len() - 1) as *mut c_void;
                qemu::qemu_plugin_register_vcpu_tb_exec_cb(
                    block,
                    access::note_effects,
                    NO_REGISTERS,
                    user_data,
                );
            } else if lost > 0 {
                qemu::qemu_plugin_register_vcpu_tb_exec_cb(
                    block,
                    access::count_instructions,
                    NO_REGISTERS,
                    (lost << ADDRESS_BITS) as *mut c_void,
                );
            }
        }
    }
}

impl Plan {
    fn make(
        &mut self,
        factory: &mut InstructionInfoFactory,
        code: &[(u64, &[u8])],
        dependences: bool,
        derives: bool,
    ) {
        debug_assert!(code.len() <= MAX_INSTRUCTIONS);
        self.entry_of.clear();
        self.entries.clear();
        let mut effects: Vec<Effect> = Vec::new();
        let mut addresses = Addresses::new();
        let mut since_carrier = 0;
        let mut last_carrier = None;
        for (i, &(address, bytes)) in code.iter().enumerate() {
            let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
            // QEMU runs each round of a repeated string instruction as a block that begins with it.
            let repeated = is_repeated(&instruction);
            since_carrier += u16::from(!(repeated && i == 0));
            let info = factory.info(&instruction);
            let mut entry = describe(info, address, repeated);
            if derives && let Some(entry) = &mut entry {
                addresses.learn(&instruction, info, entry);
            }
            addresses.advance(&instruction, info);
            self.entry_of.push(entry.map(|_| self.entries.len()));
            let Some(mut entry) = entry else {
                if dependences {
                    add_effects(&mut effects, info, NO_REGISTER);
                }
                continue;
            };
            if entry.callbacks > 0 || entry.is_derived() {
                entry.before = since_carrier;
                since_carrier = 0;
                last_carrier = Some(self.entries.len());
            }
            let before = std::mem::take(&mut effects);
            if dependences {
                let loaded =
                    if entry.destination == NO_DESTINATION { NO_REGISTER } else { entry.destination };
                add_effects(&mut effects, info, loaded);
            }
            self.push(entry, before);
        }
        self.uncounted = 0;
        match last_carrier {
            Some(carrier) => self.entries[carrier].entry.tail = since_carrier,
            None => self.uncounted = u64::from(since_carrier),
        }
        if effects.is_empty() {
            return;
        }
        match self.entries.last_mut() {
            Some(last) => {
                let kept = newest(&effects, MAX_EFFECTS - last.effects.len());
                last.entry.effects_after = kept.len() as u8;
                last.effects.extend_from_slice(kept);
            }
            None => {
                let pc = code.first().map_or(0, |(address, _)| *address);
                let entry = Entry { pc, shape: shape::EFFECTS, before: since_carrier, ..Entry::UNKNOWN };
                self.push(entry, effects);
            }
        }
    }

    fn push(&mut self, mut entry: Entry, effects: Vec<Effect>) {
        let effects = newest(&effects, MAX_EFFECTS).to_vec();
        entry.effects_before = effects.len() as u8;
        if entry.is_derived()
            && let Some(previous) = self.entries.last_mut()
        {
            previous.entry.base = previous.entry.base.going_on();
        }
        let place = self.places();
        self.entries.push(Planned { entry, effects, place });
    }

    /// Places that the entries take in the table.
    fn places(&self) -> usize {
        self.entries.last().map_or(0, |last| last.place + places(last.effects.len()))
    }
}

/// The last of `effects`, at most `room`: what happened first is the likeliest to be overwritten.
fn newest(effects: &[Effect], room: usize) -> &[Effect] {
    &effects[effects.len().saturating_sub(room)..]
}

/// The entry of an instruction, if it touches memory.
fn describe(info: &InstructionInfo, address: u64, repeated: bool) -> Option<Entry> {
    let mut entry = Entry { pc: address, ..Entry::UNKNOWN };
    let mut callbacks = Some(0u8);
    let (mut loads, mut stores, mut operands, mut size) = (false, false, 0, 0);
    for memory in info.used_memory() {
        let (reads, writes, conditional) = match memory.access() {
            OpAccess::Read => (true, false, false),
            OpAccess::Write => (false, true, false),
            OpAccess::ReadWrite => (true, true, false),
            OpAccess::CondRead => (true, false, true),
            OpAccess::CondWrite => (false, true, true),
            OpAccess::ReadCondWrite => (true, true, true),
            OpAccess::None | OpAccess::NoMemAccess => continue,
        };
        operands += 1;
        size = memory.memory_size().size();
        let registers = [number_of(memory.base()), number_of(memory.index())];
        if reads {
            loads = true;
            entry.load_address = registers;
        }
        if writes {
            stores = true;
            entry.store_address = registers;
        }
        // QEMU makes one callback for up to 8 bytes and moves longer values in steps of 8.
        let one_way = match memory.memory_size().size() {
            1 | 2 | 4 | 8 => Some(1),
            16 => Some(2),
            32 => Some(4),
            _ => None,
        };
        let known = one_way.filter(|_| !conditional && !repeated);
        callbacks = callbacks.zip(known).map(|(a, b)| a + b * (u8::from(reads) + u8::from(writes)));
        entry.callbacks = u8::MAX;
    }
    if entry.callbacks == 0 {
        return None;
    }
    entry.callbacks = callbacks.unwrap_or(0);
    if loads {
        entry.destination = written(info).next().unwrap_or(NO_DESTINATION);
    }
    if !loads {
        entry.load_address = entry.store_address;
    }
    entry.shape = match (entry.callbacks, operands) {
        (1, _) => shape::ONE,
        (2 | 4, 1) if loads != stores => shape::VECTOR,
        _ => shape::OTHER,
    };
    if entry.shape != shape::OTHER {
        entry.expected = Expected::new(size.min(8).trailing_zeros(), size as u8, loads);
    }
    Some(entry)
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// The number of a general-purpose register's 64-bit form; none for the stack pointer, which no load defines.
fn number_of(register: Register) -> u8 {
    let full = register.full_register();
    if full.is_gpr64() && full != Register::RSP { full.number() as u8 } else { NO_REGISTER }
}

/// General-purpose registers that an instruction writes.
fn written(info: &InstructionInfo) -> impl Iterator<Item = u8> + '_ {
    info.used_registers().iter().filter_map(|used| {
        let number = number_of(used.register());
        (writes(used.access()) && number != NO_REGISTER).then_some(number)
    })
}

/// Adds what an instruction does to registers, other than `loaded`, which receives the value of its own load.
fn add_effects(effects: &mut Vec<Effect>, info: &InstructionInfo, loaded: u8) {
    let mut sources = info.used_registers().iter().filter_map(|used| {
        let reads = !matches!(used.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::None);
        let number = number_of(used.register());
        (reads && number != NO_REGISTER).then_some(number)
    });
    let (first, second) = if loaded == NO_REGISTER {
        let first = sources.next().unwrap_or(NO_REGISTER);
        let second = sources.find(|&s| s != first).unwrap_or(NO_REGISTER);
        (first, second)
    } else {
        (loaded, NO_REGISTER)
    };
    for target in written(info) {
        // Pointers that an instruction merely advances (`lods`, `add rax, 8`) keep what they derive from.
        let advanced = loaded != NO_REGISTER
            && info.used_registers().iter().any(|used| {
                number_of(used.register()) == target && !matches!(used.access(), OpAccess::Write)
            });
        if target == loaded || advanced || (target == first && second == NO_REGISTER) {
            continue;
        }
        // A value that nothing reads before it is overwritten has no effect.
        let mut read_later = first == target || second == target;
        for i in (0..effects.len()).rev() {
            let earlier = effects[i];
            if earlier.target() == usize::from(target) && !read_later {
                effects.remove(i);
                break;
            }
            read_later |= earlier.first() == usize::from(target) || earlier.second() == usize::from(target);
        }
        effects.push(Effect::new(target, first, second));
    }
}

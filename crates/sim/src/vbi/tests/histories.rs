//! Random histories of processes against a plain map: no byte is seen that was not written, no access is made without the
//! right, and no block is used after it is gone.

use super::super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The bytes of a block as a reference keeps them.
type Bytes = Rc<RefCell<HashMap<u64, u8>>>;

/// What a process has at an index.
#[derive(Clone, Debug)]
struct Held {
    bytes: Bytes,
    size: Rc<RefCell<u64>>,
    rights: Rights,
    shared: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Spawn(u8),
    Request(u8, u64),
    Load(u8, u8, u64),
    Store(u8, u8, u64, u8),
    Release(u8, u8),
    Share(u8, u8, u8, bool),
    Promote(u8, u8),
    Migrate(u8, u8, u8),
    Run(u8),
    Fork(u8),
    Exit(u8),
    Clean,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = prop_oneof![0u64..6000, 100_000u64..140_000];
    let step = prop_oneof![
        1 => (0u8..2).prop_map(Step::Spawn),
        4 => (any::<u8>(), prop_oneof![Just(100u64), Just(5000), Just(100_000)]).prop_map(|(p, b)| Step::Request(p, b)),
        10 => (any::<u8>(), 0u8..6, offset.clone()).prop_map(|(p, i, o)| Step::Load(p, i, o)),
        10 => (any::<u8>(), 0u8..6, offset, any::<u8>()).prop_map(|(p, i, o, b)| Step::Store(p, i, o, b)),
        2 => (any::<u8>(), 0u8..6).prop_map(|(p, i)| Step::Release(p, i)),
        2 => (any::<u8>(), 0u8..6, any::<u8>(), any::<bool>()).prop_map(|(p, i, q, w)| Step::Share(p, i, q, w)),
        2 => (any::<u8>(), 0u8..6).prop_map(|(p, i)| Step::Promote(p, i)),
        2 => (any::<u8>(), 0u8..6, 0u8..4).prop_map(|(p, i, h)| Step::Migrate(p, i, h)),
        1 => (0u8..4).prop_map(Step::Run),
        2 => any::<u8>().prop_map(Step::Fork),
        1 => any::<u8>().prop_map(Step::Exit),
        1 => Just(Step::Clean),
    ];
    prop::collection::vec(step, 1..160)
}

/// The reference: for each process what it has at each index.
#[derive(Default)]
struct Reference {
    processes: Vec<(ClientId, HashMap<Index, Held>)>,
}

impl Reference {
    fn pick(&self, number: u8) -> Option<usize> {
        (!self.processes.is_empty()).then(|| usize::from(number) % self.processes.len())
    }

    fn clients_of(&self, bytes: &Bytes) -> u32 {
        let held = self.processes.iter().flat_map(|(_, table)| table.values());
        held.filter(|held| Rc::ptr_eq(&held.bytes, bytes)).count() as u32
    }
}

fn access(held: Option<&Held>, index: Index, offset: u64, write: bool) -> Result<(), VbiError> {
    let held = held.ok_or(VbiError::NoSuchIndex(index))?;
    if !(if write { held.rights.write } else { held.rights.read }) {
        return Err(VbiError::NoRight(if write { "write" } else { "read" }));
    }
    let bytes = *held.size.borrow();
    if offset < bytes { Ok(()) } else { Err(VbiError::OutOfBounds { offset, bytes }) }
}

fn take(system: &mut System<Contents>, reference: &mut Reference, step: Step) {
    match step {
        Step::Spawn(vm) => {
            let client = system.new_client(VmId::new(u32::from(vm)).unwrap()).unwrap();
            assert!(reference.processes.iter().all(|(other, _)| *other != client));
            reference.processes.push((client, HashMap::new()));
        }
        Step::Request(process, bytes) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, table) = &mut reference.processes[at];
            let index = system.request_vb(*client, bytes, Properties::NONE).unwrap();
            let block = system.hardware.table(*client).unwrap().get(index).unwrap().block;
            assert_eq!(system.hardware.info.home(block), system.hardware.info.near());
            let size = SizeClass::holding(bytes).unwrap().bytes();
            let held = Held {
                bytes: Bytes::default(),
                size: Rc::new(RefCell::new(size)),
                rights: Rights::READ_WRITE,
                shared: false,
            };
            assert!(table.insert(index, held).is_none(), "the index was in use");
        }
        Step::Load(process, index, offset) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, table) = &reference.processes[at];
            let index = Index(u32::from(index));
            let held = table.get(&index);
            let byte = || held.and_then(|held| held.bytes.borrow().get(&offset).copied()).unwrap_or(0);
            let expected = access(held, index, offset, false).map(|()| byte());
            assert_eq!(system.load(*client, index, offset), expected);
        }
        Step::Store(process, index, offset, byte) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, table) = &reference.processes[at];
            let index = Index(u32::from(index));
            let expected = access(table.get(&index), index, offset, true);
            assert_eq!(system.store(*client, index, offset, byte), expected);
            if expected.is_ok() {
                table[&index].bytes.borrow_mut().insert(offset, byte);
            }
        }
        Step::Release(process, index) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, table) = &mut reference.processes[at];
            let index = Index(u32::from(index));
            let expected = table.remove(&index).map(drop).ok_or(VbiError::NoSuchIndex(index));
            assert_eq!(system.release(*client, index), expected);
        }
        Step::Share(process, index, with, write) => {
            let (Some(at), Some(other)) = (reference.pick(process), reference.pick(with)) else { return };
            let index = Index(u32::from(index));
            let (client, other_client) = (reference.processes[at].0, reference.processes[other].0);
            let Some(mut held) = reference.processes[at].1.get(&index).cloned() else { return };
            if at == other {
                return;
            }
            let rights = if write { Rights::READ_WRITE } else { Rights::READ };
            let shared = system.share(client, index, other_client, rights);
            if client.vm() != other_client.vm() {
                assert_eq!(shared, Err(VbiError::NoSuchClient(other_client)));
                return;
            }
            held.shared = true;
            reference.processes[at].1.insert(index, held.clone());
            held.rights = rights;
            assert!(reference.processes[other].1.insert(shared.unwrap(), held).is_none());
        }
        Step::Promote(process, index) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, table) = &reference.processes[at];
            let index = Index(u32::from(index));
            let Some(held) = table.get(&index) else { return };
            let size = *held.size.borrow();
            if size > 1 << 22 {
                return;
            }
            system.promote(*client, index, size + 1).unwrap();
            *held.size.borrow_mut() = size * 32;
        }
        Step::Migrate(process, index, home) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, table) = &reference.processes[at];
            let index = Index(u32::from(index));
            if !table.contains_key(&index) {
                return;
            }
            let before = system.hardware.table(*client).unwrap().get(index).unwrap().block;
            let after = system.migrate(before, u32::from(home)).unwrap();
            assert_eq!(system.hardware.table(*client).unwrap().get(index).unwrap().block, after);
            assert_eq!(system.hardware.info.home(after), u32::from(home));
            assert_eq!(system.hardware.info.get(before).unwrap_err(), VbiError::NotEnabled(before));
        }
        Step::Run(node) => system.hardware.info.prefer(u32::from(node)),
        Step::Fork(process) => {
            let Some(at) = reference.pick(process) else { return };
            if reference.processes.len() > 6 {
                return;
            }
            let (client, table) = &reference.processes[at];
            let child = system.fork(*client).unwrap();
            let mut copies: HashMap<*const RefCell<HashMap<u64, u8>>, Held> = HashMap::new();
            let copy = |(index, held): (&Index, &Held)| {
                if held.shared {
                    return (*index, held.clone());
                }
                let fresh = || Held {
                    bytes: Rc::new(RefCell::new(held.bytes.borrow().clone())),
                    size: Rc::new(RefCell::new(*held.size.borrow())),
                    ..held.clone()
                };
                (*index, copies.entry(Rc::as_ptr(&held.bytes)).or_insert_with(fresh).clone())
            };
            let table = table.iter().map(copy).collect();
            reference.processes.push((child, table));
        }
        Step::Exit(process) => {
            let Some(at) = reference.pick(process) else { return };
            let (client, _) = reference.processes.swap_remove(at);
            system.exit(client).unwrap();
            assert!(system.hardware.table(client).is_err());
        }
        Step::Clean => drop(system.hardware.invalidate_lazily()),
    }
}

/// Tables agree with the reference, and every block counts its clients.
fn audit(system: &System<Contents>, reference: &Reference) {
    for (client, table) in &reference.processes {
        let hardware = &system.hardware;
        let valid: Vec<(Index, Cvt)> = hardware.table(*client).unwrap().valid().collect();
        assert_eq!(valid.len(), table.len());
        for (index, entry) in valid {
            let held = &table[&index];
            assert_eq!(
                (entry.rights, entry.block.bytes(), entry.block.vm()),
                (held.rights, *held.size.borrow(), client.vm())
            );
            let info = hardware.info.get(entry.block).expect("a block in use is enabled");
            assert_eq!(info.references, reference.clients_of(&held.bytes));
            for (offset, byte) in held.bytes.borrow().iter() {
                assert_eq!(Contents::load(&info.structure, *offset), *byte);
            }
        }
    }
}

proptest! {
    #[test]
    fn histories_agree_with_a_plain_map_of_bytes(steps in steps()) {
        let (mut system, mut reference) = (System::new(Contents::default()), Reference::default());
        system.hardware.info.set_nodes(4);
        take(&mut system, &mut reference, Step::Spawn(0));
        for step in steps {
            take(&mut system, &mut reference, step);
            audit(&system, &reference);
        }
    }
}

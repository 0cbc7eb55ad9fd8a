//! Each operation as the paper describes it, bad input, and random histories against a plain map of bytes.

mod histories;

use super::*;

fn system() -> System<Contents> {
    System::new(Contents::default())
}

/// A system with one client.
fn with_client() -> (System<Contents>, ClientId) {
    let mut system = system();
    let client = system.new_client(VmId::HOST).unwrap();
    (system, client)
}

fn block(system: &System<Contents>, client: ClientId, index: Index) -> Vbuid {
    system.hardware.table(client).unwrap().get(index).unwrap().block
}

#[test]
fn a_block_is_requested_used_and_given_back() {
    let (mut system, client) = with_client();
    let properties = Properties::of(&[Property::LatencySensitive]);
    // 5 KiB: the smallest class that holds them is 128 KiB.
    let index = system.request_vb(client, 5 << 10, properties).unwrap();
    let vb = block(&system, client, index);
    assert_eq!((index, vb.bytes(), vb.index()), (Index(0), 128 << 10, 0));
    let info = system.hardware.info.get(vb).unwrap();
    assert_eq!((info.enabled, info.references, info.properties), (true, 1, properties));
    assert!(info.structure.is_empty(), "enabling gives no memory");
    assert!(properties.has(Property::LatencySensitive) && !properties.has(Property::Code));
    assert_eq!(system.load(client, index, 0x1234), Ok(0), "memory that was never written is zero");
    system.store(client, index, 0x1234, 7).unwrap();
    assert_eq!(system.load(client, index, 0x1234), Ok(7));
    assert_eq!(system.hardware.info.get(vb).unwrap().structure.len(), 1, "one region of 4 KiB has memory");
    system.release(client, index).unwrap();
    assert_eq!(system.load(client, index, 0x1234), Err(VbiError::NoSuchIndex(index)));
    assert_eq!(system.hardware.info.get(vb).unwrap_err(), VbiError::NotEnabled(vb));
}

#[test]
fn an_access_is_checked_for_index_right_and_bound() {
    let (mut system, client) = with_client();
    let vb = system.enable(VmId::HOST, 4096, Properties::NONE).unwrap();
    let index = system.hardware.attach(client, vb, Rights::READ).unwrap();
    assert_eq!(system.load(client, Index(9), 0), Err(VbiError::NoSuchIndex(Index(9))));
    assert_eq!(system.store(client, index, 0, 1), Err(VbiError::NoRight("write")));
    assert_eq!(system.hardware.check_execute(client, index, 0), Err(VbiError::NoRight("execute")));
    let outside = VbiError::OutOfBounds { offset: 4096, bytes: 4096 };
    assert_eq!(system.load(client, index, 4096), Err(outside));
    let address = system.hardware.check_read(client, index, 0xfff).unwrap();
    assert_eq!((address.block(), address.offset(), address.line() & 63), (vb, 0xfff, 63));
}

#[test]
fn attach_takes_the_first_free_entry_or_the_end() {
    let (mut system, client) = with_client();
    let [a, b, c] = [4096; 3].map(|bytes| system.request_vb(client, bytes, Properties::NONE).unwrap());
    assert_eq!([a.0, b.0, c.0], [0, 1, 2]);
    let second = block(&system, client, b);
    assert_eq!(system.hardware.detach(client, second), Ok(0));
    assert_eq!(system.hardware.detach(client, second), Err(VbiError::NotAttached(second)));
    assert_eq!(system.request_vb(client, 4096, Properties::NONE), Ok(Index(1)));
    assert_eq!(system.request_vb(client, 4096, Properties::NONE), Ok(Index(3)));
}

#[test]
fn a_block_with_clients_stays_and_its_name_is_used_again_after_it_is_gone() {
    let (mut system, client) = with_client();
    let index = system.request_vb(client, 4096, Properties::NONE).unwrap();
    let vb = block(&system, client, index);
    assert_eq!(system.hardware.disable_vb(vb), Err(VbiError::StillAttached(vb, 1)));
    assert_eq!(system.hardware.enable_vb(vb, Properties::NONE), Err(VbiError::InUse(vb)));
    system.store(client, index, 3, 9).unwrap();
    system.release(client, index).unwrap();
    assert_eq!(system.hardware.layer.invalidated, [], "lines stay until the name is used again");
    let again = system.request_vb(client, 4096, Properties::NONE).unwrap();
    assert_eq!(block(&system, client, again), vb, "tables stay small");
    assert_eq!(system.hardware.layer.invalidated, [vb]);
    assert_eq!(system.load(client, again, 3), Ok(0), "nothing is left of its last use");
    // In the background, before anybody needs the name.
    system.release(client, again).unwrap();
    assert_eq!(system.hardware.invalidate_lazily(), Some(vb));
    assert_eq!(system.hardware.invalidate_lazily(), None);
    system.request_vb(client, 4096, Properties::NONE).unwrap();
    assert_eq!(system.hardware.layer.invalidated, [vb, vb], "not once more");
    assert_eq!(system.hardware.info.len(SizeClass::ALL[0], VmId::HOST), 1);
}

#[test]
fn a_clone_shares_memory_until_one_of_both_is_written() {
    let (mut system, client) = with_client();
    let source = system.request_vb(client, 128 << 10, Properties::NONE).unwrap();
    system.store(client, source, 5000, 1).unwrap();
    let from = block(&system, client, source);
    let to = system.enable(VmId::HOST, 128 << 10, Properties::NONE).unwrap();
    system.hardware.clone_vb(from, to).unwrap();
    assert_eq!(system.hardware.layer.flushed, [from], "dirty lines would be missing in the clone");
    let clone = system.hardware.attach(client, to, Rights::READ_WRITE).unwrap();
    assert_eq!(system.load(client, clone, 5000), Ok(1));
    system.store(client, source, 5000, 2).unwrap();
    system.store(client, clone, 5001, 3).unwrap();
    let bytes = |index| [5000, 5001].map(|offset| system.load(client, index, offset).unwrap());
    assert_eq!((bytes(source), bytes(clone)), ([2, 0], [1, 3]));
    let small = system.enable(VmId::HOST, 4096, Properties::NONE).unwrap();
    assert_eq!(system.hardware.clone_vb(from, small), Err(VbiError::WrongSize(small, from)));
}

#[test]
fn a_promoted_block_keeps_its_bytes_and_pointers_for_all_clients() {
    let (mut system, client) = with_client();
    let other = system.new_client(VmId::HOST).unwrap();
    let index = system.request_vb(client, 4096, Properties::NONE).unwrap();
    let shared = system.share(client, index, other, Rights::READ).unwrap();
    system.store(client, index, 4095, 8).unwrap();
    let small = block(&system, client, index);
    system.promote(client, index, 4097).unwrap();
    let large = block(&system, client, index);
    assert_eq!((large.bytes(), block(&system, other, shared)), (128 << 10, large));
    assert_eq!(system.hardware.layer.flushed, [small]);
    assert_eq!((system.load(client, index, 4095), system.load(other, shared, 4095)), (Ok(8), Ok(8)));
    assert_eq!(system.load(client, index, 100_000), Ok(0), "the rest has no memory");
    assert_eq!(system.store(other, shared, 0, 1), Err(VbiError::NoRight("write")), "rights stay");
    assert_eq!(system.hardware.info.get(large).unwrap().references, 2);
    assert!(system.hardware.info.get(small).is_err());
    assert_eq!(system.hardware.promote_vb(large, large), Err(VbiError::WrongSize(large, large)));
}

#[test]
fn malloc_promotes_a_block_that_is_full() {
    let (mut system, client) = with_client();
    let index = system.request_vb(client, 4096, Properties::NONE).unwrap();
    let first = system.malloc(client, index, 4000).unwrap();
    system.store(client, index, first + 3999, 5).unwrap();
    let second = system.malloc(client, index, 4000).unwrap();
    assert_eq!((first, second), (0, 4000));
    assert_eq!(block(&system, client, index).bytes(), 128 << 10);
    assert_eq!(system.load(client, index, 3999), Ok(5), "the pointer is still good");
    system.free(client, index, first).unwrap();
    assert_eq!(system.malloc(client, index, 1), Ok(0), "the first gap that fits");
    assert_eq!(system.free(client, index, 17), Err(VbiError::NotAllocated(17)));
    let too_large = (128 << 40) + 1;
    assert_eq!(system.malloc(client, index, too_large), Err(VbiError::Full(too_large)));
}

#[test]
fn exec_fills_a_block_for_each_section() {
    let mut system = system();
    let sections = [
        Section {
            bytes: &[1, 2, 3],
            size: 3,
            rights: Rights::READ_EXECUTE,
            properties: Properties::of(&[Property::Code]),
        },
        Section { bytes: &[4], size: 200_000, rights: Rights::READ_WRITE, properties: Properties::NONE },
    ];
    let (client, places) = system.exec(VmId::HOST, &sections).unwrap();
    assert_eq!(places, [Index(0), Index(1)]);
    assert_eq!(system.load(client, places[0], 2), Ok(3));
    assert!(system.hardware.check_execute(client, places[0], 0).is_ok());
    assert_eq!(system.store(client, places[0], 0, 0), Err(VbiError::NoRight("write")));
    assert_eq!((system.load(client, places[1], 0), system.load(client, places[1], 1)), (Ok(4), Ok(0)));
    assert_eq!(block(&system, client, places[1]).bytes(), 4 << 20);
    let info = system.hardware.info.get(block(&system, client, places[0])).unwrap();
    assert_eq!(
        (info.references, info.properties.has(Property::Code)),
        (1, true),
        "the kernel has detached itself"
    );
}

#[test]
fn fork_clones_private_blocks_at_the_same_indices() {
    let (mut system, parent) = with_client();
    let peer = system.new_client(VmId::HOST).unwrap();
    let private = system.request_vb(parent, 4096, Properties::NONE).unwrap();
    let gone = system.request_vb(parent, 4096, Properties::NONE).unwrap();
    let common = system.request_vb(parent, 4096, Properties::NONE).unwrap();
    system.share(parent, common, peer, Rights::READ).unwrap();
    system.store(parent, private, 1, 10).unwrap();
    system.store(parent, common, 1, 20).unwrap();
    system.release(parent, gone).unwrap();
    let child = system.fork(parent).unwrap();
    assert_ne!(block(&system, child, private), block(&system, parent, private));
    assert_eq!(block(&system, child, common), block(&system, parent, common), "true sharing");
    assert_eq!(system.load(child, private, 1), Ok(10), "the same pointer");
    system.store(child, private, 1, 11).unwrap();
    system.store(child, common, 1, 21).unwrap();
    assert_eq!((system.load(parent, private, 1), system.load(parent, common, 1)), (Ok(10), Ok(21)));
    assert_eq!(system.load(child, gone, 0), Err(VbiError::NoSuchIndex(gone)));
    system.exit(parent).unwrap();
    assert_eq!((system.load(child, private, 1), system.load(child, common, 1)), (Ok(11), Ok(21)));
    assert_eq!(system.load(parent, private, 1), Err(VbiError::NoSuchClient(parent)));
    assert_eq!(system.new_client(VmId::HOST), Ok(parent), "its number is free");
}

#[test]
fn a_library_has_one_block_of_code_and_data_of_its_own_at_the_next_index() {
    let (mut system, one) = with_client();
    let other = system.new_client(VmId::HOST).unwrap();
    // The free entries of the first process do not follow each other.
    let taken = [4096; 3].map(|bytes| system.request_vb(one, bytes, Properties::NONE).unwrap());
    system.release(one, taken[1]).unwrap();
    let library = system.install_library(VmId::HOST, &[0x90, 0xc3], &[42]).unwrap();
    let [at, there] = [one, other].map(|client| system.load_library(client, &library).unwrap());
    assert_eq!((at, there), (Index(3), Index(0)));
    assert_eq!(block(&system, one, at), block(&system, other, there), "code is shared");
    assert_ne!(block(&system, one, at.next()), block(&system, other, there.next()));
    system.store(one, at.next(), 0, 43).unwrap();
    assert_eq!((system.load(one, at.next(), 0), system.load(other, there.next(), 0)), (Ok(43), Ok(42)));
    assert_eq!(system.load(other, there, 1), Ok(0xc3));
    let child = system.fork(one).unwrap();
    assert_eq!(
        (block(&system, child, at), system.load(child, at.next(), 0)),
        (block(&system, one, at), Ok(43))
    );
}

#[test]
fn a_mapped_file_has_the_offsets_of_the_file() {
    let (mut system, client) = with_client();
    let file: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    let index = system.map_file(client, &file, Rights::READ_WRITE).unwrap();
    assert_eq!(system.load(client, index, 5003), Ok(file[5003]));
    system.store(client, index, 9_999, 1).unwrap();
    let written = system.file_contents(client, index, 10_000).unwrap();
    assert_eq!((written.len(), written[9_999], written[..9_999] == file[..9_999]), (10_000, 1, true));
    let info = system.hardware.info.get(block(&system, client, index)).unwrap();
    assert!(info.properties.has(Property::File));
}

#[test]
fn virtual_machines_take_blocks_and_clients_of_their_own() {
    let mut system = system();
    let guest = VmId::new(31).unwrap();
    let [host_client, guest_client] = [VmId::HOST, guest].map(|vm| system.new_client(vm).unwrap());
    assert_eq!((host_client.number(), guest_client.number(), guest_client.vm()), (0, 31 << 11, guest));
    let [a, b] =
        [host_client, guest_client].map(|client| system.request_vb(client, 4096, Properties::NONE).unwrap());
    let [on_host, in_guest] =
        [(host_client, a), (guest_client, b)].map(|(client, index)| block(&system, client, index));
    assert_eq!((on_host.index(), in_guest.index(), in_guest.vm()), (0, 0, guest), "nobody asked the other");
    system.store(guest_client, b, 0, 1).unwrap();
    assert_eq!(system.load(host_client, a, 0), Ok(0));
    // Sharing between machines takes the host.
    assert_eq!(
        system.share(host_client, a, guest_client, Rights::READ),
        Err(VbiError::NoSuchClient(guest_client))
    );
    assert_eq!(VmId::new(32), Err(VbiError::NoSuchVm(32)));
}

#[test]
fn what_runs_out_is_an_error_and_not_the_end() {
    let (mut system, client) = with_client();
    let most = 128 << 40;
    assert_eq!(system.request_vb(client, most + 1, Properties::NONE), Err(VbiError::TooLarge(most + 1)));
    let indices: Vec<Index> =
        (0..512).map(|_| system.request_vb(client, most, Properties::NONE).unwrap()).collect();
    let none = VbiError::NoFreeBlock(SizeClass::ALL[7], VmId::HOST);
    assert_eq!(system.request_vb(client, most, Properties::NONE), Err(none));
    assert_eq!(system.promote(client, indices[0], most), Err(VbiError::TooLarge(most)));
    // A fork that does not succeed leaves no child, and the parent as it was.
    assert_eq!(system.fork(client), Err(none));
    assert_eq!(system.hardware.info.get(block(&system, client, indices[0])).unwrap().references, 1);
    system.release(client, indices[77]).unwrap();
    assert_eq!(system.request_vb(client, most, Properties::NONE), Ok(indices[77]));
    let guest = VmId::new(1).unwrap();
    (0..1 << 11).for_each(|_| assert!(system.new_client(guest).is_ok()));
    assert_eq!(system.new_client(guest), Err(VbiError::NoFreeClient(guest)));
}

#[test]
fn the_highest_bits_of_a_number_name_the_home_and_data_move_by_a_new_block() {
    let mut system = system();
    system.hardware.info.set_nodes(4);
    let client = system.new_client(VmId::HOST).unwrap();
    system.hardware.info.prefer(2);
    let index = system.request_vb(client, 4 << 20, Properties::NONE).unwrap();
    let first = block(&system, client, index);
    // 34 bits, of which two are the home.
    assert_eq!((first.index(), system.hardware.info.home(first)), (2 << 32, 2));
    system.store(client, index, 77, 9).unwrap();
    let other = system.new_client(VmId::HOST).unwrap();
    let shared = system.share(client, index, other, Rights::READ).unwrap();
    let second = system.migrate(first, 3).unwrap();
    assert_eq!((second.index(), second.class()), (3 << 32, first.class()));
    assert_eq!(system.hardware.layer.flushed, [first], "what caches hold dirty is in memory first");
    // Pointers of all clients stay what they were.
    assert_eq!((system.load(client, index, 77), system.load(other, shared, 77)), (Ok(9), Ok(9)));
    assert_eq!(system.hardware.info.get(first).unwrap_err(), VbiError::NotEnabled(first));
    // Clones and larger blocks stay in the node.
    let child = system.fork(client).unwrap();
    system.promote(client, index, 5 << 20).unwrap();
    assert_eq!(system.hardware.info.home(block(&system, client, index)), 3);
    assert_eq!(system.hardware.info.home(block(&system, child, index)), 3);
    // A node without a free block of the class takes none; a request goes to the next one.
    let large = SizeClass::ALL[7].bytes();
    let kept: Vec<Index> =
        (0..128).map(|_| system.request_vb(client, large, Properties::NONE).unwrap()).collect();
    assert!(kept.iter().all(|index| system.hardware.info.home(block(&system, client, *index)) == 2));
    let next = system.request_vb(client, large, Properties::NONE).unwrap();
    let next = block(&system, client, next);
    assert_eq!(system.hardware.info.home(next), 3);
    assert_eq!(system.migrate(next, 2), Err(VbiError::NoFreeBlock(SizeClass::ALL[7], VmId::HOST)));
}

//! What is not simulated beside a GPU is refused, with what to use in its place.

use crate::gpu_support::Script;
use terrace_sim::design::Library;
use terrace_sim::{Options, migration_benchmark, simulate};
use terrace_trace::{Header, VecSource};

/// What is said of a design on a machine with a GPU.
fn refused(design: &str, options: Options) -> String {
    let design = Library::embedded().design(design, Some("gpu-gtx480"), &[]).unwrap().design;
    let mut script = Script::new(4096);
    script.kernel();
    script.group(32);
    script.warp(0);
    script.lanes(0, 4, false, 1);
    let mut source = VecSource::new(Header::default(), script.take());
    simulate(&design, &mut source, options).unwrap_err().to_string()
}

#[test]
fn translation_that_no_gpu_has_is_refused() {
    for design in
        ["perfect-tlb", "vivt", "colt", "rmm", "direct-segment", "spot", "pom-tlb", "vbi-full", "enigma-2m"]
    {
        let said = refused(design, Options::default());
        assert!(
            said.contains("translation.scheme: ") && said.contains("gpu.tlb.miss_latency"),
            "{design}: {said}"
        );
    }
    for design in ["ideal-coherence", "hatric"] {
        let said = refused(design, Options::default());
        assert!(said.contains("translation.coherence: \""), "{design}: {said}");
    }
    let said = refused("virtual-4k", Options::default());
    assert!(said.contains("a GPU in a virtual machine is not simulated"), "{said}");
    let said = refused("native-2m", Options::default());
    assert!(said.contains("os.pages: the GPU's TLBs hold pages of 4 KiB alone"), "{said}");
}

#[test]
fn pictures_that_no_gpu_has_are_refused() {
    for options in [
        Options { memory_map: true, ..Options::default() },
        Options { watch_access: Some(5), ..Options::default() },
    ] {
        let said = refused("native-4k", options);
        assert!(said.contains("are of machines without a GPU; with one, --placement-map"), "{said}");
    }
}

#[test]
fn a_memory_too_small_for_the_lists_that_move_is_named_with_a_size_that_is_enough() {
    let sets = [("os.reserved", "0 B"), ("tier.gddr.capacity", "64 MiB")];
    let sets = sets.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let design = Library::embedded().design("first-touch", Some("gpu-gtx480"), &sets).unwrap().design;
    assert_eq!(
        migration_benchmark(&design, None).unwrap_err(),
        "tier.gddr.capacity: 64 MiB, less what is reserved (os.reserved), has no room for the 128 MiB of \"huge pages\"; give it \
         more, as with --set tier.gddr.capacity=\"192 MiB\""
    );
}

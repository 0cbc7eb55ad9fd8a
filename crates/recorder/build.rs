//! Builds the libraries that the recorder carries: the QEMU plugin and the two preload libraries.

fn main() {
    terrace_libraries::build(
        &["plugin", "../preload/exec", "../preload/allocations"],
        &["protocol", "../preload/interpose"],
    );
}

//! Builds the libraries that Terrace preloads into a command whose stores and accesses it is to know.

fn main() {
    terrace_libraries::build(
        &["../preload/helper", "../preload/dropper", "../preload/sampler", "../preload/placer"],
        &["../handover", "../preload/interpose", "../preload/placement", "../preload/placing"],
    );
}

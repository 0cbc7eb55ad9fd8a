//! Builds the libraries that Terrace preloads into a command whose stores and accesses it is to know.

fn main() {
    terrace_libraries::build(&["helper", "zapper", "sampler"], &["handover"]);
}

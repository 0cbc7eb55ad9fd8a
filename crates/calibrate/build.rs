//! Builds the library that asks for huge pages in programs that are run natively.

fn main() {
    terrace_libraries::build(&["../preload/pages"], &[]);
}

//! Builds the library that Terrace preloads into a command whose stores it is to know.

fn main() {
    terrace_libraries::build(&["helper"], &[]);
}

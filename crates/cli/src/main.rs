//! The `terrace` command line.
fn main() {}

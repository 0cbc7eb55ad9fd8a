//! Unit tests of files whose items the library does not show.
//!
//! These files are compiled here alone: the library with all its workloads would take a minute of building once more.

#[allow(dead_code, reason = "the library uses what the tests do not")]
#[path = "../src/pages.rs"]
mod pages;
#[allow(dead_code, unused_imports, reason = "the library uses what the tests do not")]
#[path = "../src/random.rs"]
mod random;

use terrace_workload::WorkloadError;

//! Tiering policies.
//!
//! A [`Policy`] sees and changes memory through [`MemorySystem`] and nothing else, so one source runs in the simulator,
//! on live Linux, and in tests on the test double of `in_memory/`. Each published policy is one file in `src/policies/`; a
//! new file there is a new policy, without a line elsewhere.
//!
//! The seam to the memory is the crate `terrace-seam`; all of it can be named through this crate. Begin reading at
//! [`Policy`] and [`MemorySystem`], then at the shortest policy, [`policies::first_touch`].

// Policies write `terrace_policy::…` as their tests and authors elsewhere do.
extern crate self as terrace_policy;

pub mod registry;
mod spans;
pub mod support;
#[cfg(test)]
mod test_support;

pub use registry::{Entry, PolicyError, all, find, text_of};
pub use terrace_seam::*;

// Words of the model that every policy uses.
pub use terrace_model::derive::{Choice, Parameters};
pub use terrace_model::parameters::ParameterInfo;

#[cfg(test)]
use terrace_in_memory::{Driver, InMemory};
#[cfg(test)]
use test_support::Open;

include!(concat!(env!("OUT_DIR"), "/policies.rs"));

/// The example in CONTRIBUTING.md is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../CONTRIBUTING.md")]
pub struct Contributing;

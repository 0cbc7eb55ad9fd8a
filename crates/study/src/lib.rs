//! Studies of memory-management designs, for any front door: a command line, a Python package, a service.
//!
//! [`Comparison`] runs several designs on the same inputs; [`advise`] finds how little fast memory is enough, [`pages`]
//! whether large pages are right, [`tune`] a policy's best parameters; [`reproduce`] holds published results against
//! ours; [`check`] holds a prediction for this machine against it; [`run::simulate`] is one design on one input. What they
//! need has one shape everywhere: an [`Input`], designs with their [`Changes`], a [`Simulation`], and the [`Progress`] of
//! whoever asks.
//!
//! Nothing here prints, parses a command line or ends a process. Results are plain data that serialize; remarks in them
//! are sentences for the reader. Errors say whether the request was at fault, [`Error::is_request`].

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

pub mod access_picture;
pub mod advise;
pub mod aging;
mod bench;
pub mod catalog;
pub mod check;
mod closing;
mod compare;
mod defaults;
pub mod designs;
pub mod difference;
mod error;
mod fanout;
pub mod figures;
pub mod first_pass;
#[doc(hidden)]
pub mod fuzz;
pub mod hypervisor;
mod ignored;
pub mod input;
pub mod intervals;
mod keeping;
pub mod memory_picture;
pub mod migrations;
pub mod mix;
mod observer;
mod own_policy;
pub mod pages;
pub mod partial;
mod periods;
pub mod placement_picture;
pub mod profile;
mod programs;
mod progress;
pub mod record;
pub mod reproduce;
pub mod run;
pub mod shares;
pub mod shootdowns;
mod simulation;
mod stop;
pub mod suite;
pub mod sweep;
mod threads;
pub mod tiers;
pub mod tune;
pub mod words;

pub use compare::{Comparison, ComparisonResult};
pub use designs::{Changes, Job, Setting};
pub use error::Error;
pub use input::Input;
pub use observer::InputObserver;
pub use own_policy::{Begun, OwnPolicy};
pub use progress::{Progress, Silent, Task, Watched};
pub use simulation::{Settings, Simulation, Trained};
pub use stop::Stop;

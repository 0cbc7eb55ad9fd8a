//! Machines with a GPU.

mod faults;
mod kernels;
mod machines;
mod overlap;
mod refusals;
mod selective;
mod stores;
mod systems;

#[path = "../gpu_support/mod.rs"]
mod gpu_support;
#[path = "../machine_support/mod.rs"]
mod support;

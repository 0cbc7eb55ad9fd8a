//! Guests and their hypervisors.

mod guests;
mod hatric;
mod hatric_vm;
mod nested;
mod resident;
mod several_vms;
mod trident_pv;

#[path = "../machine_support/mod.rs"]
mod support;

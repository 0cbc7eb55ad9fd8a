//! Designs: what is being compared. A machine plus the choices of its operating system and translation hardware.

mod schema;

pub use schema::*;

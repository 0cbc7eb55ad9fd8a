//! Preload library that keeps the programs a recorded program executes under the recorder.
//!
//! QEMU hands `execve` to the kernel, and the new program would run outside it. Here the functions by which a
//! program executes another are replaced: where the new program is one that QEMU can run, QEMU is executed in its
//! place, with the recorder's plugin. Nothing is done for programs that are for another processor or gain privileges
//! when executed; those, and statically linked ones, run unrecorded.
//!
//! | variable | meaning |
//! |---|---|
//! | `TERRACE_QEMU` | path of QEMU |
//! | `TERRACE_PLUGIN` | the argument of its `-plugin` option |
//! | `TERRACE_PRELOAD` | the recorder's preload libraries, separated by colons |
//! | `TERRACE_FOLLOW_EXEC` | `on`, or `off` to run other programs outside the recorder |
//!
//! They are read once, at start: a program that clears its environment is followed all the same. Between `fork` and
//! `exec` nothing may be allocated, so the new argument lists are built in a mapping of their own.

// The programs that the recorder runs are x86-64 ones, and so is what they load.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C library, and so are their names.
#![allow(missing_docs, clippy::missing_safety_doc)]

mod arguments;
mod exec;
mod settings;
mod spawn;

/// Run by the dynamic linker when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = settings::read;

//! Records real programs and checks what comes out. Needs `qemu-x86_64`, a C and a C++ compiler, `rustc`, `python3`,
//! `sqlite3`, `redis-server`, `redis-benchmark`, `oclgrind` with its headers and those of OpenCL; a test whose tool is
//! missing fails and says which.

mod ends;
mod events;
mod filters;
mod namespaces;
mod opencl;
mod opencl_commands;
mod order;
mod outlives;
mod pattern;
mod programs;
mod support;
mod threads;

//! The part of QEMU's plugin interface, version 1, that this plugin uses.
//!
//! Source: the interface's documentation, "QEMU TCG Plugins", of QEMU 7.2. The functions are exported by the QEMU
//! executable that loads the plugin.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The interface version this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Identifies the plugin to QEMU.
pub type PluginId = u64;

/// A translation block while it is translated.
#[repr(C)]
pub struct Block {
    opaque: [u8; 0],
}

/// An instruction of a [`Block`].
#[repr(C)]
pub struct Instruction {
    opaque: [u8; 0],
}

/// What QEMU says of itself at installation.
#[repr(C)]
pub struct Info {
    /// Name of the emulated processor, `x86_64`.
    pub target_name: *const c_char,
    /// Oldest interface version offered.
    pub version_minimum: c_int,
    /// Newest interface version offered.
    pub version_current: c_int,
    /// Whether a whole system is emulated.
    pub system_emulation: bool,
}

/// A callback does not touch registers.
pub const NO_REGISTERS: c_int = 0;
/// Call back for loads only.
pub const READ: c_int = 1;
/// Call back for loads and stores.
pub const READ_WRITE: c_int = 3;

/// Called when a block executes.
pub type ExecuteCallback = extern "C" fn(c_uint, *mut c_void);
/// Called for each load and store: vCPU, what it is, address, user data.
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Called before a system call: plugin, vCPU, number, arguments.
pub type SyscallCallback = extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Called after a system call: plugin, vCPU, number, result.
pub type SyscallReturnCallback = extern "C" fn(PluginId, c_uint, i64, i64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: PluginId, callback: extern "C" fn(PluginId, c_uint));
    pub fn qemu_plugin_register_vcpu_exit_cb(id: PluginId, callback: extern "C" fn(PluginId, c_uint));
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: extern "C" fn(PluginId, *mut Block));
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: ExecuteCallback,
        flags: c_int,
        user_data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: MemoryCallback,
        flags: c_int,
        which: c_int,
        user_data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: SyscallCallback);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: PluginId, callback: SyscallReturnCallback);
    pub fn qemu_plugin_register_atexit_cb(
        id: PluginId,
        callback: extern "C" fn(PluginId, *mut c_void),
        user_data: *mut c_void,
    );
    pub fn qemu_plugin_reset(id: PluginId, callback: extern "C" fn(PluginId));
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

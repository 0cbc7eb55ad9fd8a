//! The functions of OpenCL that are needed, from the library that is there when they are first called.
//!
//! Nothing is linked: a machine without OpenCL runs everything else. An implementation that was loaded before the program,
//! as Oclgrind is, goes before the system's.

use libloading::os::unix::Library;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

/// A platform, a device, a queue, or whatever else OpenCL gives out.
pub type Handle = *mut c_void;

/// The system's loader of drivers.
pub const LIBRARY: &str = "libOpenCL.so.1";

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions, each as the standard declares it.
        #[derive(Debug)]
        pub struct OpenCl {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl OpenCl {
            fn of(library: &Library) -> Result<OpenCl, libloading::Error> {
                Ok(OpenCl {
                    // SAFETY: the types are those of the standard, which every implementation keeps to.
                    $($field: *unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> $result>($name)
                    }?,)*
                })
            }
        }
    };
}

functions! {
    platforms = "clGetPlatformIDs" (u32, *mut Handle, *mut u32) -> i32;
    platform_info = "clGetPlatformInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    devices = "clGetDeviceIDs" (Handle, u64, u32, *mut Handle, *mut u32) -> i32;
    device_info = "clGetDeviceInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    create_context = "clCreateContext"
        (*const isize, u32, *const Handle, *const c_void, *mut c_void, *mut i32) -> Handle;
    release_context = "clReleaseContext" (Handle) -> i32;
    // Deprecated since 2.0, and the only one that all versions have.
    create_queue = "clCreateCommandQueue" (Handle, Handle, u64, *mut i32) -> Handle;
    release_queue = "clReleaseCommandQueue" (Handle) -> i32;
    create_program = "clCreateProgramWithSource"
        (Handle, u32, *const *const c_char, *const usize, *mut i32) -> Handle;
    build_program = "clBuildProgram"
        (Handle, u32, *const Handle, *const c_char, *const c_void, *mut c_void) -> i32;
    build_info = "clGetProgramBuildInfo" (Handle, Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    release_program = "clReleaseProgram" (Handle) -> i32;
    create_kernel = "clCreateKernel" (Handle, *const c_char, *mut i32) -> Handle;
    set_argument = "clSetKernelArg" (Handle, u32, usize, *const c_void) -> i32;
    release_kernel = "clReleaseKernel" (Handle) -> i32;
    create_buffer = "clCreateBuffer" (Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
    release_buffer = "clReleaseMemObject" (Handle) -> i32;
    write_buffer = "clEnqueueWriteBuffer"
        (Handle, Handle, u32, usize, usize, *const c_void, u32, *const Handle, *mut Handle) -> i32;
    read_buffer = "clEnqueueReadBuffer"
        (Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle) -> i32;
    launch = "clEnqueueNDRangeKernel"
        (Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle, *mut Handle) -> i32;
    finish = "clFinish" (Handle) -> i32;
    event_time = "clGetEventProfilingInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    release_event = "clReleaseEvent" (Handle) -> i32;
}

impl OpenCl {
    /// OpenCL, if the machine has it.
    pub fn find() -> Option<&'static OpenCl> {
        static FOUND: OnceLock<Option<OpenCl>> = OnceLock::new();
        let load = || {
            if let Ok(loaded) = OpenCl::of(&Library::this()) {
                return Some(loaded);
            }
            // SAFETY: what runs when the system's library is loaded is the system's own.
            let library = unsafe { Library::new(LIBRARY) }.ok()?;
            let functions = OpenCl::of(&library).ok();
            // Drivers have threads of their own, so that it stays loaded to the end.
            std::mem::forget(library);
            functions
        };
        FOUND.get_or_init(load).as_ref()
    }
}

//! A block on its way from one process to another: its file and its length, in one message of a Unix socket.

use super::{Problem, last_error};
use std::ffi::c_int;
use std::mem::{size_of, zeroed};

/// Words of a control message with room for one descriptor.
const CONTROL: usize = 8;
/// What the message begins with: its kind, and the version of its form.
const MARK: u64 = u64::from_le_bytes(*b"terrvb01");

pub(super) fn send(socket: c_int, file: c_int, bytes: u64) -> Result<(), Problem> {
    let text = [MARK.to_ne_bytes(), bytes.to_ne_bytes()].concat();
    let sent = terrace_handover::send_with(socket, &text, file, 0);
    if sent == text.len() as isize { Ok(()) } else { Err(last_error()) }
}

/// The file and the length. What is no block is closed.
pub(super) fn receive(socket: c_int) -> Result<(c_int, u64), Problem> {
    let mut text = [0u64; 2];
    let mut control = [0u64; CONTROL];
    // SAFETY: The message refers to two words and to a control buffer, which outlive the call; the kernel fills at most
    // what the buffers hold, and headers lie within what it filled.
    unsafe {
        let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: size_of::<[u64; 2]>() };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; CONTROL]>() as _;
        let received = libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if received < 0 {
            return Err(last_error());
        }
        let mut file = None;
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for at in 0..bytes / size_of::<c_int>() {
                    let number = libc::CMSG_DATA(header).cast::<c_int>().add(at).read_unaligned();
                    if let Some(before) = file.replace(number) {
                        libc::close(before);
                    }
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        let whole = received == size_of::<[u64; 2]>() as isize && text[0] == MARK;
        match file {
            Some(file) if whole => Ok((file, text[1])),
            Some(file) => {
                libc::close(file);
                Err(Problem::NoMessage)
            }
            None => Err(Problem::NoMessage),
        }
    }
}

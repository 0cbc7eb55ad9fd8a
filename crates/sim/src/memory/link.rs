//! A serial link in front of a device, such as CXL or UPI.

use super::server::Server;
use crate::design::LinkParameters;
use terrace_model::{LINE_BYTES, Time};

/// One link: each direction is a server whose rate is its bandwidth. Half of the latency is paid each way.
#[derive(Clone, Debug)]
pub struct Link {
    towards_device: Server,
    towards_processor: Server,
    one_way: u64,
    read_line: u64,
    write_line: u64,
    request: u64,
}

impl Link {
    /// A link without traffic. Errors: a direction without bandwidth.
    pub fn new(parameters: &LinkParameters) -> Result<Link, String> {
        let (read, write) = (parameters.read_bandwidth.0, parameters.write_bandwidth.0);
        if read <= 0.0 || write <= 0.0 {
            return Err("a link needs read_bandwidth and write_bandwidth above zero".to_owned());
        }
        let overhead = parameters.packet_overhead.0 as f64;
        let time = |bytes: f64, bandwidth: f64| (bytes * 1e15 / bandwidth).round() as u64;
        Ok(Link {
            towards_device: Server::default(),
            towards_processor: Server::default(),
            one_way: parameters.latency.0 / 2,
            read_line: time(LINE_BYTES as f64 + overhead, read),
            write_line: time(LINE_BYTES as f64 + overhead, write),
            request: time(overhead, write),
        })
    }

    /// Sends a read's request at `now`: when it is at the device. Takes the packet's overhead of the direction away
    /// from the processor.
    #[inline]
    pub fn send_request(&mut self, now: Time) -> Time {
        let wait = self.towards_device.reserve(now.0, self.request);
        Time(now.0 + wait + self.request + self.one_way)
    }

    /// Sends a line to be written at `now`: when it is at the device.
    #[inline]
    pub fn send_line(&mut self, now: Time) -> Time {
        let wait = self.towards_device.reserve(now.0, self.write_line);
        Time(now.0 + wait + self.write_line + self.one_way)
    }

    /// Returns a line that the device had ready at `ready`: when it is at the processor.
    #[inline]
    pub fn return_line(&mut self, ready: Time) -> Time {
        let wait = self.towards_processor.reserve(ready.0, self.read_line);
        Time(ready.0 + wait + self.read_line + self.one_way)
    }
}

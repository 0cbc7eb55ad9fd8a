//! A serial link in front of a device, such as CXL or UPI, or between two nodes.

use super::server::Server;
use serde::{Deserialize, Serialize};
use terrace_model::parameters::Parameters;
use terrace_model::{Bytes, BytesPerSec, LINE_BYTES, Time};

/// A link such as CXL or UPI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct LinkParameters {
    /// Added to every transfer, both directions together.
    #[parameter(range = "0 ns"..="1 s")]
    pub latency: Time,
    /// Towards the processor.
    #[parameter(range = "1 kB/s"..="1000 TB/s")]
    pub read_bandwidth: BytesPerSec,
    /// Away from the processor.
    #[parameter(range = "1 kB/s"..="1000 TB/s")]
    pub write_bandwidth: BytesPerSec,
    /// Bytes of header and protocol per 64-byte line, in the direction of the data. The request of a read takes as many in
    /// the other direction.
    #[parameter(range = "0 B"..="4 KiB")]
    pub packet_overhead: Bytes,
}

impl LinkParameters {
    /// The part of a direction's bandwidth that is left for data.
    pub fn payload(&self, bandwidth: BytesPerSec) -> BytesPerSec {
        let line = LINE_BYTES as f64;
        BytesPerSec(bandwidth.0 * line / (line + self.packet_overhead.0 as f64))
    }

    /// What a read takes on an idle link: the latency, its request there and its line back.
    pub fn idle_read(&self) -> Time {
        let overhead = self.packet_overhead.0 as f64;
        let back = (LINE_BYTES as f64 + overhead) / self.read_bandwidth.0;
        self.latency + Time::from_nanos_f64((overhead / self.write_bandwidth.0 + back) * 1e9)
    }
}

/// How a request goes over a link. Its data come back the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the memory that the link belongs to.
    There,
    /// Away from that memory, to the node on the other side.
    Back,
}

impl Way {
    /// The other way.
    pub const fn opposite(self) -> Way {
        match self {
            Way::There => Way::Back,
            Way::Back => Way::There,
        }
    }
}

/// What one direction carries, and for how long it is busy with each.
#[derive(Clone, Debug)]
struct Direction {
    server: Server,
    line: Time,
    request: Time,
}

/// One link: each direction is a server whose rate is its bandwidth. Half of the latency is paid each way.
#[derive(Clone, Debug)]
pub struct Link {
    directions: [Direction; 2],
    one_way: u64,
}

impl Link {
    /// A link without traffic. Errors: a direction without bandwidth.
    pub fn new(parameters: &LinkParameters) -> Result<Link, String> {
        let (read, write) = (parameters.read_bandwidth.0, parameters.write_bandwidth.0);
        if read <= 0.0 || write <= 0.0 {
            return Err("a link needs read_bandwidth and write_bandwidth above zero".to_owned());
        }
        let overhead = parameters.packet_overhead.0 as f64;
        let time = |bytes: f64, bandwidth: f64| Time((bytes * 1e15 / bandwidth).round() as u64);
        let direction = |bandwidth: f64| Direction {
            server: Server::default(),
            line: time(LINE_BYTES as f64 + overhead, bandwidth),
            request: time(overhead, bandwidth),
        };
        // Lines that are written go there, and those that are read come back.
        Ok(Link { directions: [direction(write), direction(read)], one_way: parameters.latency.0 / 2 })
    }

    /// Sends a read's request at `now`: when it is on the other side. Takes the packet's overhead of its direction.
    #[inline]
    pub fn send_request(&mut self, way: Way, now: Time) -> Time {
        let direction = &mut self.directions[way as usize];
        let wait = direction.server.reserve(now.0, direction.request.0);
        Time(now.0 + wait + direction.request.0 + self.one_way)
    }

    /// Sends a line to be written at `now`: when it is on the other side.
    #[inline]
    pub fn send_line(&mut self, way: Way, now: Time) -> Time {
        let direction = &mut self.directions[way as usize];
        let wait = direction.server.reserve(now.0, direction.line.0);
        Time(now.0 + wait + direction.line.0 + self.one_way)
    }

    /// Returns a line that was ready at `ready` for a request that had gone `way`: when it is at the processor.
    #[inline]
    pub fn return_line(&mut self, way: Way, ready: Time) -> Time {
        self.send_line(way.opposite(), ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_carries_requests_of_both_sides_at_the_rate_of_their_direction() {
        let parameters = LinkParameters {
            latency: "100 ns".parse().unwrap(),
            read_bandwidth: "80 GB/s".parse().unwrap(),
            write_bandwidth: "40 GB/s".parse().unwrap(),
            packet_overhead: "16 B".parse().unwrap(),
        };
        let nanos = |time: Time| time.0 as f64 / 1e6;
        let at = Time(10_000_000);
        let mut link = Link::new(&parameters).unwrap();
        // 16 B at 40 GB/s there, 80 B at 80 GB/s back.
        assert_eq!(nanos(link.send_request(Way::There, at)), 60.4);
        assert_eq!(nanos(link.return_line(Way::There, at)), 61.0);
        assert_eq!(nanos(parameters.idle_read()), 101.4);
        let mut link = Link::new(&parameters).unwrap();
        assert_eq!(nanos(link.send_request(Way::Back, at)), 60.2);
        assert_eq!(nanos(link.return_line(Way::Back, at)), 62.0);
        let mut link = Link::new(&parameters).unwrap();
        assert_eq!(nanos(link.send_line(Way::There, at)), 62.0);
        assert_eq!(nanos(link.send_line(Way::Back, at)), 61.0, "directions do not wait for each other");
    }
}

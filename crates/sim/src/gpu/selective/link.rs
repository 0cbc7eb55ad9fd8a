//! The link between the GPU and the CPU: packets of flits, each direction for itself.
//!
//! A packet is a header of one flit and its data in further flits; a packet without data is its header. So 32 bytes take
//! three flits, 64 take five and 128 take nine: efficiencies of 2/3, 4/5 and 8/9 (Agarwal 2017, table 5.3).

use super::parameters::GpuLinkParameters;
use crate::memory::Server;
use crate::observe::Series;
use terrace_model::Time;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    Cpu,
    Gpu,
}

/// What went in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Headers.
    pub packets: u64,
    /// All flits, headers included.
    pub flits: u64,
    /// Bytes of data.
    pub data: u64,
}

/// The link.
#[derive(Debug)]
pub struct GpuLink {
    directions: [Server; 2],
    pub counters: [LinkCounters; 2],
    one_way: Time,
    flit: u64,
    /// Time of a flit in femtoseconds.
    flit_time: f64,
    /// Bytes of each direction over time.
    pub series: Series,
}

impl GpuLink {
    /// A link without traffic, beside a GPU with this cycle.
    pub fn new(parameters: &GpuLinkParameters, cycle: Time) -> GpuLink {
        GpuLink {
            directions: Default::default(),
            counters: Default::default(),
            one_way: Time(parameters.latency.at(cycle).0 / 2),
            flit: parameters.flit.0,
            series: Series::new(2),
            flit_time: parameters.flit.0 as f64 * 1e15 / parameters.bandwidth.0,
        }
    }

    /// Bytes of a flit.
    pub fn flit(&self) -> u64 {
        self.flit
    }

    /// A packet with so much data is sent at `now`: when it has come.
    pub fn send(&mut self, towards: Towards, data: u64, now: Time) -> Time {
        self.counters[towards as usize].packets += 1;
        self.flits(towards, 1, data, now)
    }

    /// More data for a packet that has not left yet: when it has come.
    pub fn append(&mut self, towards: Towards, data: u64, now: Time) -> Time {
        self.flits(towards, 0, data, now)
    }

    fn flits(&mut self, towards: Towards, header: u64, data: u64, now: Time) -> Time {
        let flits = header + data.div_ceil(self.flit);
        let counters = &mut self.counters[towards as usize];
        counters.flits += flits;
        counters.data += data;
        let service = (flits as f64 * self.flit_time).round() as u64;
        let wait = self.directions[towards as usize].reserve(now.0, service);
        let sent = Time(now.0 + wait + service);
        self.series.add(towards as usize, sent, flits * self.flit);
        sent + self.one_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Cycles;

    const CYCLE: Time = Time(1_000_000);

    fn link() -> GpuLink {
        // A flit takes a nanosecond; 50 ns each way.
        let parameters =
            GpuLinkParameters { bandwidth: "16 GB/s".parse().unwrap(), ..GpuLinkParameters::default() };
        assert_eq!(parameters.latency, Cycles(100.0));
        GpuLink::new(&parameters, CYCLE)
    }

    #[test]
    fn efficiency_is_two_thirds_four_fifths_and_eight_ninths() {
        for (data, flits) in [(0, 1), (32, 3), (64, 5), (96, 7), (128, 9)] {
            let mut link = link();
            assert_eq!(link.send(Towards::Gpu, data, Time::ZERO), Time((50 + flits) * 1_000_000));
            assert_eq!(link.counters[1], LinkCounters { packets: 1, flits, data });
            assert_eq!(link.counters[0], LinkCounters::default());
        }
    }

    #[test]
    fn directions_do_not_wait_for_each_other_and_packets_of_one_do() {
        let mut link = link();
        let nanos = |time: Time| time.0 / 1_000_000;
        assert_eq!(nanos(link.send(Towards::Gpu, 128, Time::ZERO)), 59);
        assert_eq!(nanos(link.send(Towards::Cpu, 0, Time::ZERO)), 51);
        assert_eq!(nanos(link.send(Towards::Gpu, 32, Time::ZERO)), 62);
        assert_eq!(nanos(link.append(Towards::Gpu, 32, Time::ZERO)), 64, "no header");
        assert_eq!(link.counters[1], LinkCounters { packets: 2, flits: 14, data: 192 });
    }
}

//! Enigma: caches named by intermediate addresses, and one large translation cache at the memory controller.
//!
//! **What it does.** A program's addresses become intermediate ones, unique in the system, by segments at the core, which
//! takes no time. Caches are named by them down to the last level. What misses the last level is translated by the
//! controller: a central translation cache (CTC) of 16384 entries, then a page walk.
//!
//! **Source.** Zhang, Speight, Rajamony, Lin, "Enigma: Architectural and Operating System Support for Reducing the Impact of
//! Address Translation", ICS 2010, in the version that Hajinazar et al., "The Virtual Block Interface", ISCA 2020, section
//! 7.1 compare with, "Enigma-HW-2M": walks by hardware instead of by the operating system, and pages of 2 MiB.
//!
//! **Left open, and chosen here.** *Intermediate addresses* are the names that `vivt` gives. *The CTC* has 8 ways and
//! answers as late as the design's level-2 TLB. *When it is asked*: after the last level has missed, since Enigma defers
//! translation until data must come from memory. *Walks* go through the data caches. *Protection* is checked at the core,
//! except that a store to a page that is shared since a fork faults. *Fragmented memory* gives smaller pages, which take
//! entries of their own.

use super::vbi::NoTlbs;
use super::vivt::LineNames;
use crate::os::Os;
use crate::translate::parameters::Associativity;
use crate::translate::tlb::{Tlb, key, split_key};
use crate::translate::{
    Backing, KernelState, LastLevel, Request, SchemeKeys, Setup, Stop, TlbCounters, TlbHit, Translation,
    Walker,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use terrace_model::parameters::Parameters;
use terrace_model::{AddressRange, CacheLine, Line, PageSize, SpaceId, Time, VirtAddr};

/// Parameters of the central translation cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct EnigmaParameters {
    /// Entries of the central translation cache.
    #[parameter(default = 16_384, range = 1..=262_144, source = "VBI (ISCA 2020), section 7.1")]
    pub ctc: u32,
    /// Ways of a set of it; they divide its entries.
    #[parameter(default = 8, range = 1..=262_144)]
    pub ways: u32,
}

impl SchemeKeys for EnigmaParameters {
    fn validate(&self) -> Result<(), (&'static str, String)> {
        if !self.ctc.is_multiple_of(self.ways) {
            return Err((
                "ctc",
                format!("{} entries in {} ways: the ways must divide them", self.ctc, self.ways),
            ));
        }
        Ok(())
    }

    fn scale(&mut self, scale: u32) {
        self.ctc = (self.ctc / scale / self.ways).max(1) * self.ways;
    }
}

/// The controller: names of lines, and the central translation cache.
#[derive(Debug)]
pub struct Central {
    names: LineNames,
    ctc: Tlb,
    counters: TlbCounters,
}

impl Central {
    fn look_up(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        let hit = PageSize::ALL.into_iter().find_map(|size| {
            let (entry, _) = self.ctc.touch(key(space, addr.page_number(size), size))?;
            Some(TlbHit { entry, size })
        })?;
        self.counters.l1_misses[hit.size.index()] += 1;
        self.counters.l2_hits += 1;
        Some(hit)
    }

    fn put(&mut self, space: SpaceId, addr: VirtAddr, hit: TlbHit) {
        self.ctc.insert(key(space, addr.page_number(hit.size), hit.size), hit.entry);
    }
}

impl KernelState for Central {
    fn forget(&mut self, space: SpaceId, range: AddressRange) {
        self.ctc.retain(|key| {
            let (owner, page, size) = split_key(key);
            owner != space || !AddressRange::of_page(VirtAddr::of_page(page, size), size).overlaps(&range)
        });
    }

    #[inline(always)]
    fn virtual_line(&mut self, space: SpaceId, addr: VirtAddr, os: &Os) -> Option<CacheLine> {
        self.names.virtual_line(space, addr, os)
    }

    #[inline(always)]
    fn physical_line(&self, line: Line) -> CacheLine {
        self.names.physical_line(line)
    }

    fn names(&mut self, space: SpaceId, range: AddressRange) -> Option<Vec<Range<CacheLine>>> {
        self.names.names(space, range)
    }

    fn backing(&self, line: CacheLine, os: &Os) -> Backing {
        self.names.backing(line, os)
    }

    fn tlb_counters(&self) -> TlbCounters {
        self.counters
    }
}

/// What a core has: nothing.
#[derive(Debug)]
pub struct Enigma {
    tlbs: NoTlbs,
}

impl Translation for Enigma {
    const NAME: &'static str = "enigma";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[];
    const WALKS: bool = false;
    const VIRTUAL_CACHES: bool = true;
    const LAST_LEVEL: LastLevel = LastLevel::After;
    type Keys = EnigmaParameters;
    type Kernel = Central;
    type Tlbs = NoTlbs;

    fn new(_setup: &Setup<'_, EnigmaParameters>) -> Result<Enigma, String> {
        Ok(Enigma { tlbs: NoTlbs })
    }

    fn kernel(setup: &Setup<'_, EnigmaParameters>) -> Result<Central, String> {
        let ctc = Tlb::new(setup.own.ctc, Associativity::Ways(setup.own.ways))
            .map_err(|e| format!("translation.scheme.ctc: {e}"))?;
        Ok(Central { names: LineNames::default(), ctc, counters: TlbCounters::default() })
    }

    fn tlbs(&self) -> &NoTlbs {
        &self.tlbs
    }

    fn tlbs_mut(&mut self) -> &mut NoTlbs {
        &mut self.tlbs
    }

    fn translate<W: Walker>(
        &mut self,
        kernel: &mut Central,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, write, now } = *request;
        let looked_up = now + walker.l2_tlb_latency();
        if let Some(hit) = kernel.look_up(space, addr) {
            walker.note_lookup("central translation cache: hit", now, looked_up);
            if !write || hit.entry.is_dirty() {
                return Ok((hit, looked_up));
            }
            let (hit, known) = walker.set_dirty(self, kernel, &request.at(looked_up))?;
            kernel.ctc.update(key(space, addr.page_number(hit.size), hit.size), hit.entry);
            return Ok((hit, known));
        }
        let walk = walker.walk(self, kernel, request, looked_up)?;
        walker.note_lookup("central translation cache: miss", now, looked_up);
        let hit = walker.splinter(addr, walk.hit());
        kernel.counters.l1_misses[hit.size.index()] += 1;
        kernel.counters.l2_misses += 1;
        if walk.pte.is_readable_at_once() {
            kernel.put(space, addr, hit);
        }
        Ok((hit, walk.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_and_scaled() {
        let mut keys = EnigmaParameters::default();
        keys.validate().unwrap();
        keys.scale(16);
        assert_eq!((keys.ctc, keys.ways), (1024, 8));
        keys.ctc = 12;
        assert_eq!(keys.validate().unwrap_err().0, "ctc");
    }
}

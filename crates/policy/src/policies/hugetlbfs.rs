//! Static huge pages: 2 MiB or 1 GiB for data, chosen beforehand.
//!
//! **Idea.** Private memory and the heap lie in pages of one size, asked for when they are first touched and never made
//! or taken apart later. Stacks get none: the library that does this (`libhugetlbfs`) cannot map them.
//!
//! **Source.** Linux: `Documentation/admin-guide/mm/hugetlbpage.rst`, `libhugetlbfs(7)`. The baselines 2MB-Hugetlbfs and
//! 1GB-Hugetlbfs of Trident (Ram et al., MICRO 2021).
//!
//! **Left open by the source.** *The size of the pool*: all of memory; what is reserved and not used is not modelled, so a
//! fault fails exactly where the allocator has no block. *What does not fit a page, or finds no block*: base pages, or
//! 2 MiB at the fault with `rest = "thp"`: the released scripts of Trident leave transparent huge pages on beside 1 GiB.
//! *Areas that end within a page*: the rest of the area counts as what does not fit.
//!
//! **When to use it.** Programs whose large data is known beforehand, on machines where its memory can be set aside at
//! boot. The bound of what large pages give, in comparisons.

use crate::support::largest_first;
use crate::{
    AreaKind, Capability, Choice, Fault, MemorySystem, Moment, Needs, NextTick, Parameters, Placement,
    Policy, Published, Refusal, Setup, Signal, Topology,
};
use terrace_model::PageSize;

/// A size of huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Size {
    /// 2 MiB.
    #[default]
    #[choice("2m")]
    Huge,
    /// 1 GiB.
    #[choice("1g")]
    Giant,
}

/// What memory gets that no static page can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Rest {
    /// Base pages.
    #[default]
    Base,
    /// 2 MiB at the fault where it can be had.
    Thp,
}

/// Parameters of static huge pages.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// The size of the pages.
    #[parameter(source = "the source compares both")]
    pub size: Size,
    /// What memory gets that they do not serve.
    pub rest: Rest,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Hugetlbfs {
    size: PageSize,
    rest: Rest,
}

impl Published for Hugetlbfs {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Hugetlbfs, Refusal> {
        let size = match parameters.size {
            Size::Huge => PageSize::Huge,
            Size::Giant => PageSize::Giant,
        };
        let largest = setup.capabilities.largest_page;
        if size > largest {
            return Err(Refusal::Machine(format!("its largest page is {largest}")));
        }
        Ok(Hugetlbfs { size, rest: parameters.rest })
    }
}

impl Policy for Hugetlbfs {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::FaultSizes])
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        let library = matches!(fault.area.kind, AreaKind::Anonymous | AreaKind::HugeTlb);
        let own = library.then_some(self.size);
        let rest = (self.rest == Rest::Thp && own != Some(PageSize::Huge)).then_some(PageSize::Huge);
        let sizes: Vec<PageSize> = own.into_iter().chain(rest).collect();
        largest_first(fault, &sizes, topology)
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[cfg(test)]
mod tests {
    use crate::{Area, AreaKind, Driver, InMemory, Open, PageId, PageRange};
    use terrace_model::{Bytes, PageSize};

    /// Sizes of a page of 1 GiB of heap, of a page behind it, and of a stack.
    fn sizes(parameters: &str) -> [PageSize; 3] {
        let mut world = InMemory::new(&[("dram", Bytes::gib(2))]);
        world.map_anonymous(0, 0, (512 + 1) * 512);
        let range = PageRange::new(PageId::new(0, 1 << 24), 512);
        world.map(Area { range, kind: AreaKind::Stack, writable: true, huge_advice: None, object: None });
        let mut driver = Driver::open("hugetlbfs", parameters, world).unwrap();
        [1000, 512 * 512, 1 << 24].map(|vpn| {
            driver.touch(PageId::new(0, vpn), true);
            driver.world.locate(PageId::new(0, vpn)).unwrap().1
        })
    }

    #[test]
    fn data_gets_the_chosen_size_and_stacks_none() {
        use PageSize::{Base, Giant, Huge};
        assert_eq!(sizes(""), [Huge, Huge, Base]);
        assert_eq!(sizes("size = \"1g\""), [Giant, Base, Base]);
        assert_eq!(sizes("size = \"1g\"\nrest = \"thp\""), [Giant, Huge, Base]);
        assert_eq!(sizes("rest = \"thp\""), [Huge, Huge, Base]);
    }

    #[test]
    fn a_machine_without_1_gib_pages_is_refused() {
        use crate::{Capabilities, CapabilitySet, Published, Setup};
        let capabilities = Capabilities::new(CapabilitySet::NONE, PageSize::Huge);
        let world = InMemory::new(&[("dram", Bytes::gib(1))]);
        let setup = Setup { topology: world.tiers(), capabilities: &capabilities, seed: 1, profile: None };
        let parameters = super::Parameters { size: super::Size::Giant, ..super::Parameters::default() };
        let refusal = super::Hugetlbfs::new(parameters, setup).unwrap_err();
        assert_eq!(refusal.to_string(), "this machine does not fit: its largest page is 2m");
    }
}

//! Data structures by address: who was allocated where, by the events of the input.
//!
//! Policies and profiles that tell structures apart ask here. A structure is known by its allocation site, and a site by a
//! number made of its name, so that it is the same in every run and for every input of a program.

use std::collections::{BTreeMap, HashMap};
use terrace_model::{AddressRange, Ranges, SpaceId, VirtAddr};
use terrace_policy::{Object, PageId, PageRange, site_number};
use terrace_trace::Event;

/// One address space.
#[derive(Clone, Debug, Default)]
struct Space {
    /// Bytes of structures, with the place of the site in the list.
    ranges: Ranges,
    /// Live objects by the input's number.
    live: HashMap<u64, (AddressRange, u32)>,
}

/// A site.
#[derive(Clone, Debug)]
struct Site {
    number: u64,
    name: String,
    /// All that was allocated there, less what objects gave back by shrinking.
    bytes: u64,
}

/// All data structures of the input's programs.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    spaces: Vec<Space>,
    sites: Vec<Site>,
    /// Place in the list by the input's number.
    by_input: HashMap<u32, u32>,
    /// And by name.
    by_name: HashMap<String, u32>,
}

impl Objects {
    /// Takes in an event of a process.
    pub fn apply(&mut self, space: SpaceId, event: &Event) {
        match event {
            Event::Site { site, name } => {
                let place = self.place(name);
                self.by_input.insert(*site, place);
            }
            Event::Alloc { object, site, range } => {
                let place = match self.by_input.get(site) {
                    Some(place) => *place,
                    None => self.place(&format!("site {site}")),
                };
                self.sites[place as usize].bytes += range.bytes;
                let own = self.space(space);
                own.ranges.insert(*range, place);
                own.live.insert(*object, (*range, place));
            }
            Event::Realloc { object, range } => {
                let own = self.space(space);
                if let Some((old, place)) = own.live.insert(*object, (*range, u32::MAX)) {
                    own.ranges.remove(old);
                    own.ranges.insert(*range, place);
                    own.live.insert(*object, (*range, place));
                    let bytes = &mut self.sites[place as usize].bytes;
                    *bytes = (*bytes + range.bytes).saturating_sub(old.bytes);
                } else {
                    own.live.remove(object);
                }
            }
            Event::Free { object } => {
                let own = self.space(space);
                if let Some((range, _)) = own.live.remove(object) {
                    own.ranges.remove(range);
                }
            }
            Event::Unmap { range } => self.space(space).ranges.remove(*range),
            Event::Remap { from, to } => self.space(space).ranges.remap(*from, *to),
            Event::Exec { .. } => *self.space(space) = Space::default(),
            _ => {}
        }
    }

    /// A process was forked from another.
    pub fn forked(&mut self, parent: SpaceId, child: SpaceId) {
        *self.space(child) = self.space(parent).clone();
    }

    /// The structure whose bytes hold `addr`: its range, and its site's place in the list.
    pub fn find(&self, space: SpaceId, addr: VirtAddr) -> Option<(AddressRange, u32)> {
        self.spaces.get(space.index())?.ranges.find(addr)
    }

    /// The structure that holds `addr`, else the one whose bytes are nearest. Looks at all of them.
    pub fn nearest(&self, space: SpaceId, addr: VirtAddr) -> Option<(AddressRange, u32)> {
        let own = self.spaces.get(space.index())?;
        let distance = |range: &AddressRange| match addr < range.start {
            true => range.start - addr,
            false => addr.0.saturating_sub(range.end().0 - 1),
        };
        own.ranges.find(addr).or_else(|| own.ranges.numbered().min_by_key(|(range, _)| distance(range)))
    }

    /// The name of the site at a place in the list.
    pub fn name(&self, place: u32) -> &str {
        self.sites.get(place as usize).map_or("", |site| site.name.as_str())
    }

    /// The structure of a page: the one that holds its middle byte, else its first.
    pub fn of_page(&self, page: PageId) -> Option<Object> {
        let addr = page.addr();
        let (range, place) = self.find(page.space, addr + 2048).or_else(|| self.find(page.space, addr))?;
        let first = PageId { vpn: range.start.vpn(), ..page };
        let pages = range.end().0.div_ceil(4096) - first.vpn;
        Some(Object { site: self.sites[place as usize].number, range: PageRange { first, pages } })
    }

    /// Bytes of all structures of a process, by address.
    pub fn ranges(&self, space: SpaceId) -> Vec<AddressRange> {
        self.spaces.get(space.index()).into_iter().flat_map(|own| own.ranges.iter()).collect()
    }

    /// Bytes of all structures that live, with their site's number, by process and address.
    pub fn all(&self) -> impl Iterator<Item = (SpaceId, AddressRange, u64)> {
        self.spaces.iter().enumerate().flat_map(move |(space, own)| {
            let space = SpaceId(space as u32);
            own.ranges.numbered().map(move |(range, place)| (space, range, self.sites[place as usize].number))
        })
    }

    /// Number, name and bytes of all sites so far, in the order of their places.
    pub fn sites(&self) -> impl Iterator<Item = (u64, &str, u64)> {
        self.sites.iter().map(|site| (site.number, site.name.as_str(), site.bytes))
    }

    /// Bytes allocated at each site, and names, as a profile has them.
    pub fn names(&self) -> BTreeMap<u64, String> {
        self.sites.iter().map(|site| (site.number, site.name.clone())).collect()
    }

    fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.by_name.get(name) {
            return *place;
        }
        let place = self.sites.len() as u32;
        self.sites.push(Site { number: site_number(name), name: name.to_owned(), bytes: 0 });
        self.by_name.insert(name.to_owned(), place);
        place
    }

    fn space(&mut self, space: SpaceId) -> &mut Space {
        let at = space.index();
        if self.spaces.len() <= at {
            self.spaces.resize_with(at + 1, Space::default);
        }
        &mut self.spaces[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_found_by_bytes_and_by_pages() {
        let mut objects = Objects::default();
        let mut apply = |event| objects.apply(SpaceId(0), &event);
        apply(Event::Site { site: 7, name: "grid".to_owned() });
        apply(Event::Alloc { object: 1, site: 7, range: AddressRange::new(0x1000, 0x2400) });
        apply(Event::Alloc { object: 2, site: 9, range: AddressRange::new(0x3400, 0x800) });
        let grid = PageRange { first: PageId::new(0, 1), pages: 3 };
        let found = |vpn| objects.of_page(PageId::new(0, vpn));
        assert_eq!(found(1), Some(Object { site: site_number("grid"), range: grid }));
        assert_eq!(found(3).unwrap().site, site_number("site 9"), "it has the page's middle");
        assert_eq!(found(4), None);
        assert_eq!(objects.find(SpaceId(0), VirtAddr(0x33ff)).unwrap().1, 0);
        assert_eq!(objects.find(SpaceId(0), VirtAddr(0x3400)).unwrap().1, 1);
        assert_eq!(objects.find(SpaceId(0), VirtAddr(0x3c00)), None);
        assert_eq!(objects.find(SpaceId(1), VirtAddr(0x1000)), None);
        let nearest =
            |addr| objects.nearest(SpaceId(0), VirtAddr(addr)).map(|(_, place)| objects.name(place));
        assert_eq!(
            [0xfff, 0x33ff, 0x3400, 0x9000].map(nearest),
            ["grid", "grid", "site 9", "site 9"].map(Some)
        );
        objects.forked(SpaceId(0), SpaceId(1));
        objects.apply(SpaceId(0), &Event::Free { object: 1 });
        objects.apply(SpaceId(0), &Event::Realloc { object: 2, range: AddressRange::new(0x8000, 0x1000) });
        objects.apply(SpaceId(0), &Event::Realloc { object: 5, range: AddressRange::new(0x9000, 0x1000) });
        assert_eq!(
            [0x1000, 0x3400, 0x8000, 0x9000].map(|addr| objects.find(SpaceId(0), VirtAddr(addr)).is_some()),
            [false, false, true, false]
        );
        assert!(objects.find(SpaceId(1), VirtAddr(0x1000)).is_some());
        let sites: Vec<_> = objects.sites().map(|(_, name, bytes)| (name.to_owned(), bytes)).collect();
        assert_eq!(sites, [("grid".to_owned(), 0x2400), ("site 9".to_owned(), 0x1000)]);
    }
}

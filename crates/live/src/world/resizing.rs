//! Splits and collapses.

use super::World;
use super::orders::outcome_of_call;
use crate::kernel::Advice;
use crate::space::bytes_of;
use terrace_model::PageSize;
use terrace_policy::{Outcome, Resize};

impl World {
    /// Splits by advice for a part of the page, which the kernel can give only to base pages; joins by collapse.
    pub(super) fn resize_page(&mut self, order: Resize) -> Outcome {
        let Some((size, state)) = self.state(order.page) else { return Outcome::Gone };
        if !state.is_resident() {
            return Outcome::Gone;
        }
        if size == order.to {
            return Outcome::Done;
        }
        if self.tiers.compressed().is_some() {
            return self.resize_cluster(order);
        }
        let (advice, range, pages) = match order.to {
            PageSize::Base if size == PageSize::Huge => {
                let page = order.page.aligned(size);
                (Advice::Cold, (page.vpn << 12, 4096), page.vpn..page.vpn + size.base_pages())
            }
            PageSize::Huge if order.page.is_aligned(PageSize::Huge) => {
                let vpn = order.page.vpn;
                (Advice::Collapse, bytes_of(vpn, PageSize::Huge), vpn..vpn + PageSize::Huge.base_pages())
            }
            _ => return Outcome::Unsupported,
        };
        let Some(space) = self.spaces.get_mut(&order.page.space) else { return Outcome::Gone };
        space.rest_at(pages.start);
        let began = self.kernel.cpu_time();
        let advised = self.kernel.advise(&space.process, &[range], advice);
        let took = self.kernel.cpu_time().saturating_sub(began);
        match order.to {
            PageSize::Base => self.costs.split(took),
            _ => self.costs.collapsed(took),
        }
        if advised.is_ok() {
            let shown = if order.to == PageSize::Base { pages.end } else { pages.start + 1 };
            space.show(&*self.kernel, pages.start..shown);
        }
        if let Err(error) = advised.and_then(|_| space.look_at(&*self.kernel, &self.tiers, pages)) {
            return outcome_of_call(&error);
        }
        if space.pages.get(order.page.vpn).is_some_and(|(page, _)| page.size == order.to) {
            match order.to {
                PageSize::Base => self.counters.split += 1,
                _ => self.counters.collapsed += 1,
            }
            Outcome::Done
        } else {
            Outcome::Busy
        }
    }

    /// Where 2 MiB of address space count as one page, splitting and joining is only a matter of how they are looked at.
    fn resize_cluster(&mut self, order: Resize) -> Outcome {
        let Some(space) = self.spaces.get_mut(&order.page.space) else { return Outcome::Gone };
        let (first, pages) = (order.page.aligned(PageSize::Huge).vpn, PageSize::Huge.base_pages());
        match order.to {
            PageSize::Base => {
                self.costs.divided();
                space.split.insert(first / pages)
            }
            PageSize::Huge => space.split.remove(&(first / pages)),
            PageSize::Giant => return Outcome::Unsupported,
        };
        if let Err(error) = space.look_at(&*self.kernel, &self.tiers, first..first + pages) {
            return outcome_of_call(&error);
        }
        match space.pages.get(first) {
            Some((page, _)) if page.size == order.to => Outcome::Done,
            // The page's mapping has ended or shrunk.
            _ => Outcome::Gone,
        }
    }
}

//! Pages of 1 GiB that programs with `libterrace.so` have added to the kernel's pool and did not give back.

use super::{Change, GIANT_PAGES, Growing, Undone};
use crate::kernel::{Kernel, read_text};
use std::io;

fn size(kernel: &dyn Kernel) -> io::Result<u64> {
    read_text(kernel, GIANT_PAGES)?.trim().parse().map_err(io::Error::other)
}

/// Counts what came of growths that their programs did not finish. Nobody has changed the pool since, for whoever does
/// settles them first.
pub(super) fn settle<'a>(kernel: &dyn Kernel, changes: impl Iterator<Item = &'a mut Change>) {
    for change in changes {
        if let Change::Pool { pages, growing } = change
            && let Some(Growing { from, by }) = *growing
            && let Ok(now) = size(kernel)
        {
            *pages += now.saturating_sub(from).min(by);
            *growing = None;
        }
    }
}

/// Takes so many pages out of the pool. One that was made smaller than that since is the administrator's.
pub(super) fn undo(kernel: &dyn Kernel, pages: u64) -> io::Result<Undone> {
    let now = match size(kernel) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Undone::Left(format!("{GIANT_PAGES} is no longer there")));
        }
        now => now?,
    };
    let Some(left) = now.checked_sub(pages) else {
        return Ok(Undone::Left(format!(
            "{GIANT_PAGES} is {now} now, less than the {pages} pages that Terrace had added: left alone"
        )));
    };
    kernel.write(GIANT_PAGES.as_ref(), &left.to_string())?;
    Ok(Undone::Back(format!("{GIANT_PAGES} is {left} again, {pages} less")))
}

//! Results on disk as one page in a browser: all sets under some folders, filters, differences, data structures and their
//! addresses over time. Served on this machine alone, or written as one file.
//!
//! Of a running engine the page shows what its socket says ([`Live`]), and passes on the wish to pause or resume.
//!
//! A [`Library`] finds results and reads them; it keeps what each file says in short, and reads a file again only when it
//! has changed. A [`Viewer`] serves the library to a browser; [`export`] writes it as one page. What the page shows it takes
//! from the documents themselves.

mod answers;
mod document;
mod export;
mod field;
mod find;
mod kept;
mod library;
mod live;
mod server;
mod set;

pub use export::export;
pub use library::{Error, Library};
pub use live::Live;
pub use server::Viewer;
pub use set::{Catalog, Kind, Problem, RunRow, Set};

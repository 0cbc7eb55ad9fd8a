//! A running engine, as its socket shows it.

use axum::response::sse::Event;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_live::map::MemoryMap;
use terrace_live::server;
use terrace_live::status::Status;
use terrace_model::Thinned;
use tokio::sync::watch;

/// New numbers come so often; the engine makes none more often.
const EVERY: Duration = Duration::from_secs(1);
/// A map costs the engine a walk over all pages.
const MAP_EVERY: Duration = Duration::from_secs(2);

/// An engine to show: its socket, and what tiers cost.
#[derive(Debug)]
pub struct Live {
    socket: PathBuf,
    prices: BTreeMap<String, f64>,
    /// The run as far as it was seen, for pages that are opened later.
    history: Mutex<Thinned<Moment>>,
    /// Pages that are open.
    pages: AtomicUsize,
}

/// A page that is open.
pub struct Page(Arc<Live>);

impl Page {
    /// As long as it lives the engine is asked for maps.
    pub fn open(live: &Arc<Live>) -> Page {
        live.pages.fetch_add(1, Ordering::Relaxed);
        Page(live.clone())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.0.pages.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The engine at one moment.
#[derive(Clone, Debug, Serialize)]
struct Moment {
    seconds: f64,
    used: BTreeMap<String, u64>,
    promoted: u64,
    demoted: u64,
}

/// What the engine has last said.
#[derive(Clone, Debug, Default)]
pub struct Updates {
    status: Option<Arc<Status>>,
    map: Option<Arc<MemoryMap>>,
    /// Why nothing newer comes.
    gone: Option<String>,
}

impl Updates {
    /// As it is sent to a page.
    pub fn events(&self) -> Vec<Event> {
        let of = |name: &str, text: String| Event::default().event(name).data(text);
        let json = |value: serde_json::Result<String>| value.expect("plain data always serializes");
        let status = self.status.as_deref().map(|status| of("status", json(serde_json::to_string(status))));
        let map = self.map.as_deref().map(|map| of("map", json(serde_json::to_string(map))));
        let gone = self.gone.as_ref().map(|why| of("gone", json(serde_json::to_string(why))));
        status.into_iter().chain(map).chain(gone).collect()
    }
}

impl Live {
    /// The engine behind a socket. `prices` are of a tier's memory, where the fastest tier's is 1; `slow` stands for all
    /// tiers but the fastest.
    ///
    /// # Errors
    /// Nobody answers there, or somebody who is no Terrace.
    pub fn connect(socket: PathBuf, prices: &[(String, f64)]) -> io::Result<Live> {
        match server::status(&socket) {
            Ok(_) => {}
            // The engine has just begun.
            Err(error) if error.to_string().contains("ask again") => {}
            Err(error) => return Err(error),
        }
        let (history, pages) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Live { socket, prices: prices.iter().cloned().collect(), history, pages })
    }

    /// What a page needs before its first event.
    pub fn beginning(&self) -> String {
        #[derive(Serialize)]
        struct Beginning<'a> {
            prices: &'a BTreeMap<String, f64>,
            history: &'a [Moment],
        }
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let beginning = Beginning { prices: &self.prices, history: history.points() };
        serde_json::to_string(&beginning).expect("plain data with string keys always serializes")
    }

    /// Passes a wish on.
    ///
    /// # Errors
    /// The engine has ended, or does not take the wish.
    pub fn ask(&self, wish: &str) -> io::Result<String> {
        server::ask(&self.socket, "POST", wish)
    }

    /// Asks the engine again and again until `stop` is set or no server listens; maps only while a page is open.
    pub fn follow(&self, tell: &watch::Sender<Updates>, stop: &AtomicBool) {
        let mut next_map = Instant::now();
        while !stop.load(Ordering::Relaxed) && !tell.is_closed() {
            let mut updates = tell.borrow().clone();
            match server::status(&self.socket) {
                Ok(status) => {
                    self.remember(&status);
                    (updates.status, updates.gone) = (Some(Arc::new(status)), None);
                }
                Err(error) => updates.gone = Some(error.to_string()),
            }
            let is_seen = self.pages.load(Ordering::Relaxed) > 0;
            if updates.gone.is_none() && is_seen && Instant::now() >= next_map {
                next_map = Instant::now() + MAP_EVERY;
                let map = server::ask(&self.socket, "GET", "/map").ok();
                let map = map.and_then(|text| serde_json::from_str::<MemoryMap>(&text).ok());
                updates.map = map.map(Arc::new).or(updates.map);
            }
            tell.send_replace(updates);
            std::thread::sleep(EVERY);
        }
    }

    fn remember(&self, status: &Status) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).add(|| Moment {
            seconds: status.run_seconds,
            used: status.tiers.iter().map(|tier| (tier.name.clone(), tier.used)).collect(),
            promoted: status.moves.promoted,
            demoted: status.moves.demoted,
        });
    }
}

//! The page for a browser on this machine.
//!
//! It listens on loopback alone. Other users of the machine, and pages of other sites in the same browser, can reach
//! a port of loopback too: every path begins with a token that only the printed address has, and `guard` refuses requests
//! that a page of another site has sent.

mod answers;
mod guard;
mod token;

pub use token::Token;

use crate::library::Library;
use crate::live::{Live, Updates};
use axum::Router;
use axum::routing::{get, post};
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How often folders are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a wish to stop is noticed.
const STOP: Duration = Duration::from_millis(100);
/// Requests that are answered at a time. Those that last, one for each open page, count.
const CONNECTIONS: usize = 64;

/// Serves a library until it is stopped.
#[derive(Debug)]
pub struct Viewer {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
    library: Arc<Mutex<Library>>,
    live: Option<Arc<Live>>,
}

/// What all requests share.
#[derive(Clone)]
struct Shared {
    address: SocketAddr,
    token: Arc<Token>,
    library: Arc<Mutex<Library>>,
    /// How often the library has changed.
    changes: watch::Receiver<u64>,
    live: Option<Arc<Live>>,
    /// What the engine has last said.
    updates: watch::Receiver<Updates>,
    open: Arc<tokio::sync::Semaphore>,
}

impl Viewer {
    /// Listens on loopback at `port`; 0 stands for one that is free. `live` is the engine to show.
    ///
    /// # Errors
    /// A port that is taken, a system without random numbers.
    pub fn bind(library: Library, live: Option<Live>, port: u16) -> io::Result<Viewer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (library, live) = (Arc::new(Mutex::new(library)), live.map(Arc::new));
        Ok(Viewer { listener, address, token: Token::random()?, library, live })
    }

    /// The address to open. Whoever knows it may see all that the page shows.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.token.text())
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// A system that gives no thread or no event queue.
    pub fn serve(self, stop: &Arc<AtomicBool>) -> io::Result<()> {
        let (changed, changes) = watch::channel(0);
        let (library, asked) = (self.library.clone(), stop.clone());
        // Files are read beside the server, so that a slow disk holds up no page.
        std::thread::Builder::new().name("look".to_owned()).spawn(move || {
            while !asked.load(Ordering::Relaxed) && !changed.is_closed() {
                std::thread::sleep(LOOK);
                if lock(&library).look() {
                    changed.send_modify(|count| *count += 1);
                }
            }
        })?;
        let (tell, updates) = watch::channel(Updates::default());
        if let Some(live) = self.live.clone() {
            let asked = stop.clone();
            std::thread::Builder::new().name("live".to_owned()).spawn(move || live.follow(&tell, &asked))?;
        }
        let shared = Shared {
            address: self.address,
            token: Arc::new(self.token),
            library: self.library,
            changes,
            live: self.live,
            updates,
            open: Arc::new(tokio::sync::Semaphore::new(CONNECTIONS)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let served = axum::serve(listener, router(shared)).into_future();
            let stopped = async {
                while !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep(STOP).await;
                }
                Ok(())
            };
            // A page that is open would keep the server for ever: what is under way ends with it.
            either(served, stopped).await
        })
    }
}

/// Whichever ends first.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (one, other) = (std::pin::pin!(one), std::pin::pin!(other));
    futures_util::future::select(one, other).await.factor_first().0
}

fn lock(library: &Mutex<Library>) -> std::sync::MutexGuard<'_, Library> {
    library.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/{token}/", get(answers::page))
        .route("/{token}/view.js", get(answers::script))
        .route("/{token}/view.css", get(answers::style))
        .route("/{token}/catalog", get(answers::catalog))
        .route("/{token}/set/{id}", get(answers::set))
        .route("/{token}/live", get(answers::live))
        .route("/{token}/pause", post(answers::pause))
        .route("/{token}/resume", post(answers::resume))
        .route("/{token}/events", get(answers::events))
        .fallback(answers::nothing)
        .method_not_allowed_fallback(answers::wrong_method)
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::guard))
        .with_state(shared)
}

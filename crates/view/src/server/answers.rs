//! What the page asks for.

use super::{Shared, lock};
use crate::library::Library;
use crate::live::Page;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use std::convert::Infallible;
use terrace_report::view_page;

const JSON: &str = "application/json";

fn of(kind: &'static str, text: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, kind)], text.into()).into_response()
}

/// A refusal in words.
pub fn refuse(status: StatusCode, why: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{why}\n")).into_response()
}

pub async fn page() -> Response {
    of("text/html; charset=utf-8", view_page::SERVED)
}

pub async fn script() -> Response {
    of("text/javascript; charset=utf-8", view_page::SCRIPT)
}

pub async fn style() -> Response {
    of("text/css; charset=utf-8", view_page::STYLE)
}

pub async fn nothing() -> Response {
    refuse(StatusCode::NOT_FOUND, "nothing here")
}

pub async fn wrong_method() -> Response {
    refuse(StatusCode::METHOD_NOT_ALLOWED, "all is read with GET; pause and resume are asked for with POST")
}

/// Reads the library beside the server: whoever looks at folders may hold it for a while.
async fn from_library<T: Send + 'static>(
    shared: Shared,
    read: impl FnOnce(&Library) -> T + Send + 'static,
) -> Result<T, Response> {
    let read = tokio::task::spawn_blocking(move || read(&lock(&shared.library))).await;
    read.map_err(|_| refuse(StatusCode::INTERNAL_SERVER_ERROR, "the results could not be read"))
}

pub async fn catalog(State(shared): State<Shared>) -> Result<Response, Response> {
    let text = from_library(shared, |library| serde_json::to_string(library.catalog())).await?;
    Ok(of(JSON, text.expect("plain data with string keys always serializes")))
}

/// The document of a set. Sets are asked for by number: no request names a file.
pub async fn set(
    State(shared): State<Shared>,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, Response> {
    let id = id.parse();
    let id =
        id.map_err(|_| refuse(StatusCode::NOT_FOUND, "sets of results are asked for by their numbers"))?;
    match from_library(shared, move |library| library.document(id)).await? {
        Some(Ok(text)) => Ok(of(JSON, text)),
        Some(Err(message)) => Err(refuse(StatusCode::GONE, &message)),
        None => Err(refuse(StatusCode::NOT_FOUND, "no set of results has this number now")),
    }
}

/// What the page must know of an engine before its first event; null where there is none.
pub async fn live(State(shared): State<Shared>) -> Response {
    let text = shared.live.as_ref().map(|live| live.beginning());
    of(JSON, text.unwrap_or_else(|| "null".to_owned()))
}

pub async fn pause(State(shared): State<Shared>) -> Result<Response, Response> {
    pass_on(shared, "/pause").await
}

pub async fn resume(State(shared): State<Shared>) -> Result<Response, Response> {
    pass_on(shared, "/resume").await
}

/// A wish for the engine. Whether this user may have it, the engine's socket decides.
async fn pass_on(shared: Shared, wish: &'static str) -> Result<Response, Response> {
    let Some(live) = shared.live else {
        return Err(refuse(StatusCode::NOT_FOUND, "no running Terrace is shown here"));
    };
    match tokio::task::spawn_blocking(move || live.ask(wish)).await {
        Ok(Ok(answer)) => Ok(of("text/plain; charset=utf-8", answer)),
        Ok(Err(error)) => Err(refuse(StatusCode::BAD_GATEWAY, &error.to_string())),
        Err(_) => Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, "the engine could not be asked")),
    }
}

/// Tells a page when to ask for results again, and what the engine does.
pub async fn events(State(shared): State<Shared>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = stream::unfold((shared.changes, true), |(mut changes, is_first)| async move {
        // The first event says that the connection is there: what changed while it was not is asked for then.
        if !is_first {
            changes.changed().await.ok()?;
        }
        let count = *changes.borrow_and_update();
        Some((Event::default().event("catalog").data(count.to_string()), (changes, false)))
    });
    // Without an engine, and after its end, a page still gets changes of folders.
    let page = shared.live.as_ref().map(Page::open);
    let updates = stream::unfold((shared.updates, page, true), |(mut updates, page, is_first)| async move {
        if page.is_none() || (!is_first && updates.changed().await.is_err()) {
            return std::future::pending().await;
        }
        let events = updates.borrow_and_update().events();
        Some((stream::iter(events), (updates, page, false)))
    })
    .flatten();
    Sse::new(stream::select(changes, updates).map(Ok)).keep_alive(KeepAlive::default())
}

//! The check of who may ask: a browser with the address that was printed, from the page itself.

use super::Shared;
use super::answers::refuse;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::SocketAddr;

/// A page may load its own script and style, and ask its own server. Nothing else, in either direction.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // The address is the secret.
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Lets a request through, or refuses it without a look at what it asks for.
pub async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut answer = match refusal(&shared, &request) {
        Some((status, why)) => refuse(status, why),
        None => match shared.open.clone().try_acquire_owned() {
            Ok(permit) => held(next.run(request).await, permit),
            Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open; close one"),
        },
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The answer, which keeps its permit until its last byte is sent or its page is closed.
fn held(answer: Response, permit: tokio::sync::OwnedSemaphorePermit) -> Response {
    use futures_util::StreamExt;
    let (parts, body) = answer.into_parts();
    let stream = body.into_data_stream().map(move |part| {
        let _held = &permit;
        part
    });
    Response::from_parts(parts, axum::body::Body::from_stream(stream))
}

fn refusal(shared: &Shared, request: &Request) -> Option<(StatusCode, &'static str)> {
    // A name that a foreign site's owner points at 127.0.0.1 makes that site's pages ask here; their Host is that name.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if request.uri().host().is_some() || !host.is_some_and(|host| is_own(host, shared.address)) {
        return Some((StatusCode::MISDIRECTED_REQUEST, "this is served at 127.0.0.1 alone"));
    }
    if !is_from_here(request.headers(), shared.address) {
        return Some((StatusCode::FORBIDDEN, "a page of another site may not ask this"));
    }
    let token = request.uri().path().split('/').nth(1).unwrap_or_default();
    let is_known = shared.token.is(token);
    (!is_known).then_some((
        StatusCode::FORBIDDEN,
        "open the address that `terrace view` has printed, with all that stands behind the last colon",
    ))
}

/// Whether a host with its port is this server by a name that cannot be anyone else's.
fn is_own(host: &str, address: SocketAddr) -> bool {
    let port = address.port();
    [format!("127.0.0.1:{port}"), format!("localhost:{port}")]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(host))
}

/// Whether a request comes from the page itself or was typed by the user, as far as the browser says where it comes from.
fn is_from_here(headers: &HeaderMap, address: SocketAddr) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text("origin")
        .is_none_or(|origin| origin.strip_prefix("http://").is_some_and(|host| is_own(host, address)));
    let site = text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    // A link elsewhere that the user follows is a navigation to the page, and has the token or is refused for that.
    let is_navigation =
        text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
    origin && (site || is_navigation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let address: SocketAddr = "127.0.0.1:8137".parse().unwrap();
        for own in ["127.0.0.1:8137", "localhost:8137", "LOCALHOST:8137"] {
            assert!(is_own(own, address), "{own}");
        }
        for foreign in ["127.0.0.1", "127.0.0.1:8138", "evil.example:8137", "localhost.evil.example:8137", ""]
        {
            assert!(!is_own(foreign, address), "{foreign}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_recognized_by_what_their_browser_says() {
        let address: SocketAddr = "127.0.0.1:8137".parse().unwrap();
        let from = |headers: &[(&'static str, &'static str)]| {
            let pairs = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_from_here(&pairs.collect(), address)
        };
        assert!(from(&[]), "curl");
        assert!(from(&[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:8137")]));
        assert!(from(&[
            ("sec-fetch-site", "none"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document")
        ]));
        assert!(from(&[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document")
        ]));
        assert!(!from(&[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe")
        ]));
        assert!(!from(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]));
        assert!(!from(&[("sec-fetch-site", "same-site")]), "another port of this machine");
        for origin in ["http://evil.example", "null", "https://127.0.0.1:8137", "http://127.0.0.1:8138"] {
            assert!(!from(&[("origin", origin)]), "{origin}");
        }
    }
}

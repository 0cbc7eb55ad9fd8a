//! The server as those see it who should not get anything, and as the page does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_live::control::Control;
use terrace_live::server::Server;
use terrace_live::status::{Board, Status};
use terrace_view::{Library, Live, Viewer};

const RESULTS: &str = "{\"schema\": 2, \"runs\": [], \"title\": \"none\"}";

/// A page of folders, and of an engine where there is one.
struct Bench {
    folder: tempfile::TempDir,
    address: String,
    token: String,
    stop: Arc<AtomicBool>,
    served: Option<std::thread::JoinHandle<()>>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(None)
    }

    fn with(live: Option<Live>) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("results.json"), RESULTS).unwrap();
        let viewer = Viewer::bind(Library::open(vec![folder.path().to_owned()]).unwrap(), live, 0).unwrap();
        let url = viewer.url();
        let (address, rest) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (address, token) = (address.to_owned(), rest.trim_end_matches('/').to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let served = std::thread::spawn(move || viewer.serve(&asked).unwrap());
        Bench { folder, address, token, stop, served: Some(served) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Whatever comes back for these bytes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// A request of one line, and more lines of its head.
    fn ask(&self, request: &str, head: &str) -> String {
        self.raw(format!("{request} HTTP/1.1\r\nConnection: close\r\n{head}\r\n").as_bytes())
    }

    /// As the page itself asks.
    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET /{}/{path}", self.token), &format!("Host: {}\r\n", self.address))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.served.take().unwrap().join().unwrap();
    }
}

fn status(answer: &str) -> u32 {
    answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default()
}

#[test]
fn the_page_and_what_it_asks_for_are_there_under_the_token() {
    let bench = Bench::new();
    for (path, kind, part) in [
        ("", "text/html", "<script src=\"view.js\">"),
        ("view.js", "text/javascript", "use strict"),
        ("view.css", "text/css", "--surface"),
        ("catalog", "application/json", "\"title\":\"none\""),
        ("set/0", "application/json", RESULTS),
    ] {
        let answer = bench.get(path);
        assert_eq!(status(&answer), 200, "{path}: {answer}");
        assert!(answer.contains(&format!("content-type: {kind}")), "{path}");
        assert!(answer.contains(part), "{path}");
    }
}

#[test]
fn nothing_is_shown_without_the_token() {
    let bench = Bench::new();
    let host = format!("Host: {}\r\n", bench.address);
    let mut wrong = bench.token.clone();
    wrong.replace_range(31.., if wrong.ends_with('0') { "1" } else { "0" });
    let short = &bench.token[..31];
    for path in [
        "",
        "x",
        "catalog",
        "view.js",
        &format!("{wrong}/catalog"),
        &format!("{short}/"),
        &format!("{}0/", bench.token),
        &format!("/{}/catalog", bench.token),
        &format!("?{}", bench.token),
    ] {
        let answer = bench.ask(&format!("GET /{path}"), &host);
        assert_eq!(status(&answer), 403, "{path}: {answer}");
        assert!(!answer.contains("title") && !answer.contains(&bench.token), "{path}: {answer}");
    }
}

#[test]
fn names_that_others_point_here_are_refused() {
    let bench = Bench::new();
    let port = bench.address.rsplit(':').next().unwrap();
    let path = format!("GET /{}/catalog", bench.token);
    assert_eq!(status(&bench.ask(&path, &format!("Host: localhost:{port}\r\n"))), 200);
    for host in [
        "evil.example",
        "127.0.0.1",
        &format!("evil.example:{port}"),
        &format!("127.0.0.1.evil.example:{port}"),
        "127.0.0.1:1",
        "",
    ] {
        let answer = bench.ask(&path, &format!("Host: {host}\r\n"));
        assert!([400, 421].contains(&status(&answer)), "{host}: {answer}");
    }
    assert_eq!(status(&bench.ask(&path, "")), 421, "no host at all");
    // A proxy's form, whose host is in the first line.
    let absolute = format!("GET http://evil.example/{}/catalog", bench.token);
    assert_eq!(status(&bench.ask(&absolute, &format!("Host: {}\r\n", bench.address))), 421);
}

#[test]
fn pages_of_other_sites_are_refused_and_no_answer_may_be_shared() {
    let bench = Bench::new();
    let path = format!("GET /{}/catalog", bench.token);
    let host = format!("Host: {}\r\n", bench.address);
    for from in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        let answer = bench.ask(&path, &format!("{host}{from}"));
        assert_eq!(status(&answer), 403, "{from}: {answer}");
    }
    for answer in [
        bench.get("catalog"),
        bench.get(""),
        bench.get("nothing"),
        bench.ask("GET /", &host),
        bench.ask(&path, "Host: evil.example\r\n"),
    ] {
        let answer = answer.to_ascii_lowercase();
        assert!(!answer.contains("access-control-"), "{answer}");
        for line in [
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "x-frame-options: deny",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.contains(line), "no {line} in {answer}");
        }
        let policy = answer.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
}

#[test]
fn what_is_not_there_and_what_is_no_request_gets_an_answer_in_words() {
    let bench = Bench::new();
    for path in [
        "nothing",
        "set/",
        "set/1",
        "set/x",
        "set/-1",
        "set/99999999999999999999",
        "set/../../etc/passwd",
        "set/..%2f..%2fetc%2fpasswd",
        "catalog/",
    ] {
        assert_eq!(status(&bench.get(path)), 404, "{path}: {}", bench.get(path));
    }
    let host = format!("Host: {}\r\n", bench.address);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(status(&bench.ask(&format!("{method} /{}/catalog", bench.token), &host)), 405, "{method}");
    }
    for bytes in [&b"hello\r\n\r\n"[..], b"\xff\xfe \0 \0\r\n\r\n", b"GET\r\n\r\n", &vec![b'x'; 1 << 20]] {
        let answer = bench.raw(bytes);
        assert!(answer.is_empty() || status(&answer) >= 400, "{answer}");
    }
    assert_eq!(status(&bench.get("catalog")), 200, "it still serves");
}

#[test]
fn a_page_is_sent_new_results() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    let request = format!("GET /{}/events HTTP/1.1\r\nHost: {}\r\n\r\n", bench.token, bench.address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut received = String::new();
    let mut wait_for = |what: &str| {
        let mut bytes = [0; 4096];
        while !received.contains(what) {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the connection ended after {received:?}");
            received += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    wait_for("content-type: text/event-stream");
    wait_for("event: catalog\ndata: 0\n\n");
    add(bench.folder.path());
    wait_for("event: catalog\ndata: 1\n\n");
    assert!(bench.get("catalog").contains("added"));
}

fn add(folder: &Path) {
    std::fs::write(folder.join("more.json"), RESULTS.replace("none", "added")).unwrap();
}

#[test]
fn an_open_page_keeps_no_server_from_ending() {
    let bench = Bench::new();
    let mut stream = bench.connect();
    let request = format!("GET /{}/events HTTP/1.1\r\nHost: {}\r\n\r\n", bench.token, bench.address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 64];
    stream.read_exact(&mut first).unwrap();
    drop(bench);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}

#[test]
fn a_taken_port_is_an_error() {
    let bench = Bench::new();
    let port = bench.address.rsplit(':').next().unwrap().parse().unwrap();
    let library = Library::open(vec![bench.folder.path().to_owned()]).unwrap();
    assert_eq!(Viewer::bind(library, None, port).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}

/// An engine as its socket shows it.
struct Engine {
    folder: tempfile::TempDir,
    board: Board,
    control: Control,
    server: Option<Server>,
}

impl Engine {
    fn new() -> Engine {
        let folder = tempfile::tempdir().unwrap();
        let (board, control) = (Board::default(), Control::default());
        let server = Server::start(&folder.path().join("s.sock"), None, board.clone(), &control).unwrap();
        let status: Status =
            serde_json::from_str(include_str!("../../live/tests/fixtures/status.json")).unwrap();
        board.put(Arc::new(status));
        Engine { folder, board, control, server: Some(server) }
    }

    fn connect(&self) -> std::io::Result<Live> {
        Live::connect(self.folder.path().join("s.sock"), &[("slow".to_owned(), 0.5)])
    }

    fn is_paused(&self) -> bool {
        self.control.pause.load(Ordering::Relaxed)
    }
}

#[test]
fn an_engine_is_paused_and_resumed_by_the_page_alone() {
    let engine = Engine::new();
    let bench = Bench::with(Some(engine.connect().unwrap()));
    let host = format!("Host: {}\r\n", bench.address);
    let post = |path: &str, head: &str| {
        status(&bench.ask(&format!("POST /{path}"), &format!("{host}Content-Length: 0\r\n{head}")))
    };
    let pause = format!("{}/pause", bench.token);
    assert_eq!(post("pause", ""), 403);
    assert_eq!(post(&format!("{}/pause", "0".repeat(32)), ""), 403);
    assert_eq!(post(&pause, "Origin: http://evil.example\r\n"), 403);
    assert_eq!(post(&pause, "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), 403);
    assert_eq!(status(&bench.get("pause")), 405);
    assert!(!engine.is_paused());
    assert_eq!(post(&pause, &format!("Origin: http://{}\r\n", bench.address)), 200);
    assert!(engine.is_paused());
    assert_eq!(post(&format!("{}/resume", bench.token), ""), 200);
    assert!(!engine.is_paused());
}

#[test]
fn a_page_is_sent_what_an_engine_does_and_that_it_has_ended() {
    let mut engine = Engine::new();
    let bench = Bench::with(Some(engine.connect().unwrap()));
    let beginning = bench.get("live");
    assert!(beginning.contains("\"prices\":{\"slow\":0.5}"), "{beginning}");
    let mut stream = bench.connect();
    let request = format!("GET /{}/events HTTP/1.1\r\nHost: {}\r\n\r\n", bench.token, bench.address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut received = String::new();
    let mut wait_for = |what: &str| {
        let mut bytes = [0; 65536];
        while !received.contains(what) {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the connection ended after {received:?}");
            received += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    wait_for("event: status\ndata: {\"schema\":1,\"pid\":42,\"policy\":\"ambix\"");
    // The map was asked for, since a page is open: the engine makes one.
    engine.board.put_map(terrace_live::map::MemoryMap { schema: 1, ..Default::default() });
    wait_for("event: map\ndata: {\"schema\":1,\"tiers\":[],\"processes\":[]}");
    engine.server = None;
    wait_for("event: gone\ndata: \"");
    assert!(bench.get("live").contains("\"seconds\":75.0"), "what was seen stays");
}

#[test]
fn without_an_engine_there_is_nothing_to_pause_and_a_socket_of_nobody_is_an_error() {
    let bench = Bench::new();
    assert!(bench.get("live").contains("\r\nnull"), "{}", bench.get("live"));
    let host = format!("Host: {}\r\nContent-Length: 0\r\n", bench.address);
    assert_eq!(status(&bench.ask(&format!("POST /{}/pause", bench.token), &host)), 404);
    let folder = tempfile::tempdir().unwrap();
    assert!(Live::connect(folder.path().join("none.sock"), &[]).is_err());
    let mut engine = Engine::new();
    engine.server = None;
    assert!(engine.connect().is_err(), "it has ended");
}

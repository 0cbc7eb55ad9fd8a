//! The server as clients see it.

use super::connections::HEAD;
use super::*;
use crate::folder::Folder;
use crate::status::tests::example;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

struct Bench {
    folder: tempfile::TempDir,
    control: Control,
    board: Board,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        Folder::create(&folder.path().join("terrace")).unwrap();
        Bench { folder, control: Control::default(), board: Board::default() }
    }

    fn socket(&self) -> PathBuf {
        socket_of(&self.folder.path().join("terrace"), 42)
    }

    fn start(&self, metrics: Option<&str>) -> Server {
        let metrics = metrics.map(|address| address.parse().unwrap());
        Server::start(&self.socket(), metrics, self.board.clone(), &self.control).unwrap()
    }

    /// Whatever comes back for these bytes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let _ = stream.write_all(bytes);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[test]
fn a_process_that_another_terrace_manages_is_named() {
    let bench = Bench::new();
    let folder = bench.folder.path().join("terrace");
    let managed = example().processes[0].pid;
    assert_eq!(managed_elsewhere(&folder, &[managed]), None, "nobody answers");
    let _server = bench.start(None);
    assert_eq!(managed_elsewhere(&folder, &[managed]), None, "it has not begun");
    bench.board.put(Arc::new(Status { dry_run: true, ..example() }));
    assert_eq!(managed_elsewhere(&folder, &[managed]), None, "it moves nothing");
    bench.board.put(Arc::new(Status { dry_run: false, ..example() }));
    assert_eq!(managed_elsewhere(&folder, &[1]), None);
    let said = managed_elsewhere(&folder, &[1, managed]).unwrap();
    assert!(said.starts_with(&format!("process {managed} (")) && said.contains("process 42 with"), "{said}");
}

#[test]
fn status_and_metrics_are_served_and_the_socket_goes_with_the_server() {
    let bench = Bench::new();
    let server = bench.start(None);
    let error = status(&bench.socket()).unwrap_err().to_string();
    assert!(error.contains("ask again"), "{error}");
    bench.board.put(Arc::new(example()));
    assert_eq!(status(&bench.socket()).unwrap(), example());
    assert!(ask(&bench.socket(), "GET", "/metrics").unwrap().contains("terrace_tier_used_bytes"));
    let mode = std::fs::metadata(bench.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = bench.folder.path().join("terrace");
    assert_eq!(sockets(&folder), [(42, bench.socket())]);
    drop(server);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no socket, no draft");
    assert!(sockets(&folder).is_empty());
}

#[test]
fn pause_and_resume_by_post_alone() {
    let bench = Bench::new();
    let _server = bench.start(None);
    let paused = || bench.control.pause.load(Ordering::Relaxed);
    assert!(ask(&bench.socket(), "GET", "/pause").is_err() && !paused());
    assert_eq!(ask(&bench.socket(), "POST", "/pause").unwrap(), "paused\n");
    assert!(paused());
    ask(&bench.socket(), "POST", "/resume").unwrap();
    assert!(!paused());
}

#[test]
fn the_first_map_is_waited_for() {
    use crate::map::{MapPart, MemoryMap, ProcessMap};
    let bench = Bench::new();
    let (board, control, stop) = (bench.board.clone(), Some(bench.control.clone()), Arc::default());
    let none = Service { board, control, stop }.map(Duration::ZERO);
    assert!(none.status.starts_with("503") && none.body.contains("ask again"), "{}", none.body);
    let _server = bench.start(None);
    let part = MapPart {
        start: 1 << 40,
        bytes: 4096,
        kind: "stack".to_owned(),
        resident: vec![4096, 0],
        hot: Some(vec![0, 0]),
    };
    let process = ProcessMap { pid: 7, name: "x".to_owned(), parts: vec![part] };
    let map =
        MemoryMap { schema: 1, tiers: vec!["dram".to_owned(), "slow".to_owned()], processes: vec![process] };
    let (board, first) = (bench.board.clone(), map.clone());
    let engine = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        while board.map().is_none() {
            board.put_map(first.clone());
        }
    });
    let answer = ask(&bench.socket(), "GET", "/map").unwrap();
    assert_eq!(serde_json::from_str::<MemoryMap>(&answer).unwrap(), map);
    engine.join().unwrap();
    assert!(ask(&bench.socket(), "POST", "/map").unwrap_err().to_string().contains("GET /map"));
}

#[test]
fn a_terrace_that_is_stopped_is_named_and_what_lets_it_go_on() {
    let bench = Bench::new();
    // Connections wait here, and nobody reads them.
    let _stopped = UnixListener::bind(bench.socket()).unwrap();
    let said = |socket: &Path| {
        let error = ask_within(Duration::from_millis(50), socket, "GET", "/status").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        error.to_string()
    };
    let error = said(&bench.socket());
    assert!(error.starts_with("Terrace 42 does not answer") && error.contains("kill -CONT 42"), "{error}");
    let other = bench.folder.path().join("other");
    std::fs::rename(bench.socket(), &other).unwrap();
    assert!(said(&other).contains("kill -CONT"));
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let bench = Bench::new();
    let server = bench.start(Some("127.0.0.1:0"));
    bench.board.put(Arc::new(example()));
    let address = server.metrics().unwrap();
    // One after the other they would take two minutes.
    let idle: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("terrace_tier_used_bytes"), "{text}");
    drop(idle);
}

#[test]
fn a_socket_in_no_folder_makes_none() {
    let bench = Bench::new();
    let folder = bench.folder.path().join("none");
    let started = Server::start(&folder.join("x.sock"), None, bench.board.clone(), &bench.control);
    let error = started.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let path = folder.join("x.sock").display().to_string();
    assert!(error.to_string().starts_with(&format!("cannot listen at {path}: ")), "{error}");
    assert!(!folder.exists());
}

#[test]
fn an_address_of_metrics_that_is_taken_is_said_to_be_that() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error =
        Server::start(&bench.socket(), Some(address), bench.board.clone(), &bench.control).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let error = error.to_string();
    assert!(
        error.starts_with(&format!("cannot listen at {address}, the address of the metrics: ")),
        "{error}"
    );
    assert!(error.contains("choose another with --metrics") && !error.contains(".sock"), "{error}");
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let bench = Bench::new();
    drop(UnixListener::bind(bench.socket()).unwrap());
    assert!(sockets(&bench.folder.path().join("terrace")).is_empty(), "nobody answers");
    let _server = bench.start(None);
    bench.board.put(Arc::new(example()));
    assert!(status(&bench.socket()).is_ok());
    let second = Server::start(&bench.socket(), None, Board::default(), &bench.control);
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert!(status(&bench.socket()).is_ok());
    assert!(remove_stale(&bench.folder.path().join("terrace")).is_empty());
}

#[test]
fn what_a_killed_process_left_is_removed_and_other_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(folder.path().join("7.sock")).unwrap());
    std::fs::write(folder.path().join("8.json"), "").unwrap();
    std::fs::write(folder.path().join("x"), "mine").unwrap();
    // No process has such a number; this one lives.
    let (dead, alive) = (u32::MAX, std::process::id());
    let drafts = [format!(".{dead}"), format!("{dead}.draft"), format!(".{alive}"), format!("{alive}.draft")]
        .map(|name| folder.path().join(name));
    for draft in &drafts {
        if draft.extension().is_some() {
            std::fs::write(draft, "{").unwrap();
        } else {
            std::fs::create_dir(draft).unwrap();
            drop(UnixListener::bind(draft.join("s")).unwrap());
        }
    }
    let mut removed = remove_stale(folder.path());
    removed.sort();
    let mut expected = vec![folder.path().join("7.sock"), drafts[0].clone(), drafts[1].clone()];
    expected.sort();
    assert_eq!(removed, expected);
    assert!(expected.iter().all(|path| !path.exists()) && drafts[2..].iter().all(|path| path.exists()));
    let refused = Server::start(&folder.path().join("x"), None, Board::default(), &Control::default());
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(folder.path().join("x")).unwrap(), "mine");
}

#[test]
fn bad_requests_do_no_harm() {
    let bench = Bench::new();
    let _server = bench.start(None);
    bench.board.put(Arc::new(example()));
    assert!(bench.raw(b"hello\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(bench.raw(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(bench.raw(b"DELETE /status HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(bench.raw(b"GET /status HTTP/2\r\n\r\n").starts_with("HTTP/1.1 505 "));
    assert!(bench.raw(b"\xff\xfe \0 \0\r\n\r\n").starts_with("HTTP/1.1 505 "));
    let body = b"POST /x HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n";
    assert!(bench.raw(body).starts_with("HTTP/1.1 404 "));
    // Answered or cut off, but never held on to.
    bench.raw(&vec![b'x'; 4 * HEAD]);
    // Someone who says nothing is waited for no longer than that.
    let silent = UnixStream::connect(bench.socket()).unwrap();
    assert!(status(&bench.socket()).is_ok());
    drop(silent);
}

#[test]
fn by_tcp_there_are_metrics_and_nothing_else() {
    let bench = Bench::new();
    let server = bench.start(Some("127.0.0.1:0"));
    bench.board.put(Arc::new(example()));
    let get = |request: &str| {
        let mut stream = TcpStream::connect(server.metrics().unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let metrics = get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"));
    assert!(metrics.ends_with("# EOF\n"));
    assert!(get("GET /status HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get("GET /map HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get("POST /pause HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(!bench.control.pause.load(Ordering::Relaxed));
}

//! `terrace view` from outside: what it prints, its exit codes, its end.

mod common;
use common::{SMALL, stderr, stdout, terrace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn a_folder_that_is_not_there_is_wrong_usage() {
    let message = stderr(terrace().args(["view", "/nonexistent/results"]), 2);
    assert!(message.contains("/nonexistent/results: No such file"), "{message}");
    let message = stderr(terrace().args(["view", ".", "-o", "x.html", "--open"]), 2);
    assert!(message.contains("cannot be used with"), "{message}");
}

#[test]
fn results_become_one_file_and_what_is_damaged_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("results.json"), "{").unwrap();
    let mut sim = terrace();
    sim.current_dir(folder.path()).args([
        "sim",
        "--design",
        "native-4k",
        "--workload",
        SMALL,
        "--json",
        "one.json",
    ]);
    stdout(&mut sim);
    let mut view = terrace();
    view.current_dir(folder.path()).args(["view", "-o", "page.html"]);
    let output = view.assert().success().get_output().stderr.clone();
    let said = String::from_utf8(output).unwrap();
    assert!(said.contains("damaged/results.json") && said.contains("still being written"), "{said}");
    assert!(said.contains("page.html: 1 run,"), "{said}");
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("\"path\":\"one.json\"") && page.contains("native-4k"));
    let printed = stdout(terrace().current_dir(folder.path()).args(["view", "one.json", "-o", "-"]));
    assert!(printed.starts_with("<!doctype html>"));
}

#[test]
fn it_prints_its_address_serves_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["view", folder.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let (address, path) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path}catalog HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"sets\":[]"), "{answer}");
    // SAFETY: a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    assert!(child.wait().unwrap().success());
}

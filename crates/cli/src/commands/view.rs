//! `terrace view`: results in a browser.

use crate::error::{Blame, CommandResult, Failure};
use crate::output::{self, OutputFile};
use crate::progress;
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_live::{journal, server};
use terrace_view::{Library, Live, Viewer};

const EXAMPLES: &str = "\
Examples:
  terrace view                        what lies below this folder
  terrace view before after           two folders, and their differences
  terrace view results --open
  terrace view results -o page.html   one file, to keep or to send
  sudo terrace view --live            the terrace run or attach at work here
  terrace view /run/terrace/4711.sock --price slow=0.33
  ssh -L 8137:127.0.0.1:8137 host terrace view results --port 8137

Only a browser with the printed address sees anything, and only on this
machine: the address has a token that changes with every start.";

/// Look at results, or at a running Terrace, in a browser
///
/// Finds what compare, sim, sweep, tune, advise and live runs have written below
/// the folders, and serves a page on loopback: filters, differences between two
/// runs or two sets of results, the report of each, and its data structures with
/// their addresses over time. New results appear by themselves. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Folders with results, or files; a socket is that of a running Terrace.
    /// Without any the current folder, with --live none
    #[arg(value_name = "DIR|SOCKET")]
    paths: Vec<PathBuf>,

    /// Show the running `terrace run` or `terrace attach`, as `terrace top`
    /// finds it
    #[arg(long, conflicts_with = "output")]
    live: bool,

    /// The Terrace of this process number, where several are running
    #[arg(long, value_name = "PID", requires = "live")]
    pid: Option<u32>,

    /// Price of a tier's memory, where the fastest tier's is 1; `slow` stands
    /// for every other tier. Repeatable; for the estimated saving
    #[arg(long, value_name = "TIER=PRICE", value_parser = terrace_study::shares::parse_price, conflicts_with = "output")]
    price: Vec<(String, f64)>,

    /// Write the page to FILE in place of serving it: one file that opens
    /// without a network. - is standard output
    #[arg(short, long, value_name = "FILE|-", help_heading = "Output")]
    output: Option<OutputFile>,

    /// Listen at this port of 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "output")]
    port: u16,

    /// Open the page in the user's browser
    #[arg(long, conflicts_with = "output")]
    open: bool,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let (mut sockets, mut folders): (Vec<PathBuf>, Vec<PathBuf>) =
        arguments.paths.into_iter().partition(|path| is_socket(path));
    if arguments.live {
        sockets.push(server::find(&journal::folder(), arguments.pid)?);
    }
    let socket = match sockets.len() {
        0 | 1 => sockets.pop(),
        count => {
            return Err(Failure::usage(format!(
                "{count} running Terraces are named; one is shown at a time"
            )));
        }
    };
    if folders.is_empty() && socket.is_none() {
        folders.push(PathBuf::from("."));
    }
    let library = Library::open(folders).or_usage()?;
    for problem in &library.catalog().problems {
        progress::note(&format!("{}: {}", problem.path, problem.message));
    }
    if let Some(path) = arguments.output {
        if socket.is_some() {
            return Err(Failure::usage("a running Terrace cannot be written as one file; its --report can"));
        }
        let runs: usize = library.catalog().sets.iter().map(|set| set.runs.len()).sum();
        if runs == 0 {
            return Err(Failure::usage("there are no results here; name a folder of compare or sweep"));
        }
        let page = terrace_view::export(&library);
        if path.is_stdout() {
            return output::print_line(&page);
        }
        output::write_text(&path, &page)?;
        progress::note(&format!(
            "{}: {runs} run{}, {:.1} MiB",
            path.display(),
            if runs == 1 { "" } else { "s" },
            page.len() as f64 / f64::from(1 << 20),
        ));
        return Ok(());
    }
    let live = socket.map(|socket| {
        let shown = socket.display().to_string();
        Live::connect(socket, &arguments.price).map_err(|error| Failure::run(format!("{shown}: {error}")))
    });
    let viewer = Viewer::bind(library, live.transpose()?, arguments.port).map_err(|error| {
        Failure::usage(format!("cannot listen at port {} of 127.0.0.1: {error}", arguments.port))
    })?;
    let url = viewer.url();
    output::print_line(&url)?;
    // Kept until the end: a browser may be slow to read it.
    let _redirect = if arguments.open { Some(open(&url)?) } else { None };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    viewer.serve(&stop)?;
    Ok(())
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| there.file_type().is_socket())
}

/// Has the user's browser open the page. Everyone can see the arguments of a process, so the address with its token goes by
/// a file that this user alone can read.
fn open(url: &str) -> Result<tempfile::NamedTempFile, Failure> {
    let mut file = tempfile::Builder::new().prefix("terrace-view-").suffix(".html").tempfile()?;
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Terrace</title>\
         <a href=\"{url}\">Terrace</a>"
    )?;
    file.flush()?;
    let started = Command::new("xdg-open")
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => progress::note(&format!("cannot start xdg-open ({error}); open the address yourself")),
    }
    Ok(file)
}

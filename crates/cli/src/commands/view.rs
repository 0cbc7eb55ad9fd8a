//! `terrace view`: results in a browser.

use crate::error::{Blame, CommandResult, Failure};
use crate::{output, progress};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_view::{Library, Viewer};

const EXAMPLES: &str = "\
Examples:
  terrace view                        what lies below this folder
  terrace view before after           two folders, and their differences
  terrace view results --open
  terrace view results -o page.html   one file, to keep or to send
  ssh -L 8137:127.0.0.1:8137 host terrace view results --port 8137

Only a browser with the printed address sees anything, and only on this
machine: the address has a token that changes with every start.";

/// Look at results in a browser: all runs, differences, data structures
///
/// Finds what compare, sim, sweep, tune, advise and live runs have written below
/// the folders, and serves a page on loopback: filters, differences between two
/// runs or two sets of results, the report of each, and its data structures with
/// their addresses over time. New results appear by themselves. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Folders with results, or files
    #[arg(value_name = "DIR", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Write the page to FILE in place of serving it: one file that opens
    /// without a network. - is standard output
    #[arg(short, long, value_name = "FILE|-", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Listen at this port of 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "output")]
    port: u16,

    /// Open the page in the user's browser
    #[arg(long, conflicts_with = "output")]
    open: bool,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let library = Library::open(arguments.paths).or_usage()?;
    for problem in &library.catalog().problems {
        progress::note(&format!("{}: {}", problem.path, problem.message));
    }
    if let Some(path) = arguments.output {
        let page = terrace_view::export(&library);
        if path.as_os_str() == "-" {
            return output::print_line(&page);
        }
        output::write_file(&path, &page)?;
        let runs: usize = library.catalog().sets.iter().map(|set| set.runs.len()).sum();
        progress::note(&format!(
            "{}: {runs} runs in {} sets, {:.1} MiB",
            path.display(),
            library.catalog().sets.len(),
            page.len() as f64 / f64::from(1 << 20),
        ));
        return Ok(());
    }
    let viewer = Viewer::bind(library, arguments.port).map_err(|error| {
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

//! `terrace top`: what a running Terrace does, as a dashboard.

mod screen;

#[cfg(test)]
pub use screen::tests::example;

use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use crate::{output, progress};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_live::status::Status;
use terrace_live::{journal, server};
use terrace_report::{Charset, Columns};

const EXAMPLES: &str = "\
Examples:
  sudo terrace top
  sudo terrace top --pid 4711              where several are running
  sudo terrace top --once                  one frame, for scripts and mail
  sudo terrace top --json - | jq .moves

Keys:
  p pause   r resume   q quit (Terrace itself runs on)";

/// New numbers come so often.
const EVERY: Duration = Duration::from_secs(1);
/// Keys and signals are looked for so often.
const SLEEP: Duration = Duration::from_millis(100);
/// The width of a frame that is printed.
const WIDTH: usize = 80;

/// Watch a running Terrace: tiers, moves, budget, processes
///
/// Shows how much memory of the managed processes lies in each tier, and how
/// much of that was accessed since the policy's look before the last (hot).
/// Then what was moved, with the kernel's own counters beside, and what Terrace
/// itself costs.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The socket that `run` or `attach` was given
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,

    /// The Terrace of this process number, where several are running
    #[arg(long, value_name = "PID", conflicts_with = "socket")]
    pid: Option<u32>,

    /// Print one frame of 80 columns and end
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let socket = match &arguments.socket {
        Some(socket) => socket.clone(),
        None => server::find(&journal::folder(), arguments.pid)?,
    };
    let status =
        server::status(&socket).map_err(|error| Failure::run(format!("{}: {error}", socket.display())))?;
    if arguments.results.is_wanted() {
        let json = || serde_json::to_string_pretty(&status).or_run();
        let table = || Ok(Columns::of_document(&serde_json::to_value(&status).or_run()?, None));
        arguments.results.write_both(json, table)?;
    } else if arguments.once {
        let lines = screen::lines(&status, WIDTH, Charset::from_environment());
        let text: String = lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect();
        output::print(&text)?;
    } else {
        if !io::stdout().is_terminal() {
            return Err(Failure::usage(
                "the dashboard needs a terminal; --once prints one frame, --json all numbers",
            ));
        }
        // Whoever is ended by a signal gives the terminal back as well.
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // A second one ends a dashboard that does not listen.
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let keyboard = Keyboard::open()?;
        let mut terminal = ratatui::try_init()?;
        let end = watch(&mut terminal, &keyboard, &socket, status, &stop);
        let restored = ratatui::try_restore().and_then(|()| terminal.show_cursor());
        if restored.is_err() {
            // Dropped, it would complain to the terminal that has gone.
            std::mem::forget(terminal);
        }
        if let Some(last_words) = end? {
            progress::note(&last_words);
        }
    }
    Ok(())
}

/// What is shown, until someone quits or there is nothing more to show; then with the reason.
fn watch(
    terminal: &mut DefaultTerminal,
    keyboard: &Keyboard,
    socket: &Path,
    mut status: Status,
    stop: &AtomicBool,
) -> io::Result<Option<String>> {
    loop {
        terminal.draw(|frame| draw(frame, &status))?;
        let next = Instant::now() + EVERY;
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) || keyboard.is_gone(SLEEP)? {
                return Ok(None);
            }
            if !event::poll(Duration::ZERO)? {
                continue;
            }
            match key(&event::read()?) {
                Some(Key::Quit) => return Ok(None),
                // The next numbers show whether the request arrived.
                Some(Key::Ask(path)) => drop(server::ask(socket, "POST", path)),
                Some(Key::Redraw) => break,
                None => {}
            }
        }
        match server::status(socket) {
            Ok(now) => status = now,
            Err(error) => return Ok(Some(format!("Terrace {} shows no more: {error}", status.pid))),
        }
    }
}

/// The terminal that keys come from. The library that reads them waits for ever for a key of one that has gone.
struct Keyboard(OwnedFd);

impl Keyboard {
    fn open() -> io::Result<Keyboard> {
        let stdin = io::stdin();
        match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned().map(Keyboard),
            false => File::open("/dev/tty").map(|terminal| Keyboard(terminal.into())),
        }
    }

    /// Waits for a key, for so long at most; returns whether the terminal has gone.
    fn is_gone(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec::try_from(within).map_err(io::Error::other)?;
        let mut files = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut files, Some(&within)) {
            Ok(_) => Ok(files[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
            // A signal: the size of the terminal has changed, or someone asks for the end.
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

enum Key {
    Quit,
    Ask(&'static str),
    Redraw,
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else {
        return matches!(event, Event::Resize(..)).then_some(Key::Redraw);
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind != KeyEventKind::Press => None,
        KeyCode::Char('c') if control => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('p') => Some(Key::Ask("/pause")),
        KeyCode::Char('r') => Some(Key::Ask("/resume")),
        _ => None,
    }
}

/// All that fits; the keys stand in the last line.
fn draw(frame: &mut Frame<'_>, status: &Status) {
    let area = frame.area();
    let mut lines = screen::lines(status, usize::from(area.width), Charset::Unicode);
    lines.truncate(usize::from(area.height.saturating_sub(1)));
    frame.render_widget(Paragraph::new(lines), area);
    if area.height > 1 {
        let last = ratatui::layout::Rect { y: area.bottom() - 1, height: 1, ..area };
        frame.render_widget(Paragraph::new("p pause  r resume  q quit"), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    fn drawn(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &screen::tests::example())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_terminal_shows_the_lines_and_the_keys() {
        let screen = drawn(80, 24);
        for part in ["ambix", "dram", "pgmigrate_success", "redis", "p pause  r resume  q quit"] {
            assert!(screen.contains(part), "no {part}:\n{screen}");
        }
    }

    #[test]
    fn a_terminal_of_any_size_will_do() {
        for (width, height) in [(1, 1), (20, 3), (200, 60), (79, 2)] {
            drawn(width, height);
        }
    }

    #[test]
    fn keys() {
        let press = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = KeyModifiers::NONE;
        assert!(matches!(press(KeyCode::Char('q'), plain), Some(Key::Quit)));
        assert!(matches!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit)));
        assert!(matches!(press(KeyCode::Char('p'), plain), Some(Key::Ask("/pause"))));
        assert!(matches!(press(KeyCode::Char('r'), plain), Some(Key::Ask("/resume"))));
        assert!(press(KeyCode::Char('c'), plain).is_none());
        assert!(matches!(key(&Event::Resize(80, 24)), Some(Key::Redraw)));
    }

    #[test]
    fn a_terminal_that_has_gone_is_seen() {
        let (keys, terminal) = io::pipe().unwrap();
        let keyboard = Keyboard(keys.into());
        assert!(!keyboard.is_gone(Duration::ZERO).unwrap());
        drop(terminal);
        assert!(keyboard.is_gone(Duration::from_secs(60)).unwrap());
    }
}

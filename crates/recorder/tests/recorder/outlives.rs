//! However the recorder ends, the recorded program goes on as if it had run without it.

use crate::support::{Workshop, example, options, start, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use terrace_recorder::remove_stale;
use terrace_trace::EventSource;

/// A job of six steps, each of which executes programs. After the first it waits for the test.
struct Job {
    workshop: Workshop,
    script: PathBuf,
}

impl Job {
    fn new() -> Job {
        let workshop = Workshop::new();
        let script = workshop.path("job.sh");
        let folder = workshop.path("");
        let text = format!(
            r#"cd {} && exec 2>errors
            echo "$TERRACE_PLUGIN" >plugin
            for step in 1 2 3 4 5 6; do
                seq 1 300 | sort -rn | head -n "$step" >result$step || echo "step $step failed" >&2
                touch begun
                while [ ! -e go ]; do sleep 0.02; done
            done
            touch done
            "#,
            folder.display()
        );
        std::fs::write(&script, text).unwrap();
        Job { workshop, script }
    }

    fn command(&self) -> [&dyn AsRef<std::ffi::OsStr>; 2] {
        [&"/bin/bash", &self.script]
    }

    fn wait_for_first_step(&self) {
        wait_until("the job begins", || self.workshop.path("begun").exists());
    }

    /// Lets the job go on after the recorder's end and checks what it did.
    fn ends_well(self) {
        let read = |name: &str| std::fs::read_to_string(self.workshop.path(name)).unwrap();
        std::fs::write(self.workshop.path("go"), "").unwrap();
        wait_until("the job ends", || self.workshop.path("done").exists());
        for step in 1..=6 {
            let expected: String = (0..step).map(|i| format!("{}\n", 300 - i)).collect();
            assert_eq!(read(&format!("result{step}")), expected);
        }
        assert_eq!(read("errors"), "");
        // The recorder leaves nothing behind. A recorder of another test may have removed it before us.
        let plugin = read("plugin");
        let folder = Path::new(plugin.split(',').next().unwrap()).parent().unwrap();
        assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("terrace-record-"));
        wait_until("the folder is removed", || {
            remove_stale();
            !folder.exists()
        });
    }
}

#[test]
fn a_recording_that_is_dropped() {
    let job = Job::new();
    let mut recording = start(&job.command(), &options());
    assert!(recording.next_batch().unwrap().is_some());
    job.wait_for_first_step_of(&mut recording);
    drop(recording);
    job.ends_well();
}

impl Job {
    /// Reads on, because a program whose recorder does not read waits.
    fn wait_for_first_step_of(&self, recording: &mut impl EventSource) {
        while !self.workshop.path("begun").exists() {
            recording.next_batch().unwrap().expect("the job has not ended");
        }
    }
}

#[test]
fn a_consumer_that_panics() {
    let job = Job::new();
    let mut recording = start(&job.command(), &options());
    job.wait_for_first_step_of(&mut recording);
    let thread = std::thread::spawn(move || {
        let _recording = recording;
        panic!("injected");
    });
    assert!(thread.join().is_err());
    job.ends_well();
}

#[test]
fn a_recorder_that_is_killed() {
    let job = Job::new();
    let mut recorder = Command::new(example("dump"))
        .args(job.command().map(AsRef::as_ref))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    job.wait_for_first_step();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    job.ends_well();
}

#[test]
fn a_recorder_that_is_killed_while_the_program_waits_for_it() {
    let workshop = Workshop::new();
    let [marker, begun] = ["done", "begun"].map(|name| workshop.path(name));
    let program = workshop.c(r#"
        #include <stdio.h>
        static volatile long array[1000];
        int main(int argc, char **argv) {
            fclose(fopen(argv[2], "w"));
            for (long i = 0; i < 60000000; i++) array[i % 1000]++;
            fclose(fopen(argv[1], "w"));
        }
        "#);
    let mut recorder = Command::new(example("dump"))
        .args([program.as_path(), marker.as_path(), begun.as_path()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the program begins", || begun.exists());
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    wait_until("the program goes on", || marker.exists());
}

#[test]
fn a_recording_that_has_reached_its_limit() {
    let job = Job::new();
    let mut recording =
        start(&job.command(), &terrace_recorder::RecordOptions { limit: Some(1000), ..options() });
    while recording.next_batch().unwrap().is_some() {}
    job.wait_for_first_step();
    std::fs::write(job.workshop.path("go"), "").unwrap();
    assert!(recording.wait().unwrap().success());
    job.ends_well();
}

/// Wherever the program is when recording ends: it calls functions, reads files, or starts others.
#[test]
fn a_limit_anywhere() {
    let script = "for i in 1 2; do x=$(seq 1 10 | sort -rn | head -n 1); test $x = 10 || exit 9; done";
    for limit in (30_000..260_000).step_by(19_000) {
        let limited = terrace_recorder::RecordOptions { limit: Some(limit), ..options() };
        let mut recording = start(&[&"bash", &"-c", &script], &limited);
        while recording.next_batch().unwrap().is_some() {}
        let status = recording.wait().unwrap();
        assert!(status.success(), "limit {limit}: {status}");
    }
}

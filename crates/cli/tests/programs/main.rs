//! Programs that people keep data with, at work in a mounted room, each checked by its own verification.
//!
//! SQLite, git, a mailbox and PostgreSQL also have the serving process killed under them: what they got acknowledged as durable must
//! be there afterwards, and their own checks must find nothing. Copies made by rsync and tar are compared by rsync and tar.
//!
//! A program that is not installed is skipped, with a word; `scripts/setup.sh test` installs all but PostgreSQL.
//! `STRONGROOM_PROGRAM_ROUNDS` sets how often each is killed, `STRONGROOM_SEED` when.
#![allow(missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod build;
mod copies;
mod git;
mod mailbox;
mod postgres;
mod sqlite;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::random::number;
use common::{Sandbox, can_mount};

/// A mounted room, or `None`, said, if this machine cannot mount or does not have the programs.
fn room_for(programs: &[&str]) -> Option<Sandbox> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in programs {
        if !std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) {
            eprintln!("skipped: {program} is not installed");
            return None;
        }
    }
    can_mount().then(|| {
        let mut sandbox = Sandbox::with_room();
        // PostgreSQL runs as a user of its own.
        sandbox.for_all_users = true;
        assert!(sandbox.mount());
        sandbox
    })
}

/// How often a program has its mount killed: few in CI, many in a soak run.
fn rounds(few: u64) -> u64 {
    number("STRONGROOM_PROGRAM_ROUNDS").unwrap_or(few)
}

/// Random moments, in milliseconds below `latest`; the seed is said.
fn moments(latest: u64) -> impl Iterator<Item = Duration> {
    let seed = number("STRONGROOM_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("seed {seed}: repeat with STRONGROOM_SEED={seed}");
    let noise = common::noise(1 << 16, seed.wrapping_mul(0x9e37_79b9) | 1);
    (0..).map(move |n: usize| {
        let two = [noise[2 * n % noise.len()], noise[(2 * n + 1) % noise.len()]];
        Duration::from_millis(u64::from(u16::from_le_bytes(two)) % latest)
    })
}

/// Runs a program, expects success, and returns what it printed.
fn done<S: AsRef<OsStr>>(dir: &Path, program: &str, args: impl IntoIterator<Item = S>) -> String {
    succeeded(Command::new(program).args(args).current_dir(dir))
}

fn succeeded(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// What a process that was ended has printed to a file: its last line may be cut short.
fn whole_lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(str::to_owned).collect()
}

/// Unmounts and mounts: nothing is answered from a cache any more.
fn mount_again(s: &Sandbox) {
    s.umount();
    assert!(s.mount());
}

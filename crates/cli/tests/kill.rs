//! The serving process killed at random moments, against a model of what it had acknowledged by then.
//!
//! Each round one writer appends numbered records to files, makes and removes files, and notes after each `fsync` what
//! must survive. The process is killed in between. Then the room must open by itself, every acknowledged state must be there or
//! a later one that the writer had begun, and a check must find nothing.
#![allow(missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Sandbox, can_mount, noise};

const ROUNDS: u64 = 6;
const RECORD: usize = 5000;
const FILES: u64 = 4;

/// What the writer knows: of each file how many records an fsync acknowledged, and how many it had begun.
#[derive(Debug, Default, Clone)]
struct Model {
    files: BTreeMap<String, (u64, u64)>,
}

#[test]
fn what_fsync_acknowledged_survives_a_kill_at_any_moment() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    let seed = std::env::var("STRONGROOM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .subsec_nanos()
                .into()
        });
    eprintln!("seed {seed}: repeat with STRONGROOM_SEED={seed}");
    let mut random = noise(4096, seed).into_iter().map(u64::from);
    let mut model = Model::default();
    for round in 0..ROUNDS {
        assert!(s.mount());
        let pid = rustix::process::Pid::from_raw(s.pid() as i32).unwrap();
        let moment = Duration::from_millis(20 + random.next().unwrap() * 3);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(moment);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        write_until_it_fails(&s.path("mnt"), &mut model, &mut random);
        killer.join().unwrap();
        let patience = Instant::now() + Duration::from_secs(10);
        while s.run(["umount", "mnt"]).code != 0 {
            assert!(
                Instant::now() < patience,
                "the dead mount cannot be cleared"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(s.mount(), "round {round}");
        for (name, (acknowledged, begun)) in &mut model.files {
            let found = std::fs::read(s.path("mnt").join(name)).unwrap_or_default();
            let records = found.len() as u64 / RECORD as u64;
            assert!(
                records >= *acknowledged && found.len() <= *begun as usize * RECORD,
                "round {round}, {name}: {} bytes, acknowledged {acknowledged} records, begun {begun}",
                found.len()
            );
            for number in 0..*acknowledged {
                let from = number as usize * RECORD;
                assert_eq!(
                    found[from..from + RECORD],
                    record(name, number),
                    "round {round}, {name}, record {number}"
                );
            }
            // From here on the file is what was found, cut to whole records that are as written.
            let whole = (0..records)
                .take_while(|n| {
                    let from = *n as usize * RECORD;
                    found[from..from + RECORD] == record(name, *n)
                })
                .count() as u64;
            if s.path("mnt").join(name).exists() {
                let file = OpenOptions::new()
                    .write(true)
                    .open(s.path("mnt").join(name))
                    .unwrap();
                file.set_len(whole * RECORD as u64).unwrap();
                file.sync_all().unwrap();
            }
            (*acknowledged, *begun) = (whole, whole);
        }
        s.umount();
        s.with_pass(["check", "room", "--read-data"]);
    }
}

fn record(name: &str, number: u64) -> Vec<u8> {
    let of_name = name
        .bytes()
        .fold(1, |sum: u64, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    noise(
        RECORD,
        of_name.wrapping_mul(1000).wrapping_add(number * 2 + 2),
    )
}

fn write_until_it_fails(root: &Path, model: &mut Model, random: &mut impl Iterator<Item = u64>) {
    for turn in 0.. {
        let name = format!("f{}", turn % FILES);
        if append(
            root,
            &name,
            model,
            random.next().unwrap_or(1).is_multiple_of(3),
        )
        .is_none()
        {
            return;
        }
        // Names that come and go, to have more than appends under way.
        let passing = root.join(format!("passing-{turn}"));
        if File::create(&passing).is_err()
            || (turn % 2 == 0 && std::fs::remove_file(&passing).is_err())
        {
            return;
        }
    }
}

/// Appends a record; `None` once the mount is gone.
fn append(root: &Path, name: &str, model: &mut Model, sync: bool) -> Option<()> {
    let state = model.files.entry(name.to_owned()).or_default();
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(root.join(name))
        .ok()?;
    let number = state.1;
    state.1 += 1;
    file.write_all(&record(name, number)).ok()?;
    if sync {
        rustix::fs::fsync(file.as_fd()).ok()?;
        state.0 = state.1;
    }
    Some(())
}

//! What looking at one state costs in time of the processor: `cargo run --release -p strongroom-explorer --example states [ROUNDS]`.

use std::error::Error;
use std::time::Duration;

use explorer::opening::open;
use explorer::record::Recorder;
use explorer::snapshot::Snapshot;
use explorer::verify::{How, verify};
use explorer::workload::{Unwatched, Workload, ones, run, twos};

/// A moment, in time that this process has used.
#[derive(Clone, Copy)]
struct Cpu(Duration);

impl Cpu {
    fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    fn elapsed(self) -> Duration {
        Self::now().0 - self.0
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u32 = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 300,
    };
    println!("workloads: {} ones, {} twos", ones().len(), twos().len());
    let workload: Workload =
        "start tree\nwrite foo 16000 1000\nsync\nunlink A/foo\nsync".parse()?;
    let start = Cpu::now();
    let mut image = workload.start.image()?;
    println!("prepare: {:?}", start.elapsed());
    let mut last = None;
    let start = Cpu::now();
    for _ in 0..rounds {
        let recorder = Recorder::over(&workload.start.image()?);
        let ran = run(&workload, recorder.storage(), None, &mut Unwatched)?;
        image = recorder.image();
        last = ran.snapshots.last().cloned();
    }
    println!("run a workload: {:?}", start.elapsed() / rounds);
    let allowed = [last.ok_or("no snapshot")?];
    for thorough in [false, true] {
        let how = How {
            thorough,
            accept_old_header: false,
            timeless: false,
            blended: false,
        };
        let start = Cpu::now();
        for _ in 0..rounds {
            verify(Recorder::unlogged(&image).storage(), &allowed, how)?;
        }
        println!(
            "verify, thorough {thorough}: {:?}",
            start.elapsed() / rounds
        );
    }
    let mut parts = [Duration::ZERO; 4];
    for _ in 0..rounds {
        let storage = Recorder::unlogged(&image).storage();
        let mut lap = Cpu::now();
        let mut next = || std::mem::replace(&mut lap, Cpu::now()).elapsed();
        let room = open(&storage)?;
        parts[0] += next();
        let _ = Snapshot::of(&room)?;
        parts[1] += next();
        room.check(true, false, &|_, _| true)?;
        parts[2] += next();
        drop(room);
        parts[3] += next();
    }
    for (what, time) in ["open", "snapshot", "check", "drop"].iter().zip(parts) {
        println!("{what}: {:?}", time / rounds);
    }
    Ok(())
}

//! Simulates shared storage, and prints a row of Markdown.
//!
//! `cargo run --release -p strongroom-capacity-model --example simulate -- mix=home clients=10000 rooms=16 machines=4 processors=8 log=disk disks=40
//! disk=ssd skew=0 seconds=20 fail=0 seed=1`: what is left out is as above. `mix`: home, mail, build, media. `log`: disk, postgresql, s3. `disk`: hdd, ssd. `fail`:
//! seconds for which one machine is away in the middle of the measured time.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use capacity_model::calibration::{LOCAL_DISK, POSTGRESQL, S3, SECOND};
use capacity_model::{Failure, Mix, Report, Setup, Time, simulate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match setup(&arguments) {
        Ok(setup) => {
            println!("| {} | {} |", arguments.join(" "), row(&simulate(&setup)));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("simulate: {why}");
            ExitCode::from(2)
        }
    }
}

fn setup(arguments: &[String]) -> Result<Setup, Box<dyn Error>> {
    let mut given = BTreeMap::new();
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("NAME=VALUE")?;
        given.insert(name, value);
    }
    let mut take = |name, usual| given.remove(name).unwrap_or(usual);
    let measured = take("seconds", "20").parse::<Time>()? * SECOND;
    let pause = take("fail", "0").parse::<Time>()? * SECOND;
    let (disk_requests, disk_bytes) = match take("disk", "ssd") {
        "hdd" => (150.0, 200e6),
        "ssd" => (50_000.0, 1e9),
        other => return Err(format!("no disk {other}").into()),
    };
    let setup = Setup {
        clients: take("clients", "10000").parse()?,
        mix: Mix::named(take("mix", "home")).ok_or("no such mix")?,
        rooms: take("rooms", "16").parse()?,
        skew: take("skew", "0").parse()?,
        machines: take("machines", "4").parse()?,
        processors: take("processors", "8").parse()?,
        log: match take("log", "disk") {
            "disk" => LOCAL_DISK,
            "postgresql" => POSTGRESQL,
            "s3" => S3,
            other => return Err(format!("no log {other}").into()),
        },
        disks: take("disks", "40").parse()?,
        disk_requests,
        disk_bytes,
        measured,
        failure: (pause > 0).then_some(Failure {
            at: measured + measured / 4,
            pause,
        }),
        seed: take("seed", "1").parse()?,
    };
    match given.keys().next() {
        Some(name) => Err(format!("there is no {name}").into()),
        None => Ok(setup),
    }
}

fn row(report: &Report) -> String {
    let used: Vec<String> = report
        .used
        .iter()
        .map(|used| {
            format!(
                "{} {:.0} % (most {:.0} %)",
                used.of,
                used.mean * 100.0,
                used.most * 100.0
            )
        })
        .collect();
    let back = match report.reconnected {
        Some(seconds) => format!(
            "all connected after {seconds:.1} s, longest operation {:.1} s",
            report.longest
        ),
        None => String::new(),
    };
    format!(
        "{:.0}/s | {:.1} ms | {:.1} ms | {:.0}/s | {} | {back}",
        report.operations,
        report.p50_ms,
        report.p99_ms,
        report.syncs,
        used.join(", ")
    )
}

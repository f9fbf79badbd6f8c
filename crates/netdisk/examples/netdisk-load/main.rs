//! What protection costs, and how a disk server compares with `nbdkit file`: the same load on the same file, in turns.
//!
//! `cargo run --release -p strongroom-netdisk --example netdisk-load -- FILE [IN-FLIGHT [ROUNDS [SECONDS [cold]]]]`. FILE is created with 1
//! GiB where it does not exist. With `cold` it is dropped from the page cache before each slice of reading. In each round every set-up has
//! a slice of time for each load, in an order that rotates; ratios are taken within a round, and their median and quartiles are printed.
//! Without `nbdkit` its column is missing.
//!
//! At the end: how long a request takes that is refused because its capability was revoked.
//!
//! Besides requests a second it reports processor time for each request, of client and server and the kernel on their behalf: on a
//! machine with other work that is what can be compared.

mod nbd;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::{Access, Device, FileDevice};
use netdisk::server::{Config, Server};
use netdisk::*;

/// Connections of each client; the disk client's own number.
const CONNECTIONS: usize = 2;

#[allow(dead_code, reason = "the servers are kept, and end with their client")]
enum Target {
    Disk(Box<Disk>, Server),
    Nbdkit(nbd::Nbd, Nbdkit),
}

struct Disk {
    client: DiskClient,
    ticket: Ticket,
    /// A ticket that was revoked; where nobody looks at tickets there is none.
    revoked: Option<Ticket>,
}

struct Nbdkit(Child);

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy)]
struct Load {
    write: bool,
    blocks: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: f64| {
        arguments
            .get(at)
            .map_or(or, |text| text.parse().expect("a number"))
    };
    let path = arguments.first().expect("the file to serve");
    let (in_flight, rounds) = (number(1, 8.0) as usize, number(2, 15.0) as usize);
    let slice = Duration::from_secs_f64(number(3, 0.5));
    let targets = targets(Path::new(path));
    let cold = (arguments.get(4).map(String::as_str) == Some("cold"))
        .then(|| std::fs::File::open(path).expect("the file to serve"));
    let names: Vec<&str> = targets.iter().map(|(name, _)| *name).collect();
    println!("{in_flight} in flight, {rounds} rounds of {slice:?}, {CONNECTIONS} connections");
    println!("{:<14} {}", "", names.join(" / "));
    for load in [(false, 1), (true, 1), (false, 16), (true, 16), (false, 256)] {
        let load = Load {
            write: load.0,
            blocks: load.1,
        };
        let mut rates = vec![Vec::new(); targets.len()];
        let mut times = vec![Vec::new(); targets.len()];
        for round in 0..=rounds {
            for turn in 0..targets.len() {
                let at = (turn + round) % targets.len();
                if let Some(file) = &cold {
                    file.sync_all().expect("the file to serve");
                    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)
                        .expect("the page cache");
                }
                let (rate, time) = run(&targets[at].1, load, in_flight, slice);
                // The first round warms up.
                if round > 0 {
                    rates[at].push(rate);
                    times[at].push(time);
                }
            }
        }
        report(load, &names, &rates, &times);
    }
    for (name, target) in &targets {
        if let Some([low, middle, high]) = target.revoked() {
            println!("revoked, {name}: {middle:.1} us a request ({low:.1} to {high:.1})");
        }
    }
}

fn report(load: Load, names: &[&str], rates: &[Vec<f64>], times: &[Vec<f64>]) {
    let what = if load.write { "write" } else { "read" };
    let medians = |all: &[Vec<f64>], digits: usize| {
        let each = all.iter().map(|some| quartiles(some.clone())[1]);
        each.map(|median| format!("{median:.digits$}"))
            .collect::<Vec<_>>()
            .join(" / ")
    };
    println!(
        "{what:<5} {:>4} KiB  {} a second; {} us each",
        load.blocks * 4,
        medians(rates, 0),
        medians(times, 1)
    );
    for (of, to) in [
        ("secure", "open"),
        ("private", "secure"),
        ("open", "nbdkit"),
    ] {
        let find = |name| names.iter().position(|other| *other == name);
        if let (Some(of_at), Some(to_at)) = (find(of), find(to)) {
            let ratios =
                |of: &[f64], to: &[f64]| quartiles(of.iter().zip(to).map(|(a, b)| a / b).collect());
            let [low, middle, high] = ratios(&rates[of_at], &rates[to_at]);
            // The other way round, so that below 1 is slower here too.
            let [cheap_low, cheap, cheap_high] = ratios(&times[to_at], &times[of_at]);
            println!(
                "{:<14} {of}/{to} {middle:.3} ({low:.3} to {high:.3}); by processor time {cheap:.3} ({cheap_low:.3} to {cheap_high:.3})",
                ""
            );
        }
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Requests a second, and microseconds of processor time for each.
fn run(target: &Target, load: Load, in_flight: usize, slice: Duration) -> (f64, f64) {
    let done = AtomicU64::new(0);
    let time = target.processor_time();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..in_flight {
            let done = &done;
            scope.spawn(move || {
                let mut buffer = vec![thread as u8; load.blocks as usize * 4096];
                let mut random = fastrand::Rng::with_seed(thread as u64);
                while start.elapsed() < slice {
                    let start = random.u64(..200_000 / load.blocks) * load.blocks;
                    target.ask(load, start, &mut buffer);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let done = done.into_inner() as f64;
    let time = (target.processor_time() - time) as f64 / 1000.0;
    (done / start.elapsed().as_secs_f64(), time / done)
}

impl Target {
    /// Nanoseconds that client and server have used.
    fn processor_time(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        let Target::Nbdkit(_, server) = self else {
            return own;
        };
        let threads = std::fs::read_dir(format!("/proc/{}/task", server.0.id())).unwrap();
        let others = threads.map(|thread| {
            let path = thread.unwrap().path().join("schedstat");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split(' ')
                .next()
                .and_then(|ns| ns.parse().ok())
                .unwrap_or(0)
        });
        own + others.sum::<u64>()
    }

    /// Microseconds of a read under the revoked capability, one after the other; quartiles.
    fn revoked(&self) -> Option<[f64; 3]> {
        let Target::Disk(disk, ..) = self else {
            return None;
        };
        let revoked = disk.revoked.as_ref()?;
        let mut buffer = [0; 4096];
        let times = (0..2000).map(|at| {
            let begun = Instant::now();
            let refused = disk.client.read(revoked, at, &mut buffer);
            assert!(matches!(refused, Err(DiskError::Revoked)), "{refused:?}");
            begun.elapsed().as_nanos() as f64 / 1000.0
        });
        Some(quartiles(times.collect()))
    }

    fn ask(&self, load: Load, start: u64, buffer: &mut [u8]) {
        match (self, load.write) {
            (Target::Disk(disk, _), false) => {
                disk.client.read(&disk.ticket, start, buffer).unwrap()
            }
            (Target::Disk(disk, _), true) => {
                disk.client.write(&disk.ticket, start, buffer).unwrap();
            }
            // A disk's first block is the store's own.
            (Target::Nbdkit(client, _), false) => client.read((start + 1) * 4096, buffer),
            (Target::Nbdkit(client, _), true) => client.write((start + 1) * 4096, buffer),
        }
    }
}

fn targets(path: &Path) -> Vec<(&'static str, Target)> {
    let keys = KeyFile::generate().unwrap();
    let device = if path.exists() {
        FileDevice::open(path, Access::ReadWrite).unwrap()
    } else {
        FileDevice::create(path, 1 << 30).unwrap()
    };
    Store::init(&device, keys.id, true).unwrap();
    let chunk = vec![7; 1 << 20];
    for at in 1..device.len() >> 20 {
        device.write_at(&chunk, at << 20).unwrap();
    }
    device.flush().unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let mut targets = vec![
        ("open", disk(&device, &keys, Protection::Open)),
        ("secure", disk(&device, &keys, Protection::Secure)),
        ("private", disk(&device, &keys, Protection::Private)),
    ];
    if let Some(target) = nbdkit(path) {
        targets.push(("nbdkit", target));
    }
    targets
}

fn disk(device: &Arc<dyn Device>, keys: &KeyFile, protection: Protection) -> Target {
    let store = Store::open(device.clone(), Surroundings::default()).unwrap();
    let blocks = store.blocks();
    let config = Config {
        protection,
        ..Config::default()
    };
    let server = Server::start(config, store, keys).unwrap();
    let address = DiskAddress {
        id: keys.id,
        address: server.local_addr().to_string(),
        protection,
        certificate: Some(keys.certificate_hash),
    };
    let timeout = Duration::from_secs(10);
    let admin = Admin::new(address.clone(), keys.key.clone(), timeout);
    admin.set_groups(&[GroupId(1)]).unwrap();
    admin.revoke(GroupId(1), &[CapabilityId(2)]).unwrap();
    // Four extents, as most capabilities have at most (section 6.2 of the paper).
    let quarter = blocks / 4;
    let ticket = |id| {
        keys.key.ticket(Capability {
            disk: keys.id,
            client: ClientId(1),
            group: GroupId(1),
            id: CapabilityId(id),
            mode: Mode::ReadWrite,
            expires: u64::MAX,
            nonce: [1; 16],
            extents: (0..4)
                .map(|i| BlockExtent {
                    start: i * quarter,
                    blocks: quarter,
                })
                .collect(),
        })
    };
    Target::Disk(
        Box::new(Disk {
            client: DiskClient::new(address, timeout),
            ticket: ticket(1),
            revoked: (protection != Protection::Open).then(|| ticket(2)),
        }),
        server,
    )
}

fn nbdkit(path: &Path) -> Option<Target> {
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .ok()?
        .port();
    let child = Command::new("nbdkit")
        .args([
            "--foreground",
            "--exit-with-parent",
            "--ipaddr",
            "127.0.0.1",
        ])
        .args(["--port", &port.to_string(), "file"])
        .arg(path)
        .stdin(Stdio::null())
        .spawn()
        .ok()?;
    let child = Nbdkit(child);
    for _ in 0..100 {
        if let Ok(client) = nbd::Nbd::connect(port, CONNECTIONS) {
            return Some(Target::Nbdkit(client, child));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

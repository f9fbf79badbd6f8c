//! What a metadata server needs for a call, a session and an open file: processor time and memory.
//!
//! `cargo run --release -p strongroom-metadata-server --example server_costs -- DIRECTORY CLIENTS FILES SESSIONS`: the directory must exist and be
//! empty. The disk, the metadata server and the clients are three processes, so what the kernel counts for the server is the server's alone. All
//! clients do one step after the other, each with files of its own. Processor time, memory and counts change less on a busy machine than waiting
//! does, which is not printed. docs/scale.md and the crate `capacity-model` are made of these numbers.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::FileDevice;
use metadata_client::{ClientOptions, SharedRoom};
use metadata_proto::identity::Identity;
use metadata_server::enrol::Disk;
use metadata_server::server::{Config, MetadataServer};
use netdisk::server::{Config as DiskConfig, Server as DiskServer};
use netdisk::{DiskAddress, KeyFile, Protection, Store, Surroundings};
use room::{
    Access, Credential, FileKind, FileSystem, InodeNo, NewCredential, NewFile, NewRoom, Room,
    Secret, SetAttr,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes of each file.
const SIZE: usize = 4096;
/// How long idle sessions are watched, for their heartbeats.
const IDLE: Duration = Duration::from_secs(20);
/// Sessions of one user, of 512 at most.
const SESSIONS_OF_A_USER: usize = 500;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["disk", dir] => serve_disk(Path::new(dir)),
        ["serve", dir, disk, users] => serve(Path::new(dir), disk, users.parse()?),
        [dir, clients, files, sessions] => {
            measure(dir, clients.parse()?, files.parse()?, sessions.parse()?)
        }
        _ => Err("server_costs DIRECTORY CLIENTS FILES SESSIONS".into()),
    }
}

fn measure(dir: &str, clients: usize, files: usize, sessions: usize) -> Result<()> {
    let disk = Server::start(&["disk", dir])?;
    let users = sessions.max(clients).div_ceil(SESSIONS_OF_A_USER);
    let mut server = Server::start(&["serve", dir, &disk.address, &users.to_string()])?;
    let identities = (0..users)
        .map(|n| Ok(Identity::parse(&fs::read(identity(Path::new(dir), n))?)?))
        .collect::<Result<Vec<_>>>()?;
    let address = server.address.clone();
    let connect = |n: usize| {
        let options = ClientOptions::new(address.clone());
        SharedRoom::connect(options, &identities[n / SESSIONS_OF_A_USER])
    };

    let each = files / clients;
    let mut workers = Vec::new();
    for n in 0..clients {
        let client = connect(n)?;
        let new = NewFile::of_kind(FileKind::Directory);
        let parent = client.make(InodeNo::ROOT, format!("client {n}").as_bytes(), &new)?;
        workers.push(Worker {
            client,
            parent: parent.no,
            files: Vec::new(),
        });
    }
    println!("{clients} clients, {each} files of {SIZE} bytes each; of a file:");
    println!(
        "| step | server, us | its busiest thread, us | disk, us | server's memory, bytes | calls |"
    );
    println!("|---|---|---|---|---|---|");
    for (title, step) in STEPS {
        let before = (server.counts()?, disk.cpu()?);
        std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(move || (0..each).try_for_each(|n| step(worker, n))))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a client ended by a bug")?)
        })?;
        // What clients report together, within 250 ms.
        std::thread::sleep(Duration::from_millis(400));
        let after = (server.counts()?, disk.cpu()?);
        let per_file = |before: f64, after: f64| (after - before) / (each * clients) as f64;
        let us = |before: Duration, after: Duration| {
            per_file(before.as_secs_f64(), after.as_secs_f64()) * 1e6
        };
        let calls: Vec<String> = (after.0.calls.iter())
            .map(|(name, count)| {
                let old = before.0.calls.iter().find(|(old, _)| old == name);
                (name, per_file(old.map_or(0.0, |old| old.1), *count))
            })
            .filter(|(_, count)| *count > 0.001)
            .map(|(name, count)| format!("{name} {count:.2}"))
            .collect();
        println!(
            "| {title} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            us(before.0.cpu, after.0.cpu),
            us(before.0.busiest, after.0.busiest),
            us(before.1, after.1),
            per_file(before.0.memory, after.0.memory),
            calls.join(", ")
        );
    }

    let before = server.counts()?.memory;
    let mut idle = Vec::new();
    for upto in [sessions / 10, sessions] {
        let (first, connecting) = (idle.len(), server.cpu()?);
        while idle.len() < upto {
            idle.push(connect(idle.len())?);
        }
        let (cpu, began) = (server.cpu()?, Instant::now());
        let connecting = (cpu - connecting).as_secs_f64() * 1e6 / (upto - first) as f64;
        std::thread::sleep(IDLE);
        let (now, took) = (server.counts()?, began.elapsed());
        println!(
            "{upto} idle sessions: {connecting:.0} us to connect, {:.0} bytes, {:.1} us a second each",
            (now.memory - before) / upto as f64,
            (now.cpu - cpu).as_secs_f64() * 1e6 / took.as_secs_f64() / upto as f64,
        );
    }
    idle.iter().try_for_each(SharedRoom::end)?;
    workers.iter().try_for_each(|worker| worker.client.end())?;
    Ok(())
}

struct Worker {
    client: SharedRoom,
    parent: InodeNo,
    files: Vec<InodeNo>,
}

fn name(n: usize) -> Vec<u8> {
    format!("file {n:08}.txt").into_bytes()
}

type Step = fn(&mut Worker, usize) -> Result<()>;

const STEPS: &[(&str, Step)] = &[
    ("create, close", |w, n| {
        let new = NewFile::of_kind(FileKind::Regular);
        let no = w
            .client
            .create(w.parent, &name(n), &new, Access::READ_WRITE)?
            .no;
        w.client.close(no, Access::READ_WRITE);
        w.files.push(no);
        Ok(())
    }),
    ("write 4 KiB, fsync", |w, n| {
        w.client.write(w.files[n], 0, &[7; SIZE])?;
        Ok(w.client.fsync(w.files[n])?)
    }),
    ("write 4 KiB, flush", |w, n| {
        w.client.write(w.files[n], 0, &[8; SIZE])?;
        Ok(w.client.flush(w.files[n])?)
    }),
    ("lookup", |w, n| {
        w.client.lookup(w.parent, &name(n))?;
        Ok(())
    }),
    ("attributes", |w, n| {
        w.client.attributes(w.files[n])?;
        Ok(())
    }),
    ("open, read 4 KiB, close", |w, n| {
        w.client.open(w.files[n], Access::READ)?;
        w.client.read(w.files[n], 0, &mut [0; SIZE])?;
        w.client.close(w.files[n], Access::READ);
        Ok(())
    }),
    ("chmod", |w, n| {
        w.client.set_attributes(w.files[n], &SetAttr::mode(0o640))?;
        Ok(())
    }),
    ("list: one page of 512 names for 512 files", |w, n| {
        if n % 512 == 0 {
            w.client.read_dir(w.parent, 0, 512)?;
        }
        Ok(())
    }),
    ("open and hold", |w, n| {
        w.client.open(w.files[n], Access::READ)?;
        Ok(())
    }),
    ("close", |w, n| {
        w.client.close(w.files[n], Access::READ);
        Ok(())
    }),
    ("unlink", |w, n| Ok(w.client.unlink(w.parent, &name(n))?)),
];

/// What the metadata server has used and done so far.
struct Counts {
    cpu: Duration,
    /// That of the thread that has had most: the one that serves connections, of which a machine of up to seven processors has one.
    busiest: Duration,
    /// Bytes that it has in memory.
    memory: f64,
    calls: Vec<(String, f64)>,
}

/// A server in a process of its own, which ends with this one: its input ends then.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut address = String::new();
        output.read_line(&mut address)?;
        Ok(Self {
            input: child.stdin.take().ok_or("no input")?,
            child,
            output,
            address: address.trim().into(),
        })
    }

    fn kernel_says(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(format!(
            "/proc/{}/{file}",
            self.child.id()
        ))?)
    }

    /// Threads that ended are in it.
    fn cpu(&self) -> Result<Duration> {
        let stat = self.kernel_says("stat")?;
        let (_, rest) = stat.rsplit_once(')').ok_or("no stat")?;
        let mut ticks = 0;
        for field in rest.split_whitespace().skip(11).take(2) {
            ticks += field.parse::<u64>()?;
        }
        Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second())?)
    }

    fn busiest(&self) -> Result<Duration> {
        let mut most = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // It may have ended meanwhile.
            let times = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            most = most.max(times.split(' ').next().unwrap_or("").parse().unwrap_or(0));
        }
        Ok(Duration::from_nanos(most))
    }

    fn counts(&mut self) -> Result<Counts> {
        let field = |text: &str, name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            Ok(number.ok_or("the kernel says less")?.parse()?)
        };
        let mut counts = Counts {
            cpu: self.cpu()?,
            busiest: self.busiest()?,
            memory: field(&self.kernel_says("status")?, "VmRSS:")? * 1024.0,
            calls: Vec::new(),
        };
        writeln!(self.input)?;
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line)?;
            let Some((name, done)) = line.trim().split_once(' ') else {
                return Ok(counts);
            };
            counts.calls.push((name.into(), done.parse()?));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn identity(dir: &Path, user: usize) -> PathBuf {
    dir.join(format!("user-{user}.identity"))
}

/// Until the input ends.
fn requests() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(std::result::Result::ok)
}

/// A metadata server of a new room on a disk; says the calls done so far for each line of input.
fn serve(dir: &Path, disk: &str, users: usize) -> Result<()> {
    let key = || Secret::from(vec![7; 32]);
    let new = NewRoom::with_credential(NewCredential::RawKey(key()));
    Room::create(&dir.join("room"), new)?.close()?;
    let keys = KeyFile::read(&dir.join("disk.key"))?;
    let mut config = Config::new(dir.join("room"));
    (config.connections_max, config.connections_per_address) = (8192, 8192);
    (config.connections_per_user, config.waiting_max) = (512, 1024);
    config.disks = vec![Disk {
        name: "disk".into(),
        address: DiskAddress {
            id: keys.id,
            address: disk.parse::<SocketAddr>()?.to_string(),
            protection: Protection::Private,
            certificate: Some(keys.certificate_hash),
        },
        key: keys.key,
    }];
    let server = MetadataServer::start(config, Credential::RawKey(key()))?;
    for n in 0..users {
        // The first may do everything. Limits count by number, so each has one.
        let uid = u32::try_from(n * 1000)?;
        let (_, made) = server.add_user(&format!("user-{n}"), uid, &[uid])?;
        fs::write(identity(dir, n), made.to_text("user").as_bytes())?;
    }
    println!("{}", server.local_addr());
    for _ in requests() {
        for (name, count) in server.metrics().calls {
            println!("{name} {}", count.done);
        }
        println!();
    }
    server.stop()?;
    Ok(())
}

/// A network disk of 16 GiB, sparse.
fn serve_disk(dir: &Path) -> Result<()> {
    let device = Arc::new(FileDevice::create(
        &dir.join("disk.store"),
        (16 << 30) + 4096,
    )?);
    let keys = KeyFile::generate()?;
    keys.write(&dir.join("disk.key"))?;
    Store::init(&*device, keys.id, false)?;
    let surroundings = Surroundings {
        origin: fs::read("/proc/sys/kernel/random/boot_id")?,
        failures: None,
    };
    let config = DiskConfig {
        protection: Protection::Private,
        ..DiskConfig::default()
    };
    let server = DiskServer::start(config, Store::open(device, surroundings)?, &keys)?;
    println!("{}", server.local_addr());
    requests().for_each(drop);
    drop(server);
    Ok(())
}

//! How fast clients create small files: network disks, a metadata server and clients in one process, on loopback.
//!
//! `cargo run --release -p strongroom-metadata-server --example create_files -- DIRECTORY mounted|direct CLIENTS SECONDS [fsync] [DISKS]
//! [s3://BUCKET/PREFIX [LOG]]`: the directory must exist and be empty; `mounted` needs /dev/fuse and root. The room is there, or new in a
//! bucket, with its commits in a log as `strongroom create --log` names it. Each client is one program in a directory of its own: create a
//! file, write 4 KiB, `fsync` where asked for, close. Prints files per second, and what a file costs: processor time and
//! switches between threads of the whole process, calls, requests to disks.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bucket::{BucketStorage, CommitLog, LogPlace, Options, Place};
use device::FileDevice;
use metadata_client::{ClientOptions, SharedRoom};
use metadata_server::enrol::Disk;
use metadata_server::server::{
    CallCount, Config, Fence, MetadataServer, OpenFiles, RoomFiles, Turn,
};
use mount::MountOptions;
use netdisk::server::{Config as DiskConfig, Server as DiskServer};
use netdisk::{DiskAddress, KeyFile, Protection, Store, Surroundings, Writer};
use room::{
    Access, Credential, FileKind, FileSystem, InodeNo, NewCredential, NewFile, NewRoom, Room,
    Secret,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SIZE: usize = 4096;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, how, clients, seconds, rest @ ..] = &arguments[..] else {
        return Err(
            "create_files DIRECTORY mounted|direct CLIENTS SECONDS [fsync] [DISKS] [s3://BUCKET/PREFIX [LOG]]"
                .into(),
        );
    };
    let (dir, mounted) = (Path::new(dir), how == "mounted");
    let (clients, seconds): (usize, f64) = (clients.parse()?, seconds.parse()?);
    let (places, rest): (Vec<_>, Vec<_>) = rest.iter().partition(|word| word.contains("://"));
    let fsync = rest.iter().any(|word| *word == "fsync");
    let disks = rest.iter().find(|word| **word != "fsync");
    let disks: usize = disks.map_or(Ok(1), |disks| disks.parse())?;

    let (disk_servers, disks): (Vec<_>, Vec<_>) = (0..disks)
        .map(|n| disk(dir, n))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    let key = || Secret::from(vec![7; 32]);
    let new = NewRoom::with_credential(NewCredential::RawKey(key()));
    let mut config = Config::new(dir.join("room"));
    match places[..] {
        [] => Room::create(&dir.join("room"), new)?.close()?,
        [place, ref log @ ..] => {
            std::fs::create_dir(dir.join("room"))?;
            let files = InBucket::new(dir, place, log.first().copied())?;
            Room::create_on(files.open()?, new)?.close()?;
            config.files = Arc::new(files);
        }
    }
    config.disks = disks;
    let server = MetadataServer::start(config, Credential::RawKey(key()))?;
    let (_, root) = server.add_user("root", 0, &[0])?;
    let connect = || {
        let options = ClientOptions::new(server.local_addr().to_string());
        SharedRoom::connect(options, &root).map(Arc::new)
    };
    let rooms = (0..clients)
        .map(|_| connect())
        .collect::<std::result::Result<Vec<_>, _>>()?;

    let mut programs = Vec::new();
    for (n, client) in rooms.iter().enumerate() {
        let parent = client.make(
            InodeNo::ROOT,
            format!("client-{n}").as_bytes(),
            &NewFile::of_kind(FileKind::Directory),
        )?;
        programs.push(match mounted {
            true => Program::Mounted(Mount::new(client, &dir.join(format!("mount-{n}")), n)?),
            false => Program::Direct(client.clone(), parent.no),
        });
    }
    let running = AtomicBool::new(true);
    let (files, slowest, took, before, after) = std::thread::scope(|scope| -> Result<_> {
        // Connections, grants and caches are there before the clock starts.
        for program in &programs {
            (0..20).try_for_each(|n| program.create(&format!("first-{n}"), fsync))?;
        }
        let counts = || -> Result<Counts> {
            Ok(Counts {
                calls: server.metrics().calls,
                disks: requests(&disk_servers),
                process: Process::now()?,
            })
        };
        let (before, began) = (counts()?, Instant::now());
        let running = &running;
        let threads: Vec<_> = programs
            .iter()
            .map(|program| {
                scope.spawn(move || -> Result<(u64, Duration)> {
                    let (mut files, mut slowest) = (0, Duration::ZERO);
                    while running.load(Ordering::Relaxed) {
                        let since = Instant::now();
                        program.create(&format!("file-{files}"), fsync)?;
                        slowest = slowest.max(since.elapsed());
                        files += 1;
                    }
                    Ok((files, slowest))
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        running.store(false, Ordering::Relaxed);
        let (mut files, mut slowest) = (0, Duration::ZERO);
        for thread in threads {
            let (some, longest) = thread.join().map_err(|_| "a client ended by a bug")??;
            (files, slowest) = (files + some, slowest.max(longest));
        }
        Ok((files, slowest, began.elapsed(), before, counts()?))
    })?;

    println!(
        "{files} files, {:.0} a second, slowest {:.1} ms",
        files as f64 / took.as_secs_f64(),
        slowest.as_secs_f64() * 1e3
    );
    let per_file = |count: u64| count as f64 / files.max(1) as f64;
    println!(
        "  processor {:.0} us a file, {:.1} switches",
        (after.process.cpu - before.process.cpu).as_secs_f64() * 1e6 / files.max(1) as f64,
        per_file(
            after
                .process
                .switches
                .saturating_sub(before.process.switches)
        )
    );
    for (name, count) in &after.calls {
        let old = before.calls.get(name).copied().unwrap_or_default();
        let (done, ns) = (count.done - old.done, count.ns - old.ns);
        if done > 0 {
            let us = ns as f64 / done as f64 / 1e3;
            println!("  {name:12} {:6.3} a file, {us:.0} us each", per_file(done));
        }
    }
    for (name, count) in &after.disks {
        let old = before.disks.get(name).copied().unwrap_or_default();
        if *count > old {
            println!("  disk {name:7} {:6.3} a file", per_file(count - old));
        }
    }
    drop(programs);
    for client in &rooms {
        client.end()?;
    }
    server.stop()?;
    drop(disk_servers);
    Ok(())
}

/// The files of a room in a bucket; the first opening makes them.
#[derive(Debug)]
struct InBucket {
    place: Place,
    log: Option<Arc<dyn CommitLog>>,
    cache: PathBuf,
    is_made: AtomicBool,
}

impl InBucket {
    fn new(dir: &Path, place: &str, log: Option<&String>) -> Result<Self> {
        let place = Place::parse(place)?;
        let log = match log {
            Some(log) => Some(LogPlace::parse(log)?.open(place.bucket())?),
            None => None,
        };
        Ok(Self {
            place,
            log,
            cache: dir.join("cache"),
            is_made: AtomicBool::new(false),
        })
    }

    fn open(&self) -> io::Result<Arc<BucketStorage>> {
        let mut options = Options::default();
        options.log = self.log.clone();
        let (store, prefix) = (self.place.store()?, self.place.prefix());
        let storage = match self.is_made.swap(true, Ordering::Relaxed) {
            true => BucketStorage::open(store, prefix, &self.cache, options),
            false => BucketStorage::create(store, prefix, &self.cache, options),
        };
        storage.map(Arc::new)
    }
}

impl RoomFiles for InBucket {
    fn open(&self, _: &Path, _: &Turn<'_>) -> io::Result<OpenFiles> {
        let storage = self.open()?;
        Ok(OpenFiles {
            storage: storage.clone(),
            fence: Arc::new(Alone(storage)),
        })
    }
}

/// A server without a standby.
#[derive(Debug)]
struct Alone(Arc<BucketStorage>);

impl Fence for Alone {
    fn writer(&self) -> Writer {
        Writer(self.0.writer())
    }

    fn prove(&self) -> io::Result<()> {
        self.0.prove()
    }

    fn holds(&self) -> bool {
        true
    }

    fn is_lost(&self) -> bool {
        self.0.has_failed()
    }
}

enum Program {
    Mounted(Mount),
    Direct(Arc<SharedRoom>, InodeNo),
}

impl Program {
    fn create(&self, name: &str, fsync: bool) -> Result<()> {
        let bytes = [7; SIZE];
        match self {
            Self::Mounted(mount) => {
                let mut file = std::fs::File::create_new(mount.files.join(name))?;
                file.write_all(&bytes)?;
                if fsync {
                    file.sync_all()?;
                }
            }
            // As a mount does it.
            Self::Direct(client, parent) => {
                let new = NewFile::of_kind(FileKind::Regular);
                let no = client
                    .create(*parent, name.as_bytes(), &new, Access::WRITE)?
                    .no;
                client.write(no, 0, &bytes)?;
                if fsync {
                    client.fsync(no)?;
                }
                client.flush(no)?;
                client.close(no, Access::WRITE);
            }
        }
        Ok(())
    }
}

/// A mounted client, unmounted when dropped.
struct Mount {
    files: PathBuf,
    handle: mount::Handle,
    serving: Option<std::thread::JoinHandle<()>>,
}

impl Mount {
    fn new(client: &Arc<SharedRoom>, at: &Path, number: usize) -> Result<Self> {
        std::fs::create_dir(at)?;
        let mounted = mount::mount(client.clone(), at, &MountOptions::default())?;
        let handle = mounted.handle();
        let wait = move || {
            if let Err(e) = mounted.wait() {
                eprintln!("the mount: {e}");
            }
        };
        Ok(Self {
            files: at.join(format!("client-{number}")),
            handle,
            serving: Some(std::thread::spawn(wait)),
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Busy until the kernel has closed the last file.
        let gone = (0..200).any(|_| {
            let done = self.handle.unmount().is_ok();
            if !done {
                std::thread::sleep(Duration::from_millis(20));
            }
            done
        });
        if let (true, Some(serving)) = (gone, self.serving.take()) {
            let _ = serving.join();
        }
    }
}

/// What was done so far.
struct Counts {
    calls: BTreeMap<&'static str, CallCount>,
    disks: BTreeMap<String, u64>,
    process: Process,
}

/// Requests of all disks, by operation.
fn requests(disks: &[DiskServer]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (name, done) in disks.iter().flat_map(|disk| disk.metrics().done) {
        *all.entry(name.to_string()).or_default() += done;
    }
    all
}

/// What this process took.
struct Process {
    cpu: Duration,
    /// Times that a thread waited for another, or for the kernel.
    switches: u64,
}

impl Process {
    fn now() -> Result<Self> {
        let (mut ns, mut switches) = (0, 0);
        for thread in std::fs::read_dir("/proc/self/task")? {
            let thread = thread?.path();
            // It may have ended meanwhile.
            let Ok(status) = std::fs::read_to_string(thread.join("status")) else {
                continue;
            };
            let waited = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            switches += waited.unwrap_or("0").trim().parse::<u64>()?;
            let times = std::fs::read_to_string(thread.join("schedstat"))?;
            ns += times.split(' ').next().unwrap_or("0").parse::<u64>()?;
        }
        Ok(Self {
            cpu: Duration::from_nanos(ns),
            switches,
        })
    }
}

/// A served disk of 4 GiB, sparse, and its entry for the metadata server.
fn disk(dir: &Path, number: usize) -> Result<(DiskServer, Disk)> {
    let path = dir.join(format!("disk-{number}.store"));
    let device = Arc::new(FileDevice::create(&path, (4 << 30) + 4096)?);
    let keys = KeyFile::generate()?;
    Store::init(&*device, keys.id, false)?;
    let surroundings = Surroundings {
        origin: std::fs::read("/proc/sys/kernel/random/boot_id")?,
        failures: None,
    };
    let server = DiskServer::start(
        DiskConfig::default(),
        Store::open(device, surroundings)?,
        &keys,
    )?;
    let entry = Disk {
        name: format!("disk-{number}"),
        address: DiskAddress {
            id: keys.id,
            address: server.local_addr().to_string(),
            protection: Protection::Secure,
            certificate: Some(keys.certificate_hash),
        },
        key: keys.key,
    };
    Ok((server, entry))
}

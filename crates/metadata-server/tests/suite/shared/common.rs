//! A room shared over network disks, all in this process, and clients of it: some mounted, some used directly.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use device::{AroundMemory, Device, MemoryDevice};
use metadata_client::{ClientOptions, SharedRoom};
use metadata_server::enrol::{Disk, Identity};
use metadata_server::server::{Config, MetadataServer};
use mount::{Handle, MountOptions};
use netdisk::server::{Config as DiskConfig, Server as DiskServer};
use netdisk::{DiskAddress, KeyFile, Protection, Reason, Store, Surroundings};
use room::{Credential, NewCredential, NewRoom, OpenOptions, Room, Secret};

use crate::common::port::fixed_port;

/// No test waits for this long unless it fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A session ends this long after its last heartbeat.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

const KEY: [u8; 32] = [7; 32];

fn key() -> Secret {
    Secret::from(KEY.to_vec())
}

/// Memory whose flushes fail on request.
#[derive(Debug)]
struct Memory {
    memory: MemoryDevice,
    fails: Arc<AtomicBool>,
}

impl AroundMemory for Memory {
    fn memory(&self) -> &MemoryDevice {
        &self.memory
    }
    fn sync(&self) -> io::Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(io::Error::other("fails on request")),
            false => self.memory.flush(),
        }
    }
}

/// A disk in memory.
pub(crate) struct OneDisk {
    pub(crate) device: Arc<dyn Device>,
    /// Its flushes fail.
    pub(crate) fails: Arc<AtomicBool>,
    keys: KeyFile,
    config: DiskConfig,
    pub(crate) server: DiskServer,
}

impl OneDisk {
    fn new(bytes: usize) -> Self {
        let fails = Arc::new(AtomicBool::new(false));
        let device: Arc<dyn Device> = Arc::new(Memory {
            memory: MemoryDevice::new(bytes),
            fails: fails.clone(),
        });
        let keys = KeyFile::generate().unwrap();
        Store::init(&*device, keys.id, false).unwrap();
        let config = DiskConfig {
            listen: format!("127.0.0.1:{}", fixed_port()),
            ..DiskConfig::default()
        };
        let server = serve_disk(&device, &config, &keys, b"this machine");
        Self {
            device,
            fails,
            keys,
            config,
            server,
        }
    }

    fn entry(&self, name: String) -> Disk {
        Disk {
            name,
            address: DiskAddress {
                id: self.keys.id,
                address: self.server.local_addr().to_string(),
                protection: Protection::Secure,
                certificate: Some(self.keys.certificate_hash),
            },
            key: self.keys.key.clone(),
        }
    }

    /// Requests that it refused because their right was revoked.
    pub(crate) fn refused_as_revoked(&self) -> u64 {
        self.server.metrics().refused_for(Reason::Revoked)
    }

    /// Ends the server, and starts another on the same port.
    pub(crate) fn restart(&mut self, pause: Duration) {
        self.config.listen = self.server.local_addr().to_string();
        self.server.stop(LONG).unwrap();
        std::thread::sleep(pause);
        self.server = serve_disk(&self.device, &self.config, &self.keys, b"this machine");
    }

    /// As if the machine had lost power: nothing that was not flushed is vouched for.
    pub(crate) fn lose_power(&mut self) {
        self.config.listen = self.server.local_addr().to_string();
        self.server.stop(LONG).unwrap();
        self.server = serve_disk(&self.device, &self.config, &self.keys, b"again");
    }
}

fn serve_disk(
    device: &Arc<dyn Device>,
    config: &DiskConfig,
    keys: &KeyFile,
    origin: &[u8],
) -> DiskServer {
    let surroundings = Surroundings {
        origin: origin.to_vec(),
        failures: None,
    };
    let store = Store::open(device.clone(), surroundings).unwrap();
    DiskServer::start(config.clone(), store, keys).unwrap()
}

/// The whole of it.
pub(crate) struct Shared {
    /// Ends before its disks do.
    server: Option<MetadataServer>,
    pub(crate) disks: Vec<OneDisk>,
    address: SocketAddr,
    /// A session ends this long after its last heartbeat.
    lease: Duration,
    pub(crate) dir: tempfile::TempDir,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self::on_disks(4 << 30)
    }

    /// With two disks of so many bytes.
    pub(crate) fn on_disks(bytes: usize) -> Self {
        Self::with(bytes, LEASE)
    }

    /// No session ends because a busy machine keeps its heartbeats for long.
    pub(crate) fn with_long_leases() -> Self {
        Self::with(4 << 30, LONG)
    }

    fn with(bytes: usize, lease: Duration) -> Self {
        // LOG=debug shows what the parts say.
        let level = std::env::var("LOG").ok().and_then(|text| text.parse().ok());
        let _ = tracing_subscriber::fmt()
            .with_max_level(level.unwrap_or(tracing::Level::ERROR))
            .with_writer(std::io::stderr)
            .try_init();
        let dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).unwrap();
        let disks: Vec<_> = (0..2).map(|_| OneDisk::new(bytes)).collect();
        let new = NewRoom {
            open: Self::open_options(dir.path()),
            ..NewRoom::with_credential(NewCredential::RawKey(key()))
        };
        Room::create(&dir.path().join("room"), new)
            .unwrap()
            .close()
            .unwrap();
        let mut shared = Self {
            disks,
            server: None,
            address: SocketAddr::from(([127, 0, 0, 1], fixed_port())),
            lease,
            dir,
        };
        shared.start();
        shared
    }

    fn open_options(dir: &Path) -> OpenOptions {
        OpenOptions {
            state_dir: Some(dir.join("state")),
            // Tests say themselves when something is to be durable.
            commit_interval_ms: 600_000,
            ..OpenOptions::default()
        }
    }

    /// Starts the metadata server, on the port it had before.
    pub(crate) fn start(&mut self) {
        let config = Config {
            open: Self::open_options(self.dir.path()),
            listen: self.address,
            lease: self.lease,
            flush_timeout: Duration::from_secs(10),
            disks: self
                .disks
                .iter()
                .enumerate()
                .map(|(at, disk)| disk.entry(format!("disk{at}")))
                .collect(),
            ..Config::new(self.dir.path().join("room"))
        };
        let server = MetadataServer::start(config, Credential::RawKey(key())).unwrap();
        self.address = server.local_addr();
        self.server = Some(server);
    }

    /// Whether the server's room has its log.
    pub(crate) fn has_log(&self) -> bool {
        self.dir.path().join("room/catalog.db-log").exists()
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().unwrap().stop().unwrap();
    }

    pub(crate) fn server(&self) -> &MetadataServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn identity(&self, name: &str, uid: u32) -> Identity {
        self.server().add_user(name, uid, &[uid]).unwrap().1
    }

    pub(crate) fn options(&self) -> ClientOptions {
        ClientOptions {
            timeout: Duration::from_secs(30),
            disk_timeout: Duration::from_secs(2),
            ..ClientOptions::new(self.address())
        }
    }

    /// A client that is not mounted.
    pub(crate) fn client(&self, name: &str, uid: u32) -> Arc<SharedRoom> {
        self.client_with(self.options(), name, uid)
    }

    /// The same by another way to the server.
    pub(crate) fn client_by(
        &self,
        address: impl ToString,
        name: &str,
        uid: u32,
    ) -> Arc<SharedRoom> {
        let options = ClientOptions {
            address: address.to_string(),
            ..self.options()
        };
        self.client_with(options, name, uid)
    }

    pub(crate) fn client_with(
        &self,
        options: ClientOptions,
        name: &str,
        uid: u32,
    ) -> Arc<SharedRoom> {
        let identity = self.identity(name, uid);
        Arc::new(SharedRoom::connect(options, &identity).unwrap())
    }

    /// Two clients, mounted.
    pub(crate) fn two(&self) -> Option<[Mount; 2]> {
        Some([self.mount("a")?, self.mount("b")?])
    }

    /// A client of root, mounted. `None`, said on standard error: this machine cannot mount.
    pub(crate) fn mount(&self, name: &str) -> Option<Mount> {
        self.mount_of(name, 0, &MountOptions::default())
    }

    /// The same of any user.
    pub(crate) fn mount_of(&self, name: &str, uid: u32, options: &MountOptions) -> Option<Mount> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs /dev/fuse and root");
            return None;
        }
        let client = self.client(name, uid);
        let at = self.dir.path().join(name);
        std::fs::create_dir(&at).unwrap();
        let mounted = mount::mount(client.clone(), &at, options).unwrap();
        let handle = mounted.handle();
        Some(Mount {
            client,
            at,
            handle,
            serving: Some(std::thread::spawn(move || mounted.wait().unwrap())),
        })
    }
}

/// A mounted client.
pub(crate) struct Mount {
    pub(crate) client: Arc<SharedRoom>,
    at: PathBuf,
    handle: Handle,
    serving: Option<JoinHandle<()>>,
}

impl Mount {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Runs a shell script in the mount; its output.
    pub(crate) fn sh(&self, script: &str) -> Output {
        Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(&self.at)
            .output()
            .unwrap()
    }

    /// Runs a shell script that is to succeed; what it printed.
    pub(crate) fn ok(&self, script: &str) -> String {
        let out = self.sh(script);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{script}\n{said}");
        String::from_utf8(out.stdout).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let serving = self.serving.take().unwrap();
        let gone = !std::thread::panicking()
            && (0..200).any(|_| {
                let done = self.handle.unmount().is_ok();
                if !done {
                    std::thread::sleep(Duration::from_millis(20));
                }
                done
            });
        if gone {
            serving.join().unwrap();
            self.client.end().unwrap();
        } else {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

/// Fails with the first difference, not with all the bytes.
#[track_caller]
pub(crate) fn assert_same(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    if found.len() == expected.len() && differs.is_none() {
        return;
    }
    let differences = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let at = differs.unwrap_or(found.len().min(expected.len()));
    let some = |bytes: &[u8]| bytes[at.min(bytes.len())..bytes.len().min(at + 8)].to_vec();
    panic!(
        "{} bytes instead of {}; {differences} differ, the first at {at}: {:?} instead of {:?}",
        found.len(),
        expected.len(),
        some(found),
        some(expected)
    );
}

/// Bytes that differ everywhere, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

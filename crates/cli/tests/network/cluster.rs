//! Shared storage made fresh: a room, disks, users, and the processes that serve and mount it.
//!
//! 1. One process at a time of each disk, of the metadata server and of each client; each is a child of this process.
//! 2. Whatever a failing test leaves (processes, mounts, namespaces, files) goes when this is dropped. The logs are printed
//!    then.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::common::setting::{Store, versitygw};
use super::common::{Sandbox, can_mount, is_root};
use super::net::Net;
use super::process::{Process, TIMEOUT, until};
use super::writer::{FILES, Orders};
use super::{ORDERS, story::Story};

/// A user of every cluster: name and number. Root's client may do everything.
pub const USERS: [(&str, u32); 3] = [("root", 0), ("ada", 1001), ("bob", 1002)];
/// The metadata server's machine.
pub const SERVER: &str = "server";
/// The machine of the S3 server that has the disks' blocks, where they are in a bucket.
const STORE: &str = "store";
/// A machine on which a disk can go on, where they are in a bucket.
pub const SPARE: &str = "spare";

/// How a cluster is made.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub disks: usize,
    /// Whose clients there are: names of [`USERS`].
    pub clients: &'static [&'static str],
    pub protection: &'static str,
    /// After how many seconds of silence a client counts as dead.
    pub lease: u64,
    /// Whether the disks' blocks are in a bucket.
    pub in_bucket: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            disks: 2,
            clients: &["root", "root"],
            protection: "secure",
            lease: 5,
            in_bucket: false,
        }
    }
}

impl Shape {
    /// With these clients.
    pub fn of(clients: &'static [&'static str]) -> Self {
        Self {
            clients,
            ..Self::default()
        }
    }

    /// One disk and one client.
    pub fn small() -> Self {
        Self {
            disks: 1,
            ..Self::of(&["root"])
        }
    }
}

/// The machines, and what runs on them.
pub struct Cluster {
    pub net: Net,
    shape: Shape,
    ports: Vec<u16>,
    /// The machine of each disk, and how many processes have had it: each with a cache of its own.
    disk_machines: Vec<(String, u32)>,
    disks: Vec<Option<Process>>,
    server: Option<Process>,
    clients: Vec<Option<Process>>,
    store: Option<Store>,
    sandbox: Sandbox,
}

/// A disk's machine.
pub fn disk(number: usize) -> String {
    format!("disk{number}")
}

/// A client's machine.
pub fn client(number: usize) -> String {
    format!("client{number}")
}

/// Makes a file of these bytes durable.
pub fn synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

impl Cluster {
    /// Makes everything and starts it, where this user can mount.
    pub fn start(shape: Shape) -> Option<Cluster> {
        let can = can_mount() && is_root();
        can.then(|| Self::prepare(shape).started())
    }

    fn prepare(shape: Shape) -> Cluster {
        let mut machines: Vec<String> = (0..shape.disks).map(disk).collect();
        machines.extend((0..shape.clients.len()).map(client));
        machines.push(SERVER.into());
        if shape.in_bucket {
            machines.extend([STORE, SPARE].map(str::to_owned));
        }
        let names: Vec<&str> = machines.iter().map(String::as_str).collect();
        let net = Net::new(&names);
        // In a namespace every port is free; on loopback one that is free now is likely to stay so.
        let ports = (0..=shape.disks)
            .map(|number| match net.can_cut() {
                true => 7000 + number as u16,
                false => free_port(),
            })
            .collect();
        let sandbox = Sandbox::with_room();
        let store = shape.in_bucket.then(|| {
            let server = versitygw().expect("the test has looked for it");
            let on = |command: Command| net.on(STORE, &command);
            Store::start(&sandbox.path(""), &server, &net.address(STORE), on)
        });
        let cluster = Cluster {
            net,
            shape,
            ports,
            disk_machines: (0..shape.disks).map(|number| (disk(number), 0)).collect(),
            store,
            disks: (0..shape.disks).map(|_| None).collect(),
            server: None,
            clients: shape.clients.iter().map(|_| None).collect(),
            sandbox,
        };
        for number in 0..shape.disks {
            let name = disk(number);
            let mut command = cluster.disk_command(
                number,
                &[
                    "init",
                    "--size",
                    "16GiB",
                    "--key-out",
                    &format!("{name}.key"),
                ],
            );
            let done = command.output().unwrap();
            let errors = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{name}: {errors}");
            cluster.sandbox.with_pass([
                "disk",
                "add",
                "room",
                &name,
                &cluster.disk_address(number),
                "--key",
                &format!("{name}.key.add"),
                "--protection",
                shape.protection,
            ]);
        }
        cluster
            .sandbox
            .ok(["audit", "init", "audit", "--key-out", "audit.key"]);
        for (name, uid) in USERS {
            let (uid, identity) = (uid.to_string(), format!("{name}.identity"));
            cluster.sandbox.with_pass([
                "user", "add", "room", name, "--uid", &uid, "--gid", &uid, "--out", &identity,
            ]);
        }
        for number in 0..shape.clients.len() {
            std::fs::create_dir(cluster.mountpoint(number)).unwrap();
        }
        cluster
    }

    fn started(mut self) -> Cluster {
        for number in 0..self.shape.disks {
            self.start_disk(number);
        }
        self.start_server();
        for number in 0..self.shape.clients.len() {
            self.start_client(number);
        }
        self
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.sandbox.path(name)
    }

    pub fn disk_address(&self, number: usize) -> String {
        let (machine, _) = &self.disk_machines[number];
        format!("{}:{}", self.net.address(machine), self.ports[number])
    }

    /// A command of `disk` on its machine, with its store.
    fn disk_command(&self, number: usize, arguments: &[&str]) -> Command {
        let (name, (machine, process)) = (disk(number), &self.disk_machines[number]);
        let (store, cache) = match self.shape.in_bucket {
            true => (
                format!("s3://rooms/{name}"),
                format!("{name}.cache{process}"),
            ),
            false => (format!("{name}.store"), String::new()),
        };
        let mut words = vec!["disk"];
        words.extend(arguments);
        words.extend(["--store", &store]);
        if self.shape.in_bucket {
            words.extend(["--cache", &cache]);
        }
        let mut command = self.command(machine, &words);
        command.envs(self.store.iter().flat_map(Store::variables));
        command
    }

    pub fn server_address(&self) -> String {
        format!(
            "{}:{}",
            self.net.address(SERVER),
            self.ports[self.shape.disks]
        )
    }

    fn log(&self, machine: &str) -> PathBuf {
        self.path(format!("{machine}.log"))
    }

    /// The program on a machine.
    pub fn command(&self, machine: &str, arguments: &[&str]) -> Command {
        self.net.on(machine, &self.sandbox.command(arguments))
    }

    /// What the program says on the metadata server's machine; the command must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.sandbox.ok(arguments)
    }

    pub fn start_disk(&mut self, number: usize) {
        self.disks[number] = Some(self.serve_disk(number, &[]));
    }

    fn serve_disk(&self, number: usize, more: &[&str]) -> Process {
        let name = disk(number);
        let (listen, key) = (self.disk_address(number), format!("{name}.key"));
        let mut words = vec!["serve", "--listen", &listen, "--key", &key];
        words.extend(["--protection", self.shape.protection]);
        words.extend(more);
        let (machine, process) = &self.disk_machines[number];
        let log = self.log(&format!("{name}.{machine}.{process}"));
        Process::serve(&name, self.disk_command(number, &words), &log).unwrap()
    }

    /// Another process, with a cache of its own, takes the place of a disk in a bucket, on a machine. Returns the one before, if it is there.
    pub fn take_disk_over(&mut self, number: usize, machine: &str) -> Option<Process> {
        let (before, process) = self.disk_machines[number].clone();
        self.disk_machines[number] = (machine.to_owned(), process + 1);
        let new = self.serve_disk(number, &["--take-over"]);
        if before != machine {
            let (name, address) = (disk(number), self.disk_address(number));
            let key = format!("{name}.key.add");
            let words = ["disk", "add", "room", &name, &address, "--key", &key];
            let protection = ["--protection", self.shape.protection];
            self.ok(&[&words[..], &protection].concat());
        }
        self.disks[number].replace(new)
    }

    /// Whether a file below the place of this cluster has these bytes.
    pub fn is_in_files(&self, directory: &str, bytes: &[u8]) -> bool {
        let mut left = vec![self.path(directory)];
        while let Some(at) = left.pop() {
            if at.is_dir() {
                left.extend(
                    std::fs::read_dir(at)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                continue;
            }
            // One that is removed meanwhile has nothing.
            let content = std::fs::read(&at).unwrap_or_default();
            if content.windows(bytes.len()).any(|there| there == bytes) {
                return true;
            }
        }
        false
    }

    pub fn start_server(&mut self) {
        self.server = Some(self.try_server().unwrap());
    }

    fn try_server(&self) -> Result<Process, String> {
        let command = self.command(
            SERVER,
            &[
                "metadata",
                "serve",
                "--listen",
                &self.server_address(),
                "--room",
                "room",
                "--passphrase-file",
                "pass",
                "--lease",
                &format!("{}s", self.shape.lease),
                "--audit",
                "audit",
            ],
        );
        Process::serve(SERVER, command, &self.log(SERVER))
    }

    /// The audit log is whole, through whatever kills.
    pub fn check_audit(&self) {
        self.ok(&["audit", "verify", "audit", "--key", "audit.key"]);
    }

    pub fn mountpoint(&self, client: usize) -> PathBuf {
        self.path(format!("mnt{client}"))
    }

    fn is_mounted(&self, client: usize) -> bool {
        let at = self.mountpoint(client);
        let at = at.to_str().unwrap();
        std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .any(|line| line.split(' ').nth(4) == Some(at))
    }

    pub fn start_client(&mut self, number: usize) {
        let name = client(number);
        let command = self.command(
            &name,
            &[
                "mount",
                "--foreground",
                "--allow-other",
                &format!("strongroom://{}/", self.server_address()),
                &format!("mnt{number}"),
                "--identity",
                &format!("{}.identity", self.shape.clients[number]),
            ],
        );
        let mut process = Process::start(&name, command, &self.log(&name));
        until("the client mounts", || {
            if let Some(status) = process.wait(Duration::ZERO) {
                panic!("{name} ended with {status}: {}", process.said());
            }
            self.is_mounted(number)
        });
        self.clients[number] = Some(process);
    }

    pub fn disk(&self, number: usize) -> &Process {
        self.disks[number].as_ref().expect("the disk runs")
    }

    pub fn server(&self) -> &Process {
        self.server.as_ref().expect("the server runs")
    }

    pub fn kill_disk(&mut self, number: usize) {
        self.disks[number].take().expect("the disk runs").kill();
    }

    pub fn kill_server(&mut self) {
        self.server.take().expect("the server runs").kill();
    }

    /// Kills a client, and takes its dead mount away.
    pub fn kill_client(&mut self, number: usize) {
        self.clients[number].take().expect("the client runs").kill();
        self.clear(number);
    }

    fn clear(&self, number: usize) {
        let at = self.mountpoint(number);
        until("the dead mount is removed", || {
            !self.is_mounted(number)
                || Command::new("umount")
                    .arg("--lazy")
                    .arg(&at)
                    .output()
                    .is_ok_and(|done| done.status.success())
        });
    }

    /// Unmounts a client as one should.
    pub fn stop_client(&mut self, number: usize) {
        let mut process = self.clients[number].take().expect("the client runs");
        self.sandbox.ok(["umount", &format!("mnt{number}")]);
        let Some(status) = process.wait(TIMEOUT) else {
            panic!("client {number} does not end: {}", process.said());
        };
        assert!(
            status.success(),
            "client {number} ended with {status}: {}",
            process.said()
        );
    }

    /// Stops the server as one should.
    pub fn stop_server(&mut self) {
        let status = self.server.take().expect("the server runs").stop();
        assert!(status.success(), "the server: {status}");
    }

    pub fn stop_disk(&mut self, number: usize) {
        let status = self.disks[number].take().expect("the disk runs").stop();
        assert!(status.success(), "disk {number}: {status}");
    }

    /// Stops everything in order, looks at the room with all that it has, and starts everything again.
    pub fn restart_all(&mut self) {
        for number in 0..self.clients.len() {
            self.stop_client(number);
        }
        self.stop_server();
        for number in 0..self.disks.len() {
            self.stop_disk(number);
            self.start_disk(number);
        }
        self.start_server();
        for number in 0..self.clients.len() {
            self.start_client(number);
        }
    }

    /// A connection to a server, from the first client's machine.
    pub fn connect(&self, address: &str) -> std::net::TcpStream {
        self.net
            .within(&client(0), || std::net::TcpStream::connect(address))
            .unwrap_or_else(|e| panic!("{address}: {e}"))
    }

    /// A writer on a client's mount.
    pub fn start_writer(&self, client: usize, seed: u64, round: u64) -> Writer {
        let orders = Orders {
            root: self.mountpoint(client),
            journal: self.journal(client),
            stop: self.path(format!("stop{client}")),
            seed,
            writer: client as u64,
            round,
            sync_names: false,
        };
        let _ = std::fs::remove_file(&orders.stop);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "writer_process", "--ignored", "--nocapture"])
            .env(ORDERS, orders.line());
        let name = format!("writer{client}");
        let process = Process::start(&name, command, &self.log(&name));
        Writer { process, orders }
    }

    pub fn journal(&self, client: usize) -> PathBuf {
        self.path(format!("journal{client}"))
    }

    /// Judges all files of a writer as they are seen through a client. An error says what is wrong.
    pub fn judge(
        &self,
        seed: u64,
        writer: usize,
        through: usize,
        lived: bool,
    ) -> Result<(), String> {
        let story = Story::read(&self.journal(writer));
        let root = self.mountpoint(through);
        (0..FILES).try_for_each(|file| {
            story
                .judge_at(&root, seed, writer as u64, file, lived)
                .map_err(|why| format!("seen through client {through}: {why}"))
        })
    }

    /// All logs' ends.
    fn logs(&self) -> String {
        let mut all = String::new();
        for entry in std::fs::read_dir(self.path("")).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == "log") {
                let log = std::fs::read(&path).unwrap_or_default();
                let from = log.len().saturating_sub(6000);
                let end = String::from_utf8_lossy(&log[from..]);
                all += &format!("== {}\n{end}\n", path.display());
            }
        }
        all
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for number in 0..self.clients.len() {
            drop(self.clients[number].take());
            if self.is_mounted(number) {
                let _ = Command::new("umount")
                    .arg("--lazy")
                    .arg(self.mountpoint(number))
                    .output();
            }
        }
        self.server = None;
        self.disks.clear();
    }
}

/// A writer at work.
pub struct Writer {
    process: Process,
    orders: Orders,
}

impl Writer {
    pub fn story(&self) -> Story {
        Story::read(&self.orders.journal)
    }

    /// Waits until this many more operations succeeded: everything goes on.
    pub fn goes_on(&mut self, more: u64) {
        let wanted = self.story().successes() + more;
        until("the writer goes on", || {
            if let Some(status) = self.process.wait(Duration::ZERO) {
                panic!("the writer ended with {status}: {}", self.process.said());
            }
            self.story().successes() >= wanted
        });
    }

    /// Ends it, and waits; an error that it found fails the test.
    pub fn stop(mut self) -> Story {
        std::fs::write(&self.orders.stop, "").unwrap();
        let status = self.process.wait(TIMEOUT);
        let said = self.process.said();
        let status = status.unwrap_or_else(|| panic!("the writer hangs: {said}"));
        assert!(status.success(), "the writer: {said}");
        self.story()
    }

    /// Waits for its end after its mount is gone, or kills it where the mount was taken out of sight.
    pub fn abandoned(mut self) {
        std::fs::write(&self.orders.stop, "").unwrap();
        let status = self.process.wait(Duration::from_secs(10));
        let said = self.process.said();
        assert!(
            status.is_none_or(|status| status.success()),
            "the writer: {said}"
        );
        super::story::Journal::append(&self.orders.journal).killed();
    }
}

/// A free port that no client takes while its server is down: below those that Linux gives to connections.
fn free_port() -> u16 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    loop {
        let port = 10_000 + (RandomState::new().build_hasher().finish() % 20_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

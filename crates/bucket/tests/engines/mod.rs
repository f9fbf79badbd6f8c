//! Real engines on loopback, each in a directory of its own. They end with the value that holds them, or with the test program.
#![allow(dead_code, reason = "each test program has one of them")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an engine may take for anything.
const LONG: Duration = Duration::from_secs(60);

/// Runs a program until the standard input ends, says its process, and removes a directory at the end.
const WATCH: &str = r#"signal=$1 dir=$2; shift 2; "$@" </dev/null >&2 & echo $!; read -r _
    kill -s "$signal" $! 2>/dev/null; wait $!; [ -z "$dir" ] || rm -rf "$dir""#;

/// The user that engines run as: PostgreSQL refuses root.
fn nobody() -> Option<u32> {
    let is_root = rustix::process::geteuid().is_root();
    is_root.then(|| {
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        let id = |name: &str| {
            let line = users
                .lines()
                .find(|line| line.starts_with(&format!("{name}:")))?;
            line.split(':').nth(2)?.parse().ok()
        };
        id("postgres")
            .or_else(|| id("nobody"))
            .expect("a user for engines")
    })
}

fn as_nobody(command: &mut Command) -> &mut Command {
    if let Some(user) = nobody() {
        command.uid(user);
    }
    command.current_dir("/")
}

/// A private directory of the engines' user.
fn directory() -> PathBuf {
    let dir = tempfile::Builder::new()
        .prefix("engine")
        .tempdir()
        .unwrap()
        .keep();
    chown(&dir, nobody(), None).unwrap();
    dir
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let ended = as_nobody(command)
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; scripts/engines.sh installs the engines"));
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {text}{error}");
    text
}

#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < LONG, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An authority, and certificates of it: `server` for loopback, `rooms` for a client.
const ISSUE: &str = r#"cd "$0" || exit
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem || exit
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' >names
    for name in server rooms; do
        openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout $name.key -out $name.csr &&
        openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out $name.pem || exit
    done"#;

/// Puts them into a directory of the engines' user.
fn issue_certificates(dir: &Path) {
    run(Command::new("sh").args(["-c", ISSUE]).arg(dir));
}

/// A running program.
struct Running {
    watcher: Child,
    pid: String,
}

impl Running {
    fn start(command: &Command, signal: &str, dir: &Path, is_shared: bool) -> Self {
        let mut watch = Command::new("sh");
        let removed = if is_shared { dir } else { Path::new("") };
        watch
            .args(["-c", WATCH, "sh", signal])
            .arg(removed)
            .arg(command.get_program())
            .args(command.get_args());
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join("log"))
            .unwrap();
        watch
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut watcher = as_nobody(&mut watch).spawn().unwrap();
        let mut pid = String::new();
        let output = watcher.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut pid).unwrap();
        Self {
            watcher,
            pid: pid.trim().to_owned(),
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid])
            .status()
            .unwrap();
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// A PostgreSQL server.
pub(crate) struct Postgres {
    dir: PathBuf,
    pub(crate) port: u16,
    running: Option<Running>,
    /// Held by nobody but the test program, whose end it does not see.
    is_shared: bool,
}

fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut dirs: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    dirs.sort();
    let found = dirs
        .iter()
        .rev()
        .map(|dir| dir.join(name))
        .find(|path| path.exists());
    found.unwrap_or_else(|| PathBuf::from(name))
}

impl Postgres {
    /// A new database cluster, running. `settings` are lines of its configuration.
    pub(crate) fn new(settings: &str) -> Self {
        Self::make(settings, false)
    }

    /// The same, for a static.
    pub(crate) fn shared() -> Self {
        Self::make("", true)
    }

    fn make(settings: &str, is_shared: bool) -> Self {
        let dir = directory();
        let mut initdb = Command::new(postgres_program("initdb"));
        initdb.args("--no-sync -U rooms -A trust -E UTF8 --locale=C -D".split(' '));
        run(initdb.arg(dir.join("data")));
        let mut postgres = Self {
            dir,
            port: free_port(),
            running: None,
            is_shared,
        };
        postgres.configure(settings);
        postgres.start();
        postgres
    }

    /// A server that lets in nobody over TCP but holders of certificates of its authority, whose files are in the directory.
    pub(crate) fn with_certificates() -> (Self, PathBuf) {
        let mut postgres = Self::new("");
        postgres.crash();
        let dir = postgres.dir.clone();
        issue_certificates(&dir);
        let file = |name: &str| dir.join(name).display().to_string();
        postgres.configure(&format!(
            "ssl = on\nssl_ca_file = '{}'\nssl_cert_file = '{}'\nssl_key_file = '{}'",
            file("ca.pem"),
            file("server.pem"),
            file("server.key")
        ));
        let rights = "local all all trust\nhostssl all all 127.0.0.1/32 cert\n";
        postgres.put("data/pg_hba.conf", rights);
        postgres.start();
        (postgres, dir)
    }

    /// A standby of a running server.
    pub(crate) fn standby_of(primary: &Postgres, name: &str) -> Self {
        let dir = directory();
        let mut copy = Command::new(postgres_program("pg_basebackup"));
        copy.arg("-d").arg(format!(
            "{} application_name={name}",
            primary.connection("postgres")
        ));
        run(copy
            .args(["-R", "-X", "stream", "-c", "fast", "-D"])
            .arg(dir.join("data")));
        let mut standby = Self {
            dir,
            port: free_port(),
            running: None,
            is_shared: false,
        };
        standby.configure("");
        standby.start();
        standby
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn configure(&self, settings: &str) {
        let own = format!(
            "\nport = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nmax_connections = 50\nshared_buffers = 16MB\n{settings}\n",
            self.port,
            self.dir.display()
        );
        let path = self.data().join("postgresql.conf");
        let text = std::fs::read_to_string(&path).unwrap() + &own;
        std::fs::write(&path, text).unwrap();
    }

    /// Puts a file of the server's user beside the data.
    pub(crate) fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        chown(&path, nobody(), None).unwrap();
        path
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(postgres_program("postgres"));
        command.arg("-D").arg(self.data());
        self.running = Some(Running::start(&command, "QUIT", &self.dir, self.is_shared));
        wait_for("PostgreSQL", || {
            let mut ready = Command::new(postgres_program("pg_isready"));
            let ready = ready.arg("-q").arg("-d").arg(self.connection("postgres"));
            ready.status().unwrap().success()
        });
    }

    /// Ends it as a crash does.
    pub(crate) fn crash(&mut self) {
        self.running = None;
    }

    /// Stops the server without ending it: its port accepts connections, and nobody answers on them.
    pub(crate) fn pause(&self) {
        self.signal_all("STOP");
    }

    pub(crate) fn go_on(&self) {
        self.signal_all("CONT");
    }

    /// The server, and what serves its sessions.
    fn signal_all(&self, name: &str) {
        let server = self.running.as_ref().unwrap();
        let children = Command::new("pgrep").args(["-P", &server.pid]).output();
        let children = String::from_utf8(children.unwrap().stdout).unwrap();
        server.signal(name);
        for pid in children.split_whitespace() {
            // One may have ended meanwhile.
            let _ = Command::new("kill").args(["-s", name, pid]).status();
        }
    }

    pub(crate) fn promote(&self) {
        let mut promote = Command::new(postgres_program("pg_ctl"));
        run(promote.args(["promote", "-w", "-D"]).arg(self.data()));
    }

    fn connection(&self, database: &str) -> String {
        format!(
            "host={} port={} user=rooms dbname={database}",
            self.dir.display(),
            self.port
        )
    }

    /// Runs SQL as the database's owner.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let mut psql = Command::new(postgres_program("psql"));
        psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d"]);
        run(psql.arg(self.connection("postgres")).args(["-c", sql]))
    }

    /// Everything that the server has, which is on disk then, with a dump beside it.
    pub(crate) fn stored(&self) -> PathBuf {
        self.sql("CHECKPOINT");
        let mut dump = Command::new(postgres_program("pg_dump"));
        self.put(
            "dump",
            &run(dump.arg("-d").arg(self.connection("postgres"))),
        );
        self.dir.clone()
    }

    /// The place of the log, over the server's Unix socket.
    pub(crate) fn place(&self) -> String {
        format!(
            "postgres://rooms@/postgres?host={}&port={}",
            self.dir.display(),
            self.port
        )
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.running = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Members of an etcd cluster.
pub(crate) struct Etcd {
    dir: PathBuf,
    members: Vec<Member>,
    initial: String,
    is_shared: bool,
    /// Clients show certificates, and members too.
    has_certificates: bool,
    /// Signed tokens for users, with a key in the directory.
    has_signed_tokens: bool,
}

struct Member {
    client: u16,
    peer: u16,
    running: Option<Running>,
}

impl Etcd {
    pub(crate) fn new(count: usize) -> Self {
        Self::make(count, false, false)
    }

    /// One member, for a static.
    pub(crate) fn shared() -> Self {
        Self::make(1, true, false)
    }

    /// Members that answer nobody but holders of certificates of their authority, whose files are in the directory.
    pub(crate) fn with_certificates() -> (Self, PathBuf) {
        let etcd = Self::make(1, false, true);
        let dir = etcd.dir.clone();
        (etcd, dir)
    }

    /// One member whose tokens for users are signed, as those of a cluster should be.
    pub(crate) fn with_signed_tokens() -> Self {
        let mut etcd = Self::new(1);
        etcd.kill(0);
        let issue = r#"cd "$0" && openssl genrsa -out token.key 2048 && openssl rsa -in token.key -pubout -out token.pub && chmod a+r token.*"#;
        run(Command::new("sh").args(["-c", issue]).arg(&etcd.dir));
        etcd.has_signed_tokens = true;
        etcd.start(0);
        etcd.is_healthy();
        etcd
    }

    fn is_healthy(&self) {
        wait_for("etcd", || {
            let mut healthy = self.ctl(&["endpoint", "health"]);
            healthy.status().unwrap().success()
        });
    }

    fn make(count: usize, is_shared: bool, has_certificates: bool) -> Self {
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}"));
        let initial = peers.collect::<Vec<_>>().join(",");
        let members = ports.into_iter();
        let members = members.map(|(client, peer)| Member {
            client,
            peer,
            running: None,
        });
        let mut etcd = Self {
            dir: directory(),
            members: members.collect(),
            initial,
            is_shared,
            has_certificates,
            has_signed_tokens: false,
        };
        if has_certificates {
            issue_certificates(&etcd.dir);
        }
        (0..count).for_each(|n| etcd.start(n));
        etcd.is_healthy();
        etcd
    }

    pub(crate) fn start(&mut self, n: usize) {
        let member = &self.members[n];
        let mut command = Command::new("etcd");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let client_url = match self.has_certificates {
            true => format!("https://127.0.0.1:{}", member.client),
            false => url(member.client),
        };
        command.args([
            "--name",
            &format!("m{n}"),
            "--log-level",
            "error",
            "--data-dir",
        ]);
        command.arg(self.dir.join(format!("m{n}")));
        for option in ["--listen-client-urls", "--advertise-client-urls"] {
            command.arg(option).arg(&client_url);
        }
        for option in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.arg(option).arg(url(member.peer));
        }
        command.args(["--initial-cluster", &self.initial]);
        if self.has_certificates {
            let files = [
                ("--cert-file", "server.pem"),
                ("--key-file", "server.key"),
                ("--trusted-ca-file", "ca.pem"),
            ];
            for (option, file) in files {
                command.arg(option).arg(self.dir.join(file));
            }
            command.arg("--client-cert-auth");
        }
        if self.has_signed_tokens {
            let file = |name| self.dir.join(name).display().to_string();
            let (public, private) = (file("token.pub"), file("token.key"));
            let how = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=1h");
            command.args(["--auth-token", &how]);
        }
        let running = Running::start(&command, "KILL", &self.dir, self.is_shared);
        self.members[n].running = Some(running);
    }

    pub(crate) fn kill(&mut self, n: usize) {
        self.members[n].running = None;
    }

    /// Stops a member without ending it: it does not answer, and does not refuse.
    pub(crate) fn pause(&self, n: usize) {
        self.members[n].running.as_ref().unwrap().signal("STOP");
    }

    pub(crate) fn go_on(&self, n: usize) {
        self.members[n].running.as_ref().unwrap().signal("CONT");
    }

    fn hosts(&self) -> String {
        let hosts = self
            .members
            .iter()
            .map(|member| format!("127.0.0.1:{}", member.client));
        hosts.collect::<Vec<_>>().join(",")
    }

    fn ctl(&self, arguments: &[&str]) -> Command {
        let mut ctl = Command::new("etcdctl");
        ctl.env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.hosts()]);
        if self.has_certificates {
            for (option, file) in [
                ("--cacert", "ca.pem"),
                ("--cert", "rooms.pem"),
                ("--key", "rooms.key"),
            ] {
                ctl.arg(option).arg(self.dir.join(file));
            }
        }
        ctl.args(arguments);
        ctl.stdout(Stdio::null()).stderr(Stdio::null());
        ctl
    }

    /// What `etcdctl` prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        run(self
            .ctl(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()))
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> usize {
        let is_leader = |n: &usize| {
            let status = run(Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args([
                    "--endpoints",
                    &format!("127.0.0.1:{}", self.members[*n].client),
                ])
                .args(["endpoint", "status", "-w", "fields"]));
            let field = |name: &str| {
                let line = status
                    .lines()
                    .find(|line| line.contains(name))
                    .unwrap_or_default();
                line.rsplit(' ').next().unwrap_or_default().to_owned()
            };
            field("\"MemberID\"") == field("\"Leader\"")
        };
        (0..self.members.len()).find(is_leader).expect("a leader")
    }

    pub(crate) fn place(&self) -> String {
        format!("etcd://{}/strongroom", self.hosts())
    }

    /// Everything that the members have, which is on disk then.
    pub(crate) fn stored(&self) -> PathBuf {
        // Every acknowledged transaction is in the write-ahead log.
        self.dir.clone()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

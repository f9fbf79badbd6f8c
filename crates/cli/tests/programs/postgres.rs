//! PostgreSQL under pgbench, killed itself or with the mount below it: it recovers by itself, every acknowledged transaction
//! is there, the sums that each transaction keeps equal are equal, and its checks of tables, indexes and page checksums find
//! nothing.
//!
//! Takes minutes, so it runs only when asked for: `make soak SOAK=programs`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::common::{Sandbox, is_root, words};
use super::{moments, room_for, rounds, succeeded};

const TIMEOUT: Duration = Duration::from_secs(120);
const CLIENTS: &str = "4";

/// An account and a server in the room. The server refuses to run as root, so it runs as the user that set-up makes.
struct Cluster {
    tools: PathBuf,
    home: PathBuf,
    data: PathBuf,
    user: u32,
    server: Option<Child>,
}

/// Where Debian has the programs that are not in the path.
fn tools() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .max();
    if newest.is_none() {
        eprintln!("skipped: PostgreSQL is not installed (apt install postgresql)");
    }
    newest
}

fn test_user() -> Option<u32> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let user = passwd
        .lines()
        .find_map(|line| line.strip_prefix("tests:")?.split(':').nth(1)?.parse().ok());
    if user.is_none() {
        eprintln!("skipped: there is no user 'tests'; run scripts/setup.sh test");
    }
    user
}

impl Cluster {
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.tools.join(program));
        command
            .args(args)
            .current_dir(&self.home)
            .uid(self.user)
            .gid(self.user)
            .env("PGHOST", &self.home)
            .env("PGUSER", "tests")
            .env("PGDATABASE", "postgres")
            .env("HOME", &self.home)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        succeeded(&mut self.command(program, args))
    }

    fn ask(&self, sql: &str) -> String {
        self.run("psql", &["-XAt", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .trim()
            .to_owned()
    }

    fn log(&self) -> PathBuf {
        self.home.join("server.log")
    }

    fn start(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let (data, home) = (
            self.data.display().to_string(),
            self.home.display().to_string(),
        );
        let mut args = vec!["-D", &data, "-k", &home];
        // A checkpoint every few seconds, and little memory, so that much is written.
        for setting in [
            "listen_addresses=",
            "shared_buffers=16MB",
            "max_wal_size=32MB",
            "min_wal_size=32MB",
            "checkpoint_timeout=30s",
            "wal_level=replica",
            "fsync=on",
            "full_page_writes=on",
        ] {
            args.extend(["-c", setting]);
        }
        let mut command = self.command("postgres", &args);
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let began = Instant::now();
        while !self
            .command("pg_isready", &["-q"])
            .status()
            .unwrap()
            .success()
        {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < TIMEOUT,
                "PostgreSQL does not come up: {ended:?}\n{}",
                std::fs::read_to_string(self.log()).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server as its manual says to.
    fn stop(&mut self) {
        let mut server = self.server.take().unwrap();
        kill_process(Pid::from_child(&server), Signal::INT).unwrap();
        assert!(
            server.wait().unwrap().success(),
            "PostgreSQL did not end cleanly"
        );
    }

    /// Kills the server and all that it started, and waits until they are gone.
    fn kill(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let family = children_of(server.id());
        let _ = server.kill();
        for pid in &family {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let _ = server.wait();
        let began = Instant::now();
        while family
            .iter()
            .any(|pid| Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists())
        {
            assert!(
                began.elapsed() < TIMEOUT,
                "a process of PostgreSQL cannot be killed"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // A server that is not the one that made it takes it for one of another server.
        let _ = std::fs::remove_file(self.home.join(".s.PGSQL.5432.lock"));
    }

    /// pgbench's transactions, until the server is gone. Returns the process and where it writes.
    fn bench(&self) -> Child {
        self.command(
            "pgbench",
            &[
                "-n",
                "-c",
                CLIENTS,
                "-j",
                "2",
                "-T",
                "600",
                "-l",
                "--log-prefix=done",
            ],
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
    }

    /// How many transactions were acknowledged to pgbench as committed. It logs each, from a buffer that it writes when it ends.
    fn acknowledged(&self) -> u64 {
        let logs = std::fs::read_dir(&self.home).unwrap().flatten();
        let logs: Vec<_> = logs
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().contains("/done."))
            .collect();
        let lines = logs
            .iter()
            .map(|log| std::fs::read_to_string(log).unwrap().lines().count() as u64)
            .sum();
        for log in logs {
            std::fs::remove_file(log).unwrap();
        }
        lines
    }

    /// Everything that can be known to be right.
    fn verify(&self, acknowledged: u64, story: &str) {
        let sums = self.ask(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches), \
             (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
        );
        let sums: Vec<_> = sums.split('|').collect();
        assert!(
            sums.iter().all(|sum| *sum == sums[0]),
            "{story}: the sums of balances differ: {sums:?}"
        );
        let rows: u64 = self
            .ask("SELECT count(*) FROM pgbench_history")
            .parse()
            .unwrap();
        assert!(
            rows >= acknowledged,
            "{story}: {acknowledged} transactions were acknowledged, {rows} are there"
        );
        let clients: u64 = CLIENTS.parse().unwrap();
        eprintln!("{story}: {rows} transactions there, {acknowledged} acknowledged");
        // Each client had at most one under way.
        assert!(
            rows - acknowledged <= clients,
            "{story}: {rows} transactions are there, {acknowledged} acknowledged"
        );
        self.run(
            "pg_amcheck",
            &words("--all --heapallindexed --parent-check --install-missing"),
        );
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

fn children_of(parent: u32) -> Vec<Pid> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name, in brackets, may hold anything; after it come the state and the parent.
        let parent_of = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent_of == Some(parent) {
            children.extend(Pid::from_raw(pid));
        }
    }
    children
}

fn cluster(s: &Sandbox, tools: PathBuf, user: u32) -> Cluster {
    let (home, data) = (s.path("postgres"), s.path("mnt/data"));
    for dir in [&home, &data] {
        std::fs::create_dir(dir).unwrap();
        std::os::unix::fs::chown(dir, Some(user), Some(user)).unwrap();
    }
    std::fs::set_permissions(
        s.path("mnt"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    Cluster {
        tools,
        home,
        data,
        user,
        server: None,
    }
}

#[test]
#[ignore = "takes minutes: make soak SOAK=programs"]
fn postgres_recovers_from_a_kill_of_itself_and_of_its_mount() {
    let (true, Some(tools), Some(user)) = (is_root(), tools(), test_user()) else {
        return;
    };
    let Some(s) = room_for(&[]) else { return };
    let mut cluster = cluster(&s, tools, user);
    let data = cluster.data.display().to_string();
    cluster.run(
        "initdb",
        &[
            "-D",
            &data,
            "-U",
            "tests",
            "-A",
            "trust",
            "--data-checksums",
            "-E",
            "UTF8",
            "--locale=C",
        ],
    );
    cluster.start();
    cluster.run("pgbench", &["-i", "-q", "-s", "3"]);
    let mut there = 0;
    for (round, moment) in (0..rounds(6)).zip(moments(5000)) {
        let whom = ["PostgreSQL", "the mount"][round as usize % 2];
        let story = format!("round {round}, {whom} killed after {moment:?}");
        let mut bench = cluster.bench();
        if round % 2 == 0 {
            std::thread::sleep(moment);
            cluster.kill();
        } else {
            s.kill_after(moment).join().unwrap();
            // It has lost its files: what it still does is of no use, and it holds the dead mount.
            cluster.kill();
        }
        // Its clients notice, and it writes its log.
        bench.wait().unwrap();
        if round % 2 == 1 {
            s.mount_after_kill();
        }
        there += cluster.acknowledged();
        cluster.start();
        cluster.verify(there, &story);
        there = cluster
            .ask("SELECT count(*) FROM pgbench_history")
            .parse()
            .unwrap();
    }
    cluster.stop();
    s.umount();
    assert!(s.mount());
    cluster.run("pg_checksums", &["--check", "-D", &data]);
    cluster.start();
    cluster.verify(there, "after a clean end");
    cluster.stop();
    s.umount();
    s.with_pass(["check", "room", "--read-data"]);
}

//! The room under test, the process that serves it, and what else is done to it.
//!
//! 1. One serving process at a time, a child of this one: it is killed by its process id, at any moment.
//! 2. Whatever a failing test leaves (processes, mount, files) goes when this is dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::attend::{Attendant, Attending, PASS};
use super::common::Sandbox;
use super::common::enable_uring::with_it_enabled;
use super::model::Tree;
use super::plan::places;
use super::writer::Orders;
use fastrand::Rng;

/// Far longer than anything here takes; what is not done by then hangs.
const TIMEOUT: Duration = Duration::from_secs(180);
const ORDERS: &str = "STRONGROOM_KILL_WRITER";

pub struct Place {
    sandbox: Sandbox,
    server: Option<Child>,
    keep: bool,
}

impl Place {
    pub fn new(sandbox: Sandbox) -> Self {
        Self {
            sandbox,
            server: None,
            keep: std::env::var_os("STRONGROOM_KEEP").is_some(),
        }
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.sandbox.path("mnt")
    }

    pub fn journal(&self, writer: u64) -> PathBuf {
        self.sandbox.path(format!("journal-{writer}"))
    }

    fn spawn_server(&mut self) {
        let log = std::fs::File::create(self.sandbox.path("log")).unwrap();
        let mut command = self.sandbox.mount_in_foreground();
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// Mounts the room: it must open by itself, whatever happened to it.
    pub fn start(&mut self) {
        match self.sandbox.over_io_uring {
            true => with_it_enabled(|| self.start_server()),
            false => self.start_server(),
        }
    }

    fn start_server(&mut self) {
        self.spawn_server();
        let began = Instant::now();
        while !self.sandbox.is_mounted() {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            if ended.is_some() || began.elapsed() > TIMEOUT {
                let log = std::fs::read_to_string(self.sandbox.path("log")).unwrap_or_default();
                self.fail(&format!("the room fails to open: {ended:?}\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills the serving process while it opens the room; it may have come as far as to mount it.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.spawn_server();
        std::thread::sleep(after);
        self.kill();
        self.detach();
    }

    pub fn signal_end(&self) {
        let pid = Pid::from_child(self.server.as_ref().unwrap());
        let _ = kill_process(pid, Signal::TERM);
    }

    pub fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        // An error means that it has ended already, which only a signalled one does.
        let _ = server.kill();
        let began = Instant::now();
        while server.try_wait().unwrap().is_none() {
            if began.elapsed() > TIMEOUT {
                let stacks = stacks_of(server.id());
                // Ends what waits for the mount, and so the process.
                let _ = Command::new("umount")
                    .arg("-f")
                    .arg(self.mountpoint())
                    .status();
                self.fail(&format!(
                    "the killed process does not end, and keeps the room locked: {stacks}"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes the dead mount, if there is one.
    pub fn detach(&self) {
        let began = Instant::now();
        while self.sandbox.is_mounted() {
            let ran = self.sandbox.run(["umount", "mnt"]);
            assert!(
                began.elapsed() < TIMEOUT,
                "the dead mount cannot be cleared: {}",
                ran.err
            );
            if ran.code != 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// The directories that plans take for granted, durable.
    pub fn make_roots(&self, writers: u64) -> Vec<Tree> {
        let root = self.mountpoint();
        std::fs::create_dir(root.join("common")).unwrap();
        for writer in 0..writers {
            std::fs::create_dir(root.join(&places(writer)[0])).unwrap();
        }
        rustix::fs::fsync(std::fs::File::open(&root).unwrap()).unwrap();
        (0..writers)
            .map(|writer| Tree::read(&root, writer))
            .collect()
    }

    /// A writer is this very program, in another role.
    pub fn start_writer(&self, orders: &Orders) -> Child {
        let Orders {
            root,
            journal,
            seed,
            round,
            writer,
        } = orders;
        let _ = std::fs::remove_file(journal);
        let line = format!(
            "{seed} {round} {writer} {} {}",
            root.display(),
            journal.display()
        );
        self.start_part("writer_process", (ORDERS, line), *writer)
    }

    /// Starts this very program as writer number `writer`: `test` is what it runs, as the variable says.
    pub fn start_part(&self, test: &str, variable: (&str, String), writer: u64) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(variable.0, variable.1)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.sandbox.path(format!("writer-{writer}"))).unwrap())
            .spawn()
            .unwrap()
    }

    /// Waits until something holds.
    pub fn until(&self, story: &str, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > TIMEOUT {
                self.fail(&format!("{story}: {what}: not within {TIMEOUT:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until all writers are at work: moments count from then, however slow the machine.
    pub fn await_writers(&self, writers: u64) {
        let began = Instant::now();
        for writer in 0..writers {
            while !std::fs::metadata(self.journal(writer)).is_ok_and(|journal| journal.len() > 0) {
                assert!(began.elapsed() < TIMEOUT, "writer {writer} does not begin");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits for the writers to notice that the mount is gone. One that is cut off from a mount taken out of sight never
    /// does, and is killed.
    pub fn end_writers(&self, writers: &mut [Child], story: &str) {
        let began = Instant::now();
        let timeout = if self.sandbox.is_mounted() {
            TIMEOUT
        } else {
            Duration::ZERO
        };
        for (number, writer) in writers.iter_mut().enumerate() {
            let status = loop {
                if let Some(status) = writer.try_wait().unwrap() {
                    break Some(status);
                }
                if began.elapsed() > timeout {
                    let _ = writer.kill();
                    writer.wait().unwrap();
                    assert!(
                        timeout.is_zero(),
                        "{story}: writer {number} hangs on a dead mount"
                    );
                    break None;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            use std::os::unix::process::ExitStatusExt;
            if let Some(status) = status
                && !status.success()
                && status.signal() != Some(Signal::BUS.as_raw())
            {
                let said = std::fs::read_to_string(self.sandbox.path(format!("writer-{number}")))
                    .unwrap_or_default();
                self.fail(&format!(
                    "{story}: writer {number} ended with {status}: {said}"
                ));
            }
        }
    }

    /// Starts the attendant.
    pub fn attend(&self, who: Attendant) -> Attending {
        let command = who.command();
        Attending::begin(
            who,
            (!command.is_empty()).then(|| self.sandbox.command(command)),
        )
    }

    /// Kills a command at work on the room, which is not mounted. Returns how many were.
    pub fn kill_a_command(&mut self, random: &mut Rng) -> u64 {
        let command = match random.u64(..5) {
            0 => Attendant::Compact.command(),
            1 => Attendant::Backup.command(),
            2 => Attendant::ChangeKey.command(),
            3 => [&["check", "room", "--read-data", "--repair"], &PASS[..]].concat(),
            _ => Attendant::Rekey.command(),
        };
        let mut child = self
            .sandbox
            .command(&command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.u64(..120)));
        let _ = child.kill();
        u64::from(!child.wait().unwrap().success())
    }

    /// Checks the mounted room, through the process that serves it.
    pub fn check_mounted(&self, story: &str) {
        self.check_unmounted(story);
    }

    pub fn check_unmounted(&self, story: &str) {
        let ran = self
            .sandbox
            .run(["check", "room", "--read-data"].iter().chain(&PASS));
        if ran.code != 0 {
            self.fail(&format!(
                "{story}: check says {}: {}{}",
                ran.code,
                ran.text(),
                ran.err
            ));
        }
    }

    /// For the analysis of a failure: the room as the kill left it.
    pub fn keep_copy(&self) {
        if self.keep {
            let _ = std::fs::remove_dir_all(self.sandbox.path("room.killed"));
            copy(
                &self.sandbox.path("room"),
                &self.sandbox.path("room.killed"),
            );
        }
    }

    /// Fails the test, and keeps what there is to look into.
    pub fn fail(&self, why: &str) -> ! {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kill-failure");
        let _ = std::fs::remove_dir_all(&kept);
        std::fs::create_dir_all(&kept).unwrap();
        let _ = std::fs::write(kept.join("story"), why);
        for entry in std::fs::read_dir(self.sandbox.path("")).unwrap().flatten() {
            if entry.file_name() != "mnt" {
                copy(&entry.path(), &kept);
            }
        }
        panic!(
            "{why}\nthe room, its journals and its log are in {}",
            kept.display()
        );
    }

    /// Unmounts as one should, and looks once more.
    pub fn end(&mut self, trees: &[Tree]) {
        self.sandbox.umount();
        self.server.take().unwrap().wait().unwrap();
        self.start();
        for (writer, tree) in (0..).zip(trees) {
            let found = Tree::read(&self.mountpoint(), writer);
            assert!(
                tree.is_same(&found),
                "after a clean end: {:?}",
                tree.differences(&found)
            );
        }
        self.sandbox.umount();
        self.server.take().unwrap().wait().unwrap();
        self.check_unmounted("at the end");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The orders of this process if it is a writer.
pub fn orders() -> Option<Orders> {
    let orders = std::env::var(ORDERS).ok()?;
    let mut words = orders.splitn(5, ' ');
    let mut number = || words.next().unwrap().parse().unwrap();
    let (seed, round, writer) = (number(), number(), number());
    Some(Orders {
        seed,
        round,
        writer,
        root: words.next().unwrap().into(),
        journal: words.next().unwrap().into(),
    })
}

/// Where the threads of a process are in the kernel, as far as this user may know.
fn stacks_of(pid: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("stack")).unwrap_or_default())
        .collect()
}

fn copy(from: &Path, to: &Path) {
    // A socket is not copied, which cp says and which does not matter.
    let _ = Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .stderr(Stdio::null())
        .status();
}

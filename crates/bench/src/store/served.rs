//! File systems that a process serves: a mounted room, files in memory, gocryptfs, securefs, CryFS; made, mounted and unmounted here.
//!
//! 1. Each is used with the options it has by default, served by one child of ours, in the foreground, so that its processor
//!    time can be measured and its end be waited for. The child is in a process group of its own: Ctrl-C is for us.
//! 2. A mount is in the run file before it is made.
//! 3. The password protects nothing and is no secret.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use room::{Credential, Room};

use super::{Cold, Making, Mode, Names, Object, Powers, Store, facts, host, room as in_library};
use crate::model::StoreFacts;
use crate::run_file::{WorkDir, is_mounted, unmount};
use crate::{Error, Result};

const PASSWORD: &str = "correct horse battery staple";
/// CryFS alone takes some 20 seconds over its password.
const MOUNT_FOR: Duration = Duration::from_secs(120);
const END_FOR: Duration = Duration::from_secs(120);

/// What can be mounted for a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A room.
    Room,
    /// Files in memory behind the same FUSE library as a room: what FUSE itself allows.
    Memory,
    /// gocryptfs 2.
    Gocryptfs,
    /// securefs.
    Securefs,
    /// CryFS.
    Cryfs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [
        Kind::Room,
        Kind::Memory,
        Kind::Gocryptfs,
        Kind::Securefs,
        Kind::Cryfs,
    ];

    /// The word before the colon of a target.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Room => "mounted",
            Kind::Memory => "memory",
            Kind::Gocryptfs => "gocryptfs",
            Kind::Securefs => "securefs",
            Kind::Cryfs => "cryfs",
        }
    }

    /// Whether another program serves it, which may not be installed.
    pub fn is_other_tool(self) -> bool {
        !matches!(self, Kind::Room | Kind::Memory)
    }

    fn version_words(self) -> &'static [&'static str] {
        match self {
            Kind::Room | Kind::Memory => &[],
            Kind::Gocryptfs => &["-version"],
            Kind::Securefs => &["version"],
            Kind::Cryfs => &["--version"],
        }
    }
}

/// Such a file system.
pub(crate) struct Served {
    kind: Kind,
    facts: StoreFacts,
    program: PathBuf,
    work: WorkDir,
    child: Option<Child>,
    drop_caches: bool,
    direct: bool,
}

impl Served {
    /// Makes one in a work directory below `under`, and mounts it.
    pub(crate) fn make(kind: Kind, under: &Path, target: &str, making: &Making) -> Result<Served> {
        let program = match kind {
            Kind::Room | Kind::Memory => making
                .program
                .clone()
                .ok_or_else(|| Error::store(kind.word(), "the strongroom program was not found"))?,
            _ => find_program(kind.word())?,
        };
        let work = making.run.directory(under)?;
        let beneath = match kind {
            Kind::Memory => StoreFacts::default(),
            _ => facts::of_path(work.path()),
        };
        let facts = StoreFacts {
            label: making.label.clone(),
            kind: match kind {
                Kind::Room => "mounted room",
                Kind::Memory => "files in memory behind FUSE",
                other => other.word(),
            }
            .into(),
            target: target.into(),
            ..beneath
        };
        let mut served = Served {
            kind,
            facts,
            program,
            work,
            child: None,
            drop_caches: making.drop_caches,
            direct: false,
        };
        served.prepare(making)?;
        served.mount()?;
        served.facts.transport = served.transport();
        served.direct = host::takes_direct(&served.mountpoint())?;
        Ok(served)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn mountpoint(&self) -> PathBuf {
        self.at("mnt")
    }

    fn failed(&self, why: impl Into<String>) -> Error {
        Error::store(&self.facts.label, why)
    }

    /// Everything before the first mount.
    fn prepare(&mut self, making: &Making) -> Result<()> {
        let make_dir = |path: &Path| {
            DirBuilder::new()
                .mode(0o700)
                .create(path)
                .map_err(|e| Error::io(path, "making a directory", e))
        };
        make_dir(&self.mountpoint())?;
        let backing = self.at("store");
        match self.kind {
            Kind::Room => {
                let (new, credential) = in_library::fresh_room(making, self.work.path());
                let failed = |e: room::Error| Error::store(&self.facts.label, e.to_string());
                let made = Room::create(&backing, new).map_err(failed)?;
                let info = made.info().map_err(failed)?;
                made.close().map_err(failed)?;
                self.facts.cipher = Some(info.suite.name().into());
                self.facts.version = Some(env!("CARGO_PKG_VERSION").into());
                if let Credential::RawKey(secret) = &credential {
                    self.secret("key", secret.expose())?;
                }
            }
            Kind::Gocryptfs => {
                make_dir(&backing)?;
                self.secret("password", format!("{PASSWORD}\n").as_bytes())?;
                let mut command = Command::new(&self.program);
                command.args(["-q", "-init", "-passfile"]);
                command.arg(self.at("password")).arg(&backing);
                self.run(command)?;
                self.facts.cipher = Some("AES-256-GCM".into());
            }
            Kind::Securefs => {
                make_dir(&backing)?;
                let mut command = Command::new(&self.program);
                command.args(["create", "--pass", PASSWORD]).arg(&backing);
                self.run(command)?;
                self.facts.cipher = Some("AES-256-GCM".into());
            }
            Kind::Memory => self.facts.version = Some(env!("CARGO_PKG_VERSION").into()),
            // The first mount makes it.
            Kind::Cryfs => make_dir(&backing)?,
        }
        if !self.kind.version_words().is_empty() {
            self.facts.version = self.version();
        }
        Ok(())
    }

    fn secret(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.at(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(&path)
            .and_then(|mut file| file.write_all(content))
            .map_err(|e| Error::io(path, "writing the key", e))
    }

    fn version(&self) -> Option<String> {
        let ran = Command::new(&self.program)
            .args(self.kind.version_words())
            .env("CRYFS_NO_UPDATE_CHECK", "true")
            .env("CRYFS_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        Some(line.split(';').next().unwrap_or(line).trim().to_owned())
    }

    fn run(&self, mut command: Command) -> Result<()> {
        let ran = command
            .stdin(Stdio::null())
            .output()
            .map_err(|e| self.failed(format!("{}: {e}", self.program.display())))?;
        if ran.status.success() {
            return Ok(());
        }
        let said = [ran.stdout, ran.stderr].concat();
        Err(self.failed(format!(
            "{} ended with {}: {}",
            self.program.display(),
            ran.status,
            last_lines(&said)
        )))
    }

    fn mount_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let (backing, point) = (self.at("store"), self.mountpoint());
        match self.kind {
            Kind::Room => {
                command.arg("mount").arg(backing).arg(point);
                command.arg("--foreground").arg("--raw-key-file");
                command.arg(self.at("key"));
                // What the machine remembers of rooms stays in the work directory.
                command.env("XDG_STATE_HOME", self.at("state"));
            }
            Kind::Memory => {
                command.args(["bench", "serve-memory"]).arg(point);
            }
            Kind::Gocryptfs => {
                command.args(["-q", "-fg", "-nosyslog", "-passfile"]);
                command.arg(self.at("password")).arg(backing).arg(point);
            }
            Kind::Securefs => {
                command.args(["mount", "--pass", PASSWORD]);
                command.arg(backing).arg(point);
            }
            Kind::Cryfs => {
                command.arg("-f").arg(backing).arg(point);
                command.env("CRYFS_FRONTEND", "noninteractive");
                command.env("CRYFS_NO_UPDATE_CHECK", "true");
                command.env("CRYFS_LOCAL_STATE_DIR", self.at("state"));
            }
        }
        command
    }

    fn mount(&mut self) -> Result<()> {
        let point = self.mountpoint();
        self.work.run().will_mount(&point)?;
        let log_path = self.at("log");
        let log = File::options().create(true).append(true).open(&log_path);
        let log = log.map_err(|e| Error::io(&log_path, "making the log", e))?;
        let errors = log
            .try_clone()
            .map_err(|e| Error::io(&log_path, "sharing the log", e))?;
        let mut command = self.mount_command();
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(log).stderr(errors);
        let mut child = command
            .spawn()
            .map_err(|e| self.failed(format!("{}: {e}", self.program.display())))?;
        if let Some(mut input) = child.stdin.take()
            && self.kind == Kind::Cryfs
        {
            // One that ends without reading says why in its log.
            let _ = writeln!(input, "{PASSWORD}");
        }
        let child = self.child.insert(child);
        let began = Instant::now();
        while !is_mounted(&point) {
            let ended = child.try_wait().ok().flatten();
            if ended.is_none() && began.elapsed() < MOUNT_FOR {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            let how = match ended {
                Some(status) => format!("ended with {status} instead of mounting"),
                None => format!("did not mount within {} s", MOUNT_FOR.as_secs()),
            };
            let said = std::fs::read(&log_path).unwrap_or_default();
            return Err(self.failed(format!(
                "{} {how}: {}",
                self.program.display(),
                last_lines(&said)
            )));
        }
        Ok(())
    }

    /// By what requests come to our own two, which say so soon after they are mounted; what others use is not known.
    fn transport(&self) -> Option<String> {
        let said = match self.kind {
            Kind::Room => Self::said_by_room,
            Kind::Memory => Self::said_by_memory,
            Kind::Gocryptfs | Kind::Securefs | Kind::Cryfs => return None,
        };
        let began = Instant::now();
        loop {
            let transport = said(self).ok()?;
            if transport.is_some() || began.elapsed() > MOUNT_FOR {
                return transport;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn said_by_room(&self) -> io::Result<Option<String>> {
        let mut command = Command::new(&self.program);
        command.args(["--json", "info"]).arg(self.mountpoint());
        command.arg("--raw-key-file").arg(self.at("key"));
        command.env("XDG_STATE_HOME", self.at("state"));
        let said = command.stdin(Stdio::null()).output()?.stdout;
        let said: serde_json::Value = serde_json::from_slice(&said)?;
        Ok(said["mounted"]["transport"].as_str().map(str::to_owned))
    }

    fn said_by_memory(&self) -> io::Result<Option<String>> {
        let said = std::fs::read_to_string(self.at("log"))?;
        Ok(said.split_once('\n').map(|(said, _)| said.to_owned()))
    }

    /// Unmounts, and waits until the process has written its last.
    fn unmount(&mut self) -> Result<()> {
        let point = self.mountpoint();
        if is_mounted(&point) {
            unmount(&point)?;
        }
        self.work.run().unmounted(&point);
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        let began = Instant::now();
        loop {
            match child.try_wait() {
                Ok(None) if began.elapsed() < END_FOR => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(None) => {
                    return Err(self.failed(format!(
                        "still runs {} s after it was unmounted",
                        END_FOR.as_secs()
                    )));
                }
                Ok(Some(_)) => {
                    self.child = None;
                    return Ok(());
                }
                Err(e) => return Err(self.failed(format!("waiting for its end: {e}"))),
            }
        }
    }
}

impl Store for Served {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn powers(&self) -> Powers {
        Powers {
            direct: self.direct,
            files: true,
            single: false,
        }
    }

    fn open(&mut self, name: &str, mode: Mode) -> Result<Arc<dyn Object>> {
        host::HostFile::open(&self.mountpoint().join(name), mode)
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        super::remove_host(&self.mountpoint().join(name))
    }

    fn names(&mut self) -> Result<Arc<dyn Names>> {
        let backing = self.backing();
        let beneath = match &backing {
            Some(backing) => host::Beneath::Served(&**backing),
            None => host::Beneath::Memory,
        };
        host::HostNames::open(&self.mountpoint(), beneath)
    }

    fn settle(&mut self) -> Result<()> {
        host::sync_below(&self.mountpoint())?;
        match self.backing() {
            Some(backing) => host::sync_below(&backing),
            None => Ok(()),
        }
    }

    fn make_cold(&mut self) -> Result<Cold> {
        if self.kind == Kind::Memory {
            // Unmounted, it would be gone.
            host::sync_below(&self.mountpoint())?;
            host::forget_pages(&self.mountpoint())?;
            let done = vec!["page cache emptied of its files".into()];
            return Ok(Cold {
                done,
                missing: Vec::new(),
            });
        }
        self.unmount()?;
        host::sync_below(&self.at("store"))?;
        host::forget_pages(&self.at("store"))?;
        let mut cold = Cold::default();
        cold.done
            .push("mounted afresh, page cache emptied of the store's files".into());
        super::forget_all(self.drop_caches, &mut cold);
        self.mount()?;
        // Mounting reads a little of the store: its catalog, its header.
        host::forget_pages(&self.at("store"))?;
        Ok(cold)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.mountpoint())
    }

    fn backing(&self) -> Option<PathBuf> {
        (self.kind != Kind::Memory).then(|| self.at("store"))
    }

    fn pids(&self) -> Vec<u32> {
        self.child.iter().map(Child::id).collect()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.unmount()?;
        self.work.remove()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::error!("{error}");
        }
        // One that does not end by being unmounted, or never came to mount.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            Error::store(
                name,
                format!("not installed; on Debian: apt install {name}"),
            )
        })
}

fn last_lines(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

//! A room, its replica, what they may hold, and the commands that are killed.
//!
//! 1. A tree of the room is known by its number: each round makes another one.
//! 2. Every process has ended before anything is looked at: all of them have the same standard error, which is read to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use room::{
    Credential, FileSystem, InodeNo, NewSnapshot, OpenOptions, ReplicaStatus, Room, Secret,
    Snapshots,
};
use rustix::process::{Pid, Signal, kill_process};

use super::act::Act::{self, *};
use super::act::Victim;
use crate::common::random::choices;
use crate::common::{self, Sandbox, noise};
use fastrand::Rng;

const FILES: u64 = 6;
/// Bytes of the largest file.
const LARGEST: u64 = 400_000;
/// Snapshots made by the trial.
const SNAPSHOTS: usize = 5;
const ROOT: InodeNo = InodeNo(1);
const PASS: [&str; 2] = ["--passphrase-file", "pass"];

type Tree = BTreeMap<String, Vec<u8>>;

pub struct Place {
    s: Sandbox,
    pub can_mount: bool,
    pub story: String,
    /// Every tree that the room had, by number.
    trees: BTreeMap<u64, Tree>,
    now: u64,
    /// The snapshots made here, and which tree they are.
    snapshots: BTreeMap<String, u64>,
    /// Those that are being deleted: there or not.
    doomed: BTreeSet<String>,
    /// The tree that the replica was last; it never goes back.
    replica: u64,
    seen: BTreeSet<u64>,
    /// What a restore may have put in the place of each file.
    restored: Option<Tree>,
    all_or_nothing: bool,
    /// How long each command takes.
    usual: BTreeMap<String, Duration>,
    /// Bytes of the last stream that was sent whole.
    usual_bytes: u64,
    number: u64,
}

impl Place {
    pub fn new(seed: u64) -> Self {
        let s = Sandbox::with_room();
        std::fs::create_dir(s.path("tmp")).unwrap();
        std::fs::create_dir(s.path("bin")).unwrap();
        let ssh = s.path("bin/ssh");
        // What ssh does, on this host. The receiver is a process of its own, and both leave their numbers.
        let script = "#!/bin/sh\necho $$ > carrier\nexec 3<&0\nsh -c \"echo \\$\\$ > receiver; exec $3\" <&3 3<&- &\nexec 3<&- <&-\nwait $!\n";
        std::fs::write(&ssh, script).unwrap();
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut place = Self {
            can_mount: common::can_mount(),
            s,
            story: String::new(),
            trees: BTreeMap::from([(0, Tree::new())]),
            now: 0,
            snapshots: BTreeMap::new(),
            doomed: BTreeSet::new(),
            replica: 0,
            seen: BTreeSet::new(),
            restored: None,
            all_or_nothing: false,
            usual: BTreeMap::new(),
            usual_bytes: 300_000,
            number: 0,
        };
        place.with_pass(&["snapshot", "policy", "set", "room", "--hourly", "1"]);
        for round in 0..3 {
            place.change(&mut choices(seed, round, 2));
        }
        place.catch_up();
        place
    }

    pub fn moments_seen(&self) -> usize {
        self.seen.len()
    }

    fn with_pass(&self, args: &[&str]) {
        let ran = self.command(args).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{}: {args:?}: {said}", self.story);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.s.command(args.iter().chain(&PASS));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.s.path("bin")).chain(std::env::split_paths(&path));
        command
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("TMPDIR", self.s.path("tmp"))
            .stdout(Stdio::null());
        command
    }

    fn options(&self, read_only: bool) -> OpenOptions {
        OpenOptions {
            read_only,
            background: false,
            state_dir: Some(self.s.path("state/strongroom")),
            ..OpenOptions::default()
        }
    }

    fn open(&self, dir: &str, read_only: bool) -> Room {
        let began = Instant::now();
        loop {
            let secret = Secret::from("correct horse battery staple");
            let with = Credential::Passphrase(secret);
            match Room::open(&self.s.path(dir), &with, self.options(read_only)) {
                Ok(room) => return room,
                // A killed process of a mount has it until it is gone.
                Err(room::Error::InUse { .. }) if began.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(e) => panic!("{}: {dir} fails to open: {e}", self.story),
            }
        }
    }

    /// Writes, replaces and removes some files; makes a snapshot now and then.
    pub fn change(&mut self, random: &mut Rng) {
        let room = self.open("room", false);
        let mut tree = self.trees[&self.now].clone();
        for _ in 0..=random.u64(..3) {
            let name = format!("f{}", random.u64(..FILES));
            let no = match room.lookup(ROOT, name.as_bytes()) {
                Ok(inode) if random.u64(..6) == 0 => {
                    room.unlink(ROOT, name.as_bytes()).unwrap();
                    tree.remove(&name);
                    drop(inode);
                    continue;
                }
                Ok(inode) => inode.no,
                Err(_) => {
                    room.write_file(Path::new("/").join(&name), b"").unwrap();
                    room.lookup(ROOT, name.as_bytes()).unwrap().no
                }
            };
            let offset = random.u64(..LARGEST / 2);
            let data = noise(1 + random.u64(..LARGEST / 2) as usize, random.u64(..));
            room.write(no, offset, &data).unwrap();
            let file = tree.entry(name).or_default();
            let end = offset as usize + data.len();
            file.resize(file.len().max(end), 0);
            file[offset as usize..end].copy_from_slice(&data);
        }
        // No two trees are the same.
        self.now += 1;
        let stamp = format!("tree {}", self.now).into_bytes();
        room.write_file("/stamp", &stamp).unwrap();
        tree.insert("stamp".into(), stamp);
        if self.snapshots.len() < SNAPSHOTS {
            let automatic = random.bool();
            let name = format!("{}{}", if automatic { "a" } else { "s" }, self.now);
            room.create_snapshot(&name, NewSnapshot { automatic })
                .unwrap();
            self.snapshots.insert(name, self.now);
        }
        self.trees.insert(self.now, tree);
        room.close().unwrap();
    }

    /// Brings the replica up to date, and expects that.
    pub fn catch_up(&mut self) {
        self.with_pass(&["replicate", "room", "copy"]);
        self.verify();
        assert_eq!(self.replica, self.now, "{}", self.story);
        // What killed senders had collected went with the first that was not killed.
        let mut left = std::fs::read_dir(self.s.path("tmp")).unwrap();
        assert!(left.next().is_none(), "{}: temporary files", self.story);
    }

    /// Runs a command, and kills somebody unless it is `None`. Whether it was still running then.
    pub fn act(&mut self, act: Act, victim: Victim, random: &mut Rng) -> bool {
        let some = |names: Vec<String>, random: &mut Rng| -> Option<String> {
            (!names.is_empty()).then(|| names[random.usize(..names.len())].clone())
        };
        // The mount may delete an automatic one before the command comes to it.
        let there = |name: &&String| !(act.mounted() && name.starts_with('a'));
        let names: Vec<String> = self.snapshots.keys().filter(there).cloned().collect();
        let chosen = some(names, random);
        let target = format!("ssh://backup{}", self.s.path("copy").display());
        let program = common::program().display().to_string();
        let args: Vec<String> = match (act, &chosen) {
            (Pipe, _) => return self.pipe(victim, random),
            (Replicate | MountedReplicate, _) => words("replicate room copy"),
            (ReplicateBySsh, _) => vec![
                "replicate".into(),
                "room".into(),
                target,
                "--remote-command".into(),
                program,
            ],
            (Settle, _) => words("receive copy --verify --status"),
            (Prune | MountedPrune, _) => {
                self.doom_automatic();
                words("snapshot prune room")
            }
            (Delete | MountedDelete, Some(name)) => {
                self.doomed.insert(name.clone());
                words(&format!("snapshot delete room {name}"))
            }
            (RestoreAll, Some(name)) => {
                self.restored = Some(self.trees[&self.snapshots[name]].clone());
                self.all_or_nothing = true;
                words(&format!("snapshot restore room {name} /"))
            }
            (RestoreFile | MountedRestore, Some(name)) => {
                let then = &self.trees[&self.snapshots[name]];
                let file = some(
                    then.keys().filter(|n| *n != "stamp").cloned().collect(),
                    random,
                );
                let file = file.unwrap_or_else(|| "stamp".into());
                self.restored = Some(Tree::from([(file.clone(), then[&file].clone())]));
                words(&format!("snapshot restore room {name} /{file}"))
            }
            _ => {
                self.number += 1;
                let name = format!("c{}", self.number);
                self.snapshots.insert(name.clone(), self.now);
                self.doomed.insert(name.clone());
                words(&format!("snapshot create room {name}"))
            }
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if act.mounted() {
            // A mount follows the policy by itself.
            self.doom_automatic();
        }
        let server = act.mounted().then(|| {
            assert!(self.s.mount(), "{}", self.story);
            self.s.pid()
        });
        for name in ["carrier", "receiver"] {
            let _ = std::fs::remove_file(self.s.path(name));
        }
        let key = format!("{act:?} {victim:?}");
        let usual = *self
            .usual
            .entry(key.clone())
            .or_insert(Duration::from_millis(300));
        let wait = usual.mul_f64(random.u64(..1000) as f64 / 900.0);
        let mut child = self.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        let mut killed = false;
        if victim != Victim::None {
            std::thread::sleep(wait);
            killed = child.try_wait().unwrap().is_none();
            let at = match victim {
                Victim::Command => Some(child.id()),
                Victim::Receiver => self.process("receiver"),
                Victim::Carrier => self.process("carrier"),
                _ => server,
            };
            // What has ended already is not there any more.
            killed &= at.is_some_and(kill);
        }
        let (success, said) = end(&mut child);
        if !killed {
            assert!(success, "{}: {args:?}: {said}", self.story);
            self.usual.insert(key, began.elapsed());
        }
        if act.mounted() {
            self.s.clear_after_kill();
        }
        killed
    }

    fn doom_automatic(&mut self) {
        let names = self.snapshots.keys();
        let automatic = names.filter(|name| name.starts_with('a'));
        self.doomed.extend(automatic.cloned());
    }

    /// A process that left its number, if it still is what it was.
    fn process(&self, file: &str) -> Option<u32> {
        let number = std::fs::read_to_string(self.s.path(file)).ok()?;
        let number: u32 = number.trim().parse().ok()?;
        let of_this_trial = std::fs::read_link(format!("/proc/{number}/cwd")).ok()?;
        (of_this_trial == self.s.path("").canonicalize().ok()?).then_some(number)
    }

    /// `send | receive`, by hand: one of them is killed after a random number of bytes.
    fn pipe(&mut self, victim: Victim, random: &mut Rng) -> bool {
        let room = self.open("room", false);
        let status = ReplicaStatus::of(&self.s.path("copy")).unwrap();
        let since = status.moment.map(|m| {
            let name = room.snapshot_of(&m).unwrap();
            name.unwrap_or_else(|| panic!("{}: moment {m} is in no snapshot", self.story))
        });
        let going_on = status.unfinished.filter(|u| u.since == status.moment);
        let resumed = going_on.and_then(|u| Some((room.snapshot_of(&u.to).unwrap()?, u.token)));
        let (to, token) = match resumed {
            Some((to, token)) => (to, Some(token.to_string())),
            None => {
                self.number += 1;
                // As those of `replicate`: it removes them.
                let name = format!("p{}", self.number);
                room.create_snapshot(&name, NewSnapshot { automatic: false })
                    .unwrap();
                (name, None)
            }
        };
        room.close().unwrap();
        let mut args = vec!["send".to_owned(), format!("room@{to}")];
        for (option, value) in [("--since", &since), ("--resume", &token)] {
            args.extend(value.iter().flat_map(|v| [option.to_owned(), v.clone()]));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut send = self.command(&args);
        let mut sender = send
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut receive = self.s.command(["receive", "copy"]);
        receive
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut receiver = receive.spawn().unwrap();
        let (mut from, mut into) = (sender.stdout.take().unwrap(), receiver.stdin.take());
        let limit = match victim {
            Victim::None => u64::MAX,
            _ => random.u64(..self.usual_bytes + self.usual_bytes / 8),
        };
        let (mut passed, mut killed, mut buffer) = (0, false, vec![0; 16 << 10]);
        loop {
            let part = (buffer.len() as u64).min(limit - passed) as usize;
            if part == 0 {
                match victim {
                    Victim::Receiver => drop((receiver.kill(), into.take())),
                    _ => drop(sender.kill()),
                }
                killed = true;
                break;
            }
            let read = from.read(&mut buffer[..part]).unwrap();
            if read == 0 {
                break;
            }
            passed += read as u64;
            if into
                .as_mut()
                .is_some_and(|into| into.write_all(&buffer[..read]).is_err())
            {
                break;
            }
        }
        drop((from, into));
        let (sent, why_not_sent) = end(&mut sender);
        let (received, why_not_received) = end(&mut receiver);
        if !killed {
            let refused =
                token.is_some() && why_not_sent.contains("the token is of other snapshots");
            let said = format!("{why_not_sent}\n{why_not_received}");
            assert!(
                (sent && received) || refused,
                "{}: {args:?}: {said}",
                self.story
            );
            self.usual_bytes = passed.max(1000);
        }
        killed
    }

    /// Room and replica are what they may be.
    pub fn verify(&mut self) {
        self.verify_room();
        if !self.s.path("copy").join("replica").exists()
            && !self.s.path("copy/incoming.done").exists()
        {
            assert_eq!(self.replica, 0, "{}: the replica is gone", self.story);
            return;
        }
        let copy = self.open("copy", true);
        self.sound(&copy, "copy");
        let found = read(&copy);
        let tree = self.trees.iter().rev().find(|(_, tree)| **tree == found);
        let Some((&number, _)) = tree else {
            panic!("{}: the replica is no moment of the room", self.story);
        };
        assert!(
            number >= self.replica,
            "{}: the replica went from {} back to {number}",
            self.story,
            self.replica
        );
        for snapshot in copy.snapshots().unwrap() {
            if let Some(number) = self.snapshots.get(&snapshot.name) {
                let past = copy.snapshot(&snapshot.name).unwrap();
                let same = read(&*past) == self.trees[number];
                assert!(
                    same,
                    "{}: snapshot {} of the replica",
                    self.story, snapshot.name
                );
            }
        }
        drop(copy);
        self.replica = number;
        self.seen.insert(number);
        self.trees.retain(|no, _| {
            *no >= number || self.snapshots.values().any(|s| s == no) || *no == self.now
        });
    }

    fn verify_room(&mut self) {
        let room = self.open("room", false);
        self.sound(&room, "the room");
        let was = self.trees[&self.now].clone();
        let there: BTreeSet<String> = room
            .snapshots()
            .unwrap()
            .into_iter()
            .map(|s| s.name)
            .collect();
        for (name, number) in self.snapshots.clone() {
            if there.contains(&name) {
                let past = room.snapshot(&name).unwrap();
                assert!(
                    read(&*past) == self.trees[&number],
                    "{}: snapshot {name}",
                    self.story
                );
            } else {
                assert!(
                    self.doomed.contains(&name),
                    "{}: snapshot {name} is gone",
                    self.story
                );
                self.snapshots.remove(&name);
            }
        }
        for name in there
            .iter()
            .filter(|name| name.starts_with("before-restore"))
        {
            let past = room.snapshot(name).unwrap();
            assert!(
                read(&*past) == was,
                "{}: {name} is not what was before",
                self.story
            );
            room.delete_snapshot(name).unwrap();
        }
        // Those that nothing needs.
        let moment = ReplicaStatus::of(&self.s.path("copy")).unwrap();
        let needed: Vec<String> = [moment.moment, moment.unfinished.map(|u| u.to)]
            .iter()
            .flatten()
            .filter_map(|m| room.snapshot_of(m).unwrap())
            .collect();
        for name in there
            .iter()
            .filter(|name| name.starts_with('p') && !needed.contains(name))
        {
            room.delete_snapshot(name).unwrap();
        }
        let found = read(&room);
        if found != was {
            let Some(then) = self.restored.take() else {
                panic!("{}: the room is not what it was", self.story);
            };
            let whole = self.all_or_nothing && found == then;
            let parts = !self.all_or_nothing
                && found.iter().all(|(name, data)| {
                    was.get(name) == Some(data) || then.get(name) == Some(data)
                })
                && was.keys().all(|name| found.contains_key(name));
            assert!(
                whole || parts,
                "{}: neither what it was nor what was restored",
                self.story
            );
            self.now += 1;
            let stamp = format!("tree {}", self.now).into_bytes();
            room.write_file("/stamp", &stamp).unwrap();
            let mut tree = found;
            tree.insert("stamp".into(), stamp);
            self.trees.insert(self.now, tree);
        }
        for name in names(&room, ROOT)
            .iter()
            .filter(|name| name.starts_with(".strongroom"))
        {
            remove(&room, name);
        }
        room.close().unwrap();
        (self.restored, self.all_or_nothing) = (None, false);
        self.doomed.clear();
    }

    fn sound(&self, room: &Room, what: &str) {
        let report = room.check(true, false, &|_, _| true).unwrap();
        assert!(
            report.findings.is_empty() && report.lost.is_empty(),
            "{}: {what}: {report:?}",
            self.story
        );
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Kill -9. Whether it was there.
fn kill(process: u32) -> bool {
    Pid::from_raw(process as i32).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

/// Waits for a command and everything that it started. Whether it succeeded, and what it said.
fn end(child: &mut Child) -> (bool, String) {
    let mut said = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut said).unwrap();
    (
        child.wait().unwrap().success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

fn names(fs: &dyn FileSystem, dir: InodeNo) -> Vec<String> {
    let entries = fs.read_dir(dir, 0, 10_000).unwrap().into_iter();
    let name = |entry: room::DirEntry| String::from_utf8(entry.name).unwrap();
    entries.map(|(entry, _)| name(entry)).collect()
}

/// The files of the root, without those that a killed command was about to put somewhere.
fn read(fs: &dyn FileSystem) -> Tree {
    let ours = names(fs, ROOT)
        .into_iter()
        .filter(|name| !name.starts_with(".strongroom"));
    let contents = |name: &String| {
        let inode = fs.lookup(ROOT, name.as_bytes()).unwrap();
        let mut data = vec![0; inode.size as usize];
        fs.read(inode.no, 0, &mut data).unwrap();
        data
    };
    ours.map(|name| (name.clone(), contents(&name))).collect()
}

fn remove(room: &Room, name: &str) {
    let inode = room.lookup(ROOT, name.as_bytes()).unwrap();
    if inode.kind != room::FileKind::Directory {
        return room.unlink(ROOT, name.as_bytes()).unwrap();
    }
    for below in names(room, inode.no) {
        room.unlink(inode.no, below.as_bytes()).unwrap();
    }
    room.rmdir(ROOT, name.as_bytes()).unwrap();
}

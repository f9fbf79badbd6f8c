//! Operations on names while the metadata server is killed again and again: each answer is compared with a model, and none may be
//! unknown.
//!
//! `STRONGROOM_NET_NAME_OPERATIONS` and `STRONGROOM_NET_NAME_KILLS` set how many operations and kills there are.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::cluster::{Cluster, Shape};
use super::process::TIMEOUT;
use super::{number, seed};
use fastrand::Rng;

/// Operations and kills in `make test`.
const OPERATIONS: u64 = 600;
const KILLS: u64 = 6;
const CLIENTS: usize = 4;
/// Names of each client: few, so that operations meet.
const NAMES: u64 = 10;
/// The longest time without a server, milliseconds.
const DOWN_MS: u64 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

/// What a name leads to; hard links have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    kind: Kind,
    number: u64,
}

/// What one client's directory must hold.
#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<String, Node>,
    modes: BTreeMap<u64, u32>,
    last: u64,
}

#[derive(Debug)]
enum Operation {
    Make(Kind, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameFlags),
    Mode(String, u32),
}

impl Operation {
    fn draw(random: &mut Rng) -> Self {
        let name = |random: &mut Rng| format!("n{}", random.u64(..NAMES));
        let (a, b) = (name(random), name(random));
        match random.u64(..12) {
            0..3 => Self::Make(Kind::File, a),
            3 => Self::Make(Kind::Directory, a),
            4 => Self::Make(Kind::Link, a),
            5 => Self::Link(a, b),
            6 | 7 => Self::Unlink(a),
            8 => Self::Rmdir(a),
            9 => Self::Rename(a, b, RenameFlags::empty()),
            10 if random.bool() => Self::Rename(a, b, RenameFlags::NOREPLACE),
            10 => Self::Rename(a, b, RenameFlags::EXCHANGE),
            _ => Self::Mode(a, 0o600 + random.u64(..0o100) as u32),
        }
    }

    fn run(&self, at: &Path) -> Result<(), Errno> {
        let path = |name: &String| at.join(name);
        let done = match self {
            Self::Make(Kind::File, a) => std::fs::File::create_new(path(a)).map(drop),
            Self::Make(Kind::Directory, a) => std::fs::create_dir(path(a)),
            Self::Make(Kind::Link, a) => symlink("nowhere", path(a)),
            Self::Link(a, b) => std::fs::hard_link(path(a), path(b)),
            Self::Unlink(a) => std::fs::remove_file(path(a)),
            Self::Rmdir(a) => std::fs::remove_dir(path(a)),
            Self::Rename(a, b, flags) => {
                renameat_with(CWD, path(a), CWD, path(b), *flags).map_err(io::Error::from)
            }
            Self::Mode(a, mode) => {
                std::fs::set_permissions(path(a), PermissionsExt::from_mode(*mode))
            }
        };
        done.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }
}

impl Model {
    /// Does it to the model: the answer that the file system must give.
    fn answer(&mut self, operation: &Operation) -> Result<(), Errno> {
        let find = |name: &String| self.names.get(name).copied();
        match operation {
            Operation::Make(kind, a) => {
                if find(a).is_some() {
                    return Err(Errno::EXIST);
                }
                self.last += 1;
                let (kind, number) = (*kind, self.last);
                self.names.insert(a.clone(), Node { kind, number });
            }
            Operation::Link(a, b) => {
                let node = find(a).ok_or(Errno::NOENT)?;
                if find(b).is_some() {
                    return Err(Errno::EXIST);
                }
                if node.kind == Kind::Directory {
                    return Err(Errno::PERM);
                }
                self.names.insert(b.clone(), node);
            }
            Operation::Unlink(a) => {
                if find(a).ok_or(Errno::NOENT)?.kind == Kind::Directory {
                    return Err(Errno::ISDIR);
                }
                self.names.remove(a);
            }
            Operation::Rmdir(a) => {
                if find(a).ok_or(Errno::NOENT)?.kind != Kind::Directory {
                    return Err(Errno::NOTDIR);
                }
                self.names.remove(a);
            }
            Operation::Rename(a, b, flags) => {
                let moved = find(a).ok_or(Errno::NOENT)?;
                let target = find(b);
                if *flags == RenameFlags::NOREPLACE && target.is_some() {
                    return Err(Errno::EXIST);
                }
                if *flags == RenameFlags::EXCHANGE {
                    self.names.insert(a.clone(), target.ok_or(Errno::NOENT)?);
                    self.names.insert(b.clone(), moved);
                    return Ok(());
                }
                if let Some(target) = target {
                    if target.number == moved.number {
                        return Ok(());
                    }
                    match (moved.kind, target.kind) {
                        (Kind::Directory, Kind::Directory) => {}
                        (Kind::Directory, _) => return Err(Errno::NOTDIR),
                        (_, Kind::Directory) => return Err(Errno::ISDIR),
                        _ => {}
                    }
                }
                self.names.remove(a);
                self.names.insert(b.clone(), moved);
            }
            Operation::Mode(a, mode) => {
                let node = find(a).ok_or(Errno::NOENT)?;
                // Follows the link, which leads nowhere.
                if node.kind == Kind::Link {
                    return Err(Errno::NOENT);
                }
                self.modes.insert(node.number, *mode);
            }
        }
        Ok(())
    }

    /// Compares a directory with the model: names, kinds, numbers of links, modes that were set.
    fn judge(&self, at: &Path) {
        let mut found: Vec<String> = std::fs::read_dir(at)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort_unstable();
        let expected: Vec<String> = self.names.keys().cloned().collect();
        assert_eq!(found, expected, "{}", at.display());
        for (name, node) in &self.names {
            let path = at.join(name);
            let is = std::fs::symlink_metadata(&path).unwrap();
            let kind = match is.file_type() {
                kind if kind.is_dir() => Kind::Directory,
                kind if kind.is_symlink() => Kind::Link,
                _ => Kind::File,
            };
            assert_eq!(kind, node.kind, "{}", path.display());
            let same = self.names.values().filter(|n| n.number == node.number);
            let links = match kind {
                Kind::Directory => 2,
                _ => same.count() as u64,
            };
            assert_eq!(is.nlink(), links, "{}: links", path.display());
            if let Some(mode) = self.modes.get(&node.number) {
                assert_eq!(is.mode() & 0o7777, *mode, "{}: mode", path.display());
            }
        }
    }
}

/// One name that all clients create and remove: only one succeeds at a time.
struct Contended {
    path: &'static str,
    held: AtomicBool,
    won: AtomicU64,
}

impl Contended {
    fn run(&self, at: &Path) -> Result<(), String> {
        let path = at.join(self.path);
        match std::fs::File::create_new(&path) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(e) => return Err(format!("creating the name that all want: {e}")),
        }
        if self.held.swap(true, Ordering::SeqCst) {
            return Err("two clients created the same name".into());
        }
        self.won.fetch_add(1, Ordering::Relaxed);
        self.held.store(false, Ordering::SeqCst);
        std::fs::remove_file(&path).map_err(|e| format!("removing the name that was created: {e}"))
    }
}

#[test]
fn each_operation_on_names_gets_its_one_answer_however_often_the_server_is_killed() {
    let seed = seed();
    let operations = number("STRONGROOM_NET_NAME_OPERATIONS").unwrap_or(OPERATIONS);
    let kills = number("STRONGROOM_NET_NAME_KILLS").unwrap_or(KILLS);
    let Some(mut cluster) = Cluster::start(Shape {
        disks: 1,
        clients: &["root"; CLIENTS],
        ..Shape::default()
    }) else {
        return;
    };
    let own = |cluster: &Cluster, through: usize, of: usize| -> PathBuf {
        cluster.mountpoint(through).join(format!("of{of}"))
    };
    for client in 0..CLIENTS {
        std::fs::create_dir(own(&cluster, client, client)).unwrap();
    }
    let contended = Contended {
        path: "wanted",
        held: AtomicBool::new(false),
        won: AtomicU64::new(0),
    };
    let (begun, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let longest = AtomicU64::new(0);
    let work = |at: PathBuf, root: PathBuf, client: usize| -> Result<(Model, u64), String> {
        let mut random = Rng::with_seed(seed ^ (client as u64 + 1) << 32);
        let (mut model, mut refused) = (Model::default(), 0);
        while begun.fetch_add(1, Ordering::SeqCst) < operations {
            let since = Instant::now();
            if random.u64(..8) == 0 {
                contended.run(&root)?;
            } else {
                let operation = Operation::draw(&mut random);
                let (found, expected) = (operation.run(&at), model.answer(&operation));
                if found != expected {
                    return Err(format!(
                        "client {client}, {operation:?}: {found:?} instead of {expected:?}"
                    ));
                }
                refused += u64::from(found.is_err());
            }
            let took = since.elapsed().as_millis() as u64;
            longest.fetch_max(took, Ordering::Relaxed);
        }
        Ok((model, refused))
    };
    let mut random = Rng::with_seed(seed);
    let models: Vec<(Model, u64)> = std::thread::scope(|scope| {
        let (work, failed) = (&work, &failed);
        let workers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (at, root) = (own(&cluster, client, client), cluster.mountpoint(client));
                scope.spawn(move || {
                    let worked = work(at, root, client);
                    failed.fetch_or(worked.is_err(), Ordering::SeqCst);
                    worked
                })
            })
            .collect();
        for kill in 0..kills {
            // Spread over the operations, wherever in them.
            let span = operations / (kills + 1);
            let at = kill * span + random.u64(..span.max(1));
            let waits = Instant::now();
            while begun.load(Ordering::SeqCst) < at && !failed.load(Ordering::SeqCst) {
                assert!(
                    waits.elapsed() < TIMEOUT,
                    "nothing goes on before kill {kill}"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
            if failed.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
            cluster.kill_server();
            std::thread::sleep(Duration::from_millis(random.u64(..DOWN_MS)));
            cluster.start_server();
            if kill % 50 == 49 {
                eprintln!(
                    "{} kills, {} operations",
                    kill + 1,
                    begun.load(Ordering::SeqCst)
                );
            }
        }
        let ended = workers.into_iter().map(|worker| worker.join().unwrap());
        ended
            .collect::<Result<_, String>>()
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"))
    });
    let refused: u64 = models.iter().map(|(_, refused)| refused).sum();
    eprintln!(
        "seed {seed}: {operations} operations by {CLIENTS} clients, {kills} kills of the server: each answered as the model, \
         {refused} of them refusals; the name that all want was won {} times; the longest took {} ms",
        contended.won.load(Ordering::Relaxed),
        longest.load(Ordering::Relaxed)
    );
    let judge = |cluster: &Cluster| {
        for (of, (model, _)) in models.iter().enumerate() {
            for through in 0..CLIENTS {
                model.judge(&own(cluster, through, of));
            }
        }
        assert!(!cluster.mountpoint(0).join(contended.path).exists());
    };
    judge(&cluster);
    cluster.restart_all();
    judge(&cluster);
}

//! What each writer does: a sequence of operations that the seed, the round and the writer's number alone decide.
//!
//! 1. The writer that carries it out and the judge who follows it in the model draw the same sequence: no choice depends on
//!    what was found on the mount.
//! 2. Every byte written says who wrote it, in which round, by which operation, for which place.
//!
//! Knows nothing of mounts and of models.

use super::common::random::choices;
use fastrand::Rng;

/// How a write reaches the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the kernel's cache; closing hands it over.
    Cached,
    /// Past the cache: O_DIRECT.
    Direct,
    /// O_SYNC: acknowledged means durable.
    Synced,
}

/// One operation. Paths are relative to the mount. Lengths and offsets are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Opens, creating if need be, and writes at an offset.
    Put {
        path: String,
        offset: u64,
        len: u64,
        way: Way,
    },
    /// Opens, creating if need be, and writes at the end.
    Append {
        path: String,
        len: u64,
        way: Way,
    },
    /// Writes through a mapping of an existing file, within its length; `at` is taken modulo that. With msync, or without.
    Map {
        path: String,
        at: u64,
        len: u64,
        sync: bool,
    },
    Truncate {
        path: String,
        len: u64,
    },
    /// fallocate: a hole, or zeros, within the length.
    Punch {
        path: String,
        offset: u64,
        len: u64,
    },
    Zero {
        path: String,
        offset: u64,
        len: u64,
    },
    /// copy_file_range between two files that exist.
    Copy {
        from: String,
        to: String,
        offset: u64,
        len: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    /// RENAME_EXCHANGE.
    Exchange {
        a: String,
        b: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    SetXattr {
        path: String,
        name: String,
        len: u64,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// fsync or fdatasync of a file or directory.
    Sync {
        path: String,
        data_only: bool,
    },
}

impl Op {
    /// Whether success means that it, and everything before it, is durable.
    pub fn acknowledges(&self) -> bool {
        match self {
            Op::Sync { .. } => true,
            Op::Put { way, .. } | Op::Append { way, .. } => *way == Way::Synced,
            Op::Map { sync, .. } => *sync,
            _ => false,
        }
    }

    /// Whether the file system gets it in one request, so that it is there as a whole or not at all.
    pub fn is_whole(&self) -> bool {
        !matches!(
            self,
            Op::Put { .. } | Op::Append { .. } | Op::Map { .. } | Op::Copy { .. }
        )
    }
}

/// The operations of one writer in one round, without end.
#[derive(Debug)]
pub struct Plan {
    random: Rng,
    writer: u64,
    next: std::collections::VecDeque<Op>,
    files: Vec<String>,
    dirs: Vec<String>,
}

/// Where a writer's names begin: a directory of its own, and names in one that all share.
pub fn places(writer: u64) -> [String; 2] {
    [format!("w{writer}"), format!("common/w{writer}-")]
}

const NAMES: [&str; 3] = ["user.kill", "user.other", "trusted.kill"];

impl Plan {
    pub fn new(seed: u64, round: u64, writer: u64) -> Self {
        let [own, shared] = places(writer);
        let files = ["a", "b", "c", "d", "sub/a", "sub/b"]
            .iter()
            .map(|name| format!("{own}/{name}"))
            .chain(["a", "b", "c"].iter().map(|name| format!("{shared}{name}")))
            .collect();
        let dirs = ["sub", "sub/deep", "moved"]
            .iter()
            .map(|name| format!("{own}/{name}"))
            .chain([format!("{shared}dir")])
            .collect();
        Self {
            random: choices(seed, round, writer + 1),
            writer,
            next: std::collections::VecDeque::new(),
            files,
            dirs,
        }
    }

    fn file(&mut self) -> String {
        self.random.choice(&self.files).unwrap().clone()
    }

    fn dir(&mut self) -> String {
        self.random.choice(&self.dirs).unwrap().clone()
    }

    /// Mostly small, at times several chunks of the room.
    fn len(&mut self) -> u64 {
        let most = [300, 5000, 20_000, 70_000, 300_000]
            [[0, 0, 1, 1, 1, 2, 2, 3, 3, 4][self.random.usize(..10)]];
        1 + self.random.u64(..most)
    }

    /// On a page's edge, or anywhere.
    fn offset(&mut self) -> u64 {
        match self.random.u64(..4) {
            0 => 0,
            1 => self.random.u64(..24) * 4096,
            2 => (1 << 20) - self.random.u64(..8000),
            _ => self.random.u64(..100_000),
        }
    }

    fn way(&mut self) -> Way {
        match self.random.u64(..8) {
            0 => Way::Synced,
            1 | 2 => Way::Direct,
            _ => Way::Cached,
        }
    }

    fn sync(&mut self, path: &str) {
        let data_only = self.random.u64(..3) == 0;
        self.next.push_back(Op::Sync {
            path: path.to_owned(),
            data_only,
        });
    }

    fn draw(&mut self) {
        let [own, shared] = places(self.writer);
        let path = self.file();
        match self.random.u64(..24) {
            // The way of editors: a reader sees the old contents or the new.
            0..=2 => {
                let temporary = format!("{own}/temporary");
                let len = self.len();
                self.next.extend([
                    Op::Unlink {
                        path: temporary.clone(),
                    },
                    Op::Put {
                        path: temporary.clone(),
                        offset: 0,
                        len,
                        way: Way::Cached,
                    },
                    Op::Sync {
                        path: temporary.clone(),
                        data_only: false,
                    },
                    Op::Rename {
                        from: temporary,
                        to: path.clone(),
                    },
                ]);
                let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
                self.sync(&dir);
            }
            3..=5 => {
                let (len, way) = (self.len(), self.way());
                self.next.push_back(Op::Append {
                    path: path.clone(),
                    len,
                    way,
                });
                if self.random.bool() {
                    self.sync(&path);
                }
            }
            6..=8 => {
                let (offset, len, way) = (self.offset(), self.len(), self.way());
                self.next.push_back(Op::Put {
                    path: path.clone(),
                    offset,
                    len,
                    way,
                });
                if self.random.u64(..3) == 0 {
                    self.sync(&path);
                }
            }
            9 | 10 => {
                let (at, len) = (self.random.u64(..), self.len());
                let sync = self.random.bool();
                self.next.push_back(Op::Map {
                    path,
                    at,
                    len,
                    sync,
                });
            }
            11 => {
                let len = self.offset();
                self.next.push_back(Op::Truncate { path, len });
            }
            12 => {
                let (offset, len) = (self.offset(), self.len());
                self.next.push_back(Op::Punch { path, offset, len });
            }
            13 => {
                let (offset, len) = (self.offset(), self.len());
                self.next.push_back(Op::Zero { path, offset, len });
            }
            14 => {
                let (to, offset, len) = (self.file(), self.offset(), self.len());
                self.next.push_back(Op::Copy {
                    from: path,
                    to,
                    offset,
                    len,
                });
            }
            15 => {
                let to = self.file();
                self.next.push_back(Op::Rename { from: path, to });
            }
            16 => {
                let b = self.file();
                self.next.push_back(Op::Exchange { a: path, b });
            }
            17 => {
                let to = self.file();
                self.next.push_back(Op::Link { from: path, to });
            }
            18 => {
                self.next.push_back(Op::Unlink { path });
                if self.random.u64(..3) == 0 {
                    self.sync(&own);
                }
            }
            19 => {
                let link = [format!("{own}/link"), format!("{shared}link")][self.random.usize(..2)]
                    .clone();
                self.next.push_back(if self.random.bool() {
                    Op::Symlink {
                        target: format!("{path}-{}", self.random.u64(..1000)),
                        path: link,
                    }
                } else {
                    Op::Unlink { path: link }
                });
            }
            20 => {
                let (from, to) = (self.dir(), self.dir());
                self.next.push_back(match self.random.u64(..6) {
                    0 | 1 => Op::Mkdir { path: from },
                    2 => Op::Mkdir {
                        path: format!("{own}/sub"),
                    },
                    3 => Op::Rmdir { path: from },
                    4 => Op::Exchange { a: from, b: to },
                    _ => Op::Rename { from, to },
                });
                if self.random.u64(..3) == 0 {
                    self.sync("common");
                }
            }
            21 => {
                let name = NAMES[self.random.usize(..3)].to_owned();
                // Long ones are not beside the inode.
                let len = [10, 200, 3000, 20_000][self.random.usize(..4)];
                let path = if self.random.u64(..4) == 0 {
                    self.dir()
                } else {
                    path
                };
                self.next.push_back(Op::SetXattr {
                    path: path.clone(),
                    name,
                    len,
                });
                if self.random.u64(..3) == 0 {
                    self.sync(&path);
                }
            }
            22 => {
                let name = NAMES[self.random.usize(..3)].to_owned();
                self.next.push_back(Op::RemoveXattr { path, name });
            }
            _ => {
                let mode = [0o600, 0o640, 0o755][self.random.usize(..3)];
                self.next.push_back(Op::Chmod { path, mode });
            }
        }
    }
}

impl Iterator for Plan {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        while self.next.is_empty() {
            self.draw();
        }
        self.next.pop_front()
    }
}

/// The bytes that an operation writes at an offset: lines of 64 that say whose they are and where they belong.
pub fn content(round: u64, writer: u64, op: u64, offset: u64, len: u64) -> Vec<u8> {
    let first = offset / 64;
    let last = (offset + len).div_ceil(64);
    let mut lines = Vec::with_capacity(((last - first) * 64) as usize);
    for line in first..last {
        let text = format!(
            "round {round} writer {writer} operation {op} offset {}",
            line * 64
        );
        lines.extend_from_slice(format!("{text:.<63}\n").as_bytes());
    }
    let from = (offset - first * 64) as usize;
    lines[from..from + len as usize].to_vec()
}

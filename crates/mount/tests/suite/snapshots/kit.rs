//! A mounted room with snapshots, and comparison with copies made at the time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mount::{MountOptions, SnapshotDirectory, WithSnapshots};
use room::{NewSnapshot, Room};

use crate::common::{Mount, for_all_users, ok};

/// A mounted room with its snapshots in it.
pub(crate) struct Kit {
    pub(crate) mount: Mount,
}

impl Kit {
    pub(crate) fn new() -> Option<Self> {
        Self::with(for_all_users(), SnapshotDirectory::default())
    }

    pub(crate) fn with(options: MountOptions, directory: SnapshotDirectory) -> Option<Self> {
        let mount = Mount::showing(options, move |room| {
            Arc::new(WithSnapshots::new(room.clone(), directory.clone()))
        })?;
        Some(Self { mount })
    }

    pub(crate) fn room(&self) -> &Room {
        self.mount.room.as_ref().unwrap()
    }

    pub(crate) fn take(&self, name: &str) {
        let new = NewSnapshot::default();
        self.room().create_snapshot(name, new).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        self.room().delete_snapshot(name).unwrap();
    }

    /// Unmounted, closed, opened and mounted again.
    pub(crate) fn again(self) -> Self {
        let mount = self.mount.again();
        Self { mount }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.path(name)
    }

    pub(crate) fn ok(&self, script: &str) -> String {
        ok(&self.mount, script)
    }

    /// A copy of a directory of the mount as it is, beside the mount.
    pub(crate) fn copied(&self, name: &str, to: &str) -> PathBuf {
        let to = self.mount.plain().join(to);
        run(Command::new("cp").arg("-a").arg(self.path(name)).arg(&to));
        to
    }
}

pub(crate) fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let printed = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{command:?}\n{printed}\n{said}");
    printed
}

/// Whether a shell script succeeds.
pub(crate) fn sh_at(at: &Path, text: &str) -> bool {
    let mut command = Command::new("sh");
    let run = command.args(["-c", text]).current_dir(at).output();
    run.is_ok_and(|out| out.status.success())
}

pub(crate) fn script(text: &str, args: &[&Path]) -> String {
    run(Command::new("sh")
        .arg("-euc")
        .arg(text)
        .arg("sh")
        .args(args))
}

/// Every name below a directory with all of its attributes but numbers, the contents, and what tar makes of it.
pub(crate) fn same(one: &Path, other: &Path) {
    script(
        r#"diff -r --no-dereference --exclude=pipe "$1" "$2"
        list() { (cd "$1" && find . \( -type d -printf '%P %y %m %U %G %T@\n' -o -printf '%P %y %m %U %G %s %T@ %n %l\n' \)) | LC_ALL=C sort; }
        pack() { tar -C "$1" --sort=name --xattrs --pax-option=delete=atime,delete=ctime -cf - . | sha256sum; }
        for make in list pack; do
            one=$($make "$1") other=$($make "$2")
            [ "$one" = "$other" ] || { printf '%s\n\n%s\n' "$one" "$other"; exit 1; }
        done"#,
        &[one, other],
    );
}

/// Files get times of their own: those that the kernel stamps while it keeps what was written differ by a tick from the room's.
pub(crate) const TREE: &str = "mkdir -p a/b/c x && echo one > a/f && echo two > a/b/g && ln a/f a/b/hard && ln -s ../f a/b/link \
    && head -c 300000 /dev/urandom > a/b/c/big && truncate -s 10M a/sparse && printf data | dd of=a/sparse bs=1 seek=5000000 conv=notrunc \
    status=none && mkfifo a/pipe && chmod 640 a/f && chmod 711 a/b && setfattr -n user.note -v kept a/f && echo top > t && sync \
    && find . -type f -exec touch -d '2001-02-03 04:05:06.789' {} + && touch -d '2002-03-04 05:06:07' a/b";

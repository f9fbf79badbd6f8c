//! The blocks of commands in README.md and docs are run as they are written, a document at a time, in an order from top to bottom.
//!
//! 1. Every block runs, or [`EXCUSED`] says why it cannot. An excuse that fits no block is an error.
//! 2. Nothing is changed in a block. Around it are: a home directory, files of the names that the document uses, addresses
//!    10.0.0.10 and 10.0.0.11, servers put into the background as in a second terminal, passphrases on standard input, and the
//!    least work for the keys of new rooms.
//! 3. Mounts and addresses are in namespaces of this thread: nobody else sees them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{can_mount, is_root, program};
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;

/// The first words of a block that is one of commands, where it is not fenced as one.
const COMMANDS: [&str; 17] = [
    "cargo",
    "cc",
    "cp",
    "git",
    "losetup",
    "make",
    "mkdir",
    "mkfs.ext4",
    "mount",
    "mvn",
    "python3",
    "strongroom",
    "sudo",
    "systemctl",
    "tar",
    "umount",
    "zcat",
];

/// Blocks that are not run, by document and beginning, and why.
const EXCUSED: &[(&str, &str, &str)] = &[
    ("README.md", "sudo apt install", PACKAGES),
    ("README.md", "strongroom bench cost", MINUTES),
    ("benchmark.md", "strongroom bench cost", MINUTES),
    ("benchmark.md", "strongroom bench dd disk.img", MINUTES),
    (
        "benchmark.md",
        "losetup",
        "loop devices of this machine, and a measurement of minutes",
    ),
    (
        "benchmark.md",
        "cargo test --release",
        "an hour of fio; run by hand",
    ),
    (
        "benchmark.md",
        "strongroom bench small-files --shared",
        MINUTES,
    ),
    ("benchmark.md", "strongroom --json bench cost", MINUTES),
    (
        "bucket.md",
        "strongroom create s3://rooms/work --log",
        "PostgreSQL and etcd; scripts/logs.sh runs the commands",
    ),
    (
        "bucket.md",
        "strongroom mount s3://rooms/work ~/work --read-only --follow",
        "an S3 server; scripts/bucket.sh runs the command",
    ),
    (
        "capability-model.md",
        "cargo test -p strongroom-capability-model",
        "the model's own tests run it",
    ),
    ("embedding.md", "git clone", BINDINGS),
    ("embedding.md", "python3 -m venv", BINDINGS),
    ("install.md", "sudo apt install", PACKAGES),
    ("install.md", "tar -xf strongroom", PACKAGES),
    (
        "keys.md",
        "systemctl enable strongroom-lock",
        "a machine that sleeps; tests/suite/mounted runs the unit's command",
    ),
    (
        "keys.md",
        "strongroom key add ROOM --new-recipient age1NAME1",
        "a token; tests/suite/plugins.rs runs the commands with a plugin of its own",
    ),
    (
        "reliability.md",
        "cargo run --release -p strongroom-explorer",
        "the crash explorer's own tests run it",
    ),
    (
        "replication.md",
        "strongroom replicate work.strongroom ssh://",
        REPLICAS,
    ),
    (
        "replication.md",
        "strongroom replicate work.strongroom s3://",
        IN_A_BUCKET,
    ),
    ("replication.md", "strongroom restore s3://", IN_A_BUCKET),
    ("replication.md", "systemctl enable", REPLICAS),
    ("replication.md", "strongroom send", REPLICAS),
    (
        "scale.md",
        "cargo run --release -p strongroom-metadata-server",
        MINUTES,
    ),
    (
        "volumes.md",
        "strongroom volume format disk.img --size 20GiB",
        LARGE,
    ),
    (
        "volumes.md",
        "strongroom volume resize",
        "1 GiB of memory for a key; tests/suite/volumes runs them with less",
    ),
    ("volumes.md", "strongroom volume reencrypt", LARGE),
    (
        "volumes.md",
        "strongroom volume dump userdata.img",
        "the image of a phone: tests/suite/volumes makes one",
    ),
    (
        "volumes.md",
        "strongroom volume export partition.img",
        "the image of a Mac: tests/suite/volumes has one",
    ),
    ("volumes.md", "strongroom bench", MINUTES),
    (
        "shared-storage.md",
        "strongroom disk serve --store s3://rooms/d1",
        "an S3 server; the test network runs the commands",
    ),
    (
        "shared-storage.md",
        "strongroom create s3://rooms/shared --owner",
        STANDBY,
    ),
    (
        "shared-storage.md",
        "strongroom metadata serve s3://rooms/shared --standby",
        STANDBY,
    ),
    (
        "shared-storage.md",
        "strongroom metadata step-down s3://rooms/shared",
        STANDBY,
    ),
];
const STANDBY: &str = "an S3 server; scripts/standby.sh runs the commands";
const REPLICAS: &str =
    "another host, or what runs every hour; tests/suite/replicate.rs runs the commands";
const IN_A_BUCKET: &str = "an S3 server; tests/suite/replicate_bucket.rs runs the commands";
const MINUTES: &str = "minutes of measuring; tests/suite/bench runs each command on little data";
const BINDINGS: &str =
    "builds what scripts/test-java.sh, scripts/test-python.sh and the tests of capi build and run";
const PACKAGES: &str =
    "packages of a release build: `make test-packages` installs each into a clean root";
const LARGE: &str = "gigabytes; tests/suite/volumes runs the same commands on small images";

/// What passphrases are, of whatever is asked.
const PASSPHRASE: &str = "correct horse battery staple";

#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// Of its first line, from 1.
    line: usize,
    text: String,
}

/// The blocks of commands: fenced ones marked `sh`, and indented or unmarked ones that begin with a command.
fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut after_blank = true;
    while let Some((number, line)) = lines.next() {
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            let mut inside = String::new();
            for (_, line) in lines.by_ref() {
                if line.trim_start().starts_with("```") {
                    break;
                }
                inside.push_str(line);
                inside.push('\n');
            }
            let shell = ["sh", "bash", "shell", "console"].contains(&mark.trim());
            if shell || (mark.trim().is_empty() && is_command(&inside)) {
                found.push(Block {
                    line: number + 2,
                    text: inside,
                });
            }
            after_blank = true;
            continue;
        }
        if let Some(first) = line.strip_prefix("    ").filter(|_| after_blank) {
            let mut inside = format!("{first}\n");
            while let Some((_, line)) =
                lines.next_if(|(_, line)| line.starts_with("    ") || line.is_empty())
            {
                inside.push_str(line.strip_prefix("    ").unwrap_or_default());
                inside.push('\n');
            }
            if is_command(&inside) {
                found.push(Block {
                    line: number + 1,
                    text: inside.trim_end().to_owned() + "\n",
                });
            }
            after_blank = true;
            continue;
        }
        after_blank = line.trim().is_empty();
    }
    found
}

fn is_command(block: &str) -> bool {
    let word = block.split_whitespace().next().unwrap_or_default();
    COMMANDS.contains(&word)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// README.md and every page of docs, with its name.
fn documents() -> Vec<(String, String)> {
    let root = repository();
    let mut paths = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(|path| read(path)).collect()
}

fn excuse(document: &str, block: &Block) -> Option<usize> {
    EXCUSED
        .iter()
        .position(|(name, begin, _)| *name == document && block.text.starts_with(begin))
}

#[test]
fn blocks_of_commands_are_found_and_others_are_not() {
    let text = "Words:\n\n    strongroom a\n    cp b c   # d\n\nMore.\n    not a block\n\n    a table   1\n\n\
        ```sh\nanything\n```\n\n```rust\nlet x;\n```\n\n```\nstrongroom b\n```\n";
    let found: Vec<_> = blocks(text)
        .into_iter()
        .map(|block| (block.line, block.text))
        .collect();
    let expected = [
        (3, "strongroom a\ncp b c   # d\n"),
        (12, "anything\n"),
        (20, "strongroom b\n"),
    ];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn every_excuse_is_needed() {
    let documents = documents();
    let used: Vec<usize> = documents
        .iter()
        .flat_map(|(name, text)| {
            blocks(text)
                .iter()
                .filter_map(|block| excuse(name, block))
                .collect::<Vec<_>>()
        })
        .collect();
    for (at, (name, begin, _)) in EXCUSED.iter().enumerate() {
        assert!(
            used.contains(&at),
            "{name} has no block that begins with: {begin}"
        );
    }
}

#[test]
fn every_block_of_commands_runs_as_written() {
    if !can_mount() || !is_root() {
        return;
    }
    let run = || {
        if let Err(why) = own_namespaces() {
            eprintln!("skipped: no network and mounts of one's own here: {why}");
            return;
        }
        let mut wrong = Vec::new();
        for (name, text) in documents() {
            let blocks: Vec<_> = blocks(&text)
                .into_iter()
                .filter(|block| excuse(&name, block).is_none())
                .collect();
            if !blocks.is_empty() {
                run_document(&name, &blocks, &mut wrong);
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    };
    // A thread of its own: a namespace is entered for good.
    let done = std::thread::scope(|scope| scope.spawn(run).join());
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

/// Mounts and a network that only this thread and what it starts have.
fn own_namespaces() -> Result<(), String> {
    let failed = |e: rustix::io::Errno| e.to_string();
    // SAFETY: namespaces are unshared, and descriptors are not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWNET) }
        .map_err(failed)?;
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(failed)?;
    let script = "set -e
        ip link set lo up
        ip address add 10.0.0.10/24 dev lo
        ip address add 10.0.0.11/24 dev lo
        for dir in /media /mnt /run; do mount -t tmpfs none $dir; done";
    let done = Command::new("sh").args(["-c", script]).output();
    let done = done.map_err(|e| e.to_string())?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

/// Runs the blocks of a document in one place, and notes which failed.
fn run_document(name: &str, blocks: &[Block], wrong: &mut Vec<String>) {
    let place = Place::new();
    let fixtures = format!("{FIXTURES}\n{}", fixtures_of(name));
    let made = place.bash(&fixtures);
    assert!(
        made.0,
        "{name}: what the commands need could not be made:\n{}",
        made.1
    );
    if name == "import.md" {
        containers(&place.path("cwd"));
    }
    if name == "README.md" {
        container(&place.path("cwd/notes.db"), "'notes'");
    }
    if name == "embedding.md" {
        container(&place.path("cwd/app.db"), "");
    }
    for block in blocks {
        let began = std::time::Instant::now();
        let (ok, said) = place.bash(&block.text);
        eprintln!("{name}:{}: {:?}", block.line, began.elapsed());
        if !ok {
            wrong.push(format!(
                "{name}:{}: failed:\n{}\n{said}",
                block.line, block.text
            ));
        }
    }
}

/// What every document may use.
const FIXTURES: &str = "
    rm -rf /media/* /mnt/*
    mkdir -p ~/papers ~/mail ~/.ssh /media/usb
    echo 'Dear reader' >~/papers/letter.txt
    echo 'a message' >~/mail/1
    ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
    echo 'correct horse battery staple' >work.pass
    cp work.pass pass
";

/// What one document needs besides.
fn fixtures_of(document: &str) -> &'static str {
    match document {
        "README.md" => "echo notes >notes.pass",
        "backup.md" | "snapshots.md" | "replication.md" => {
            "strongroom create work.strongroom
             strongroom cp -r ~/papers work.strongroom"
        }
        "embedding.md" => "strongroom create app.strongroom",
        "import.md" => {
            "strongroom create work.strongroom
             echo notes >notes.pass
             echo old >old.pass
             mkdir -p ~/cipher /mnt/disk && echo x >/mnt/disk/file
             gocryptfs -q -init -scryptn 10 -passfile old.pass ~/cipher
             tar -cf backup.tar -C ~ papers
             tar -czf backup.tar.gz -C ~ papers"
        }
        "shared-storage.md" => "mkdir -p /mnt/shared",
        "volumes.md" => {
            "for image in stick.img disk.img; do
                 strongroom volume format $image --size 32MiB --kdf pbkdf2 --kdf-iterations 1000
             done
             head -c 32 /dev/urandom >usb.key"
        }
        _ => "",
    }
}

fn containers(cwd: &Path) {
    container(&cwd.join("notes.db"), "'notes'");
    let key = "0123456789abcdef".repeat(4);
    container(&cwd.join("phone.db"), &format!("\"x'{key}'\""));
    std::fs::write(cwd.join("phone.key"), key).unwrap();
}

/// A container of IOCipher with this key, as SQL writes it; empty: without.
fn container(at: &Path, key: &str) {
    let connection = rusqlite::Connection::open(at).unwrap();
    let open = match key {
        "" => String::new(),
        key => format!(
            "PRAGMA cipher_log_level = NONE; PRAGMA key = {key}; PRAGMA cipher_page_size = 8192;"
        ),
    };
    connection
        .execute_batch(&format!(
            "{open}
             CREATE TABLE meta_data(key text, type text, inode integer, uid integer, gid integer, mode integer, acl text,
                 attribute text, atime integer, mtime integer, ctime integer, size integer, block_size integer,
                 primary key (key), unique(key));
             CREATE TABLE value_data (key text, block_no integer, data_block blob, unique(key, block_no));
             INSERT INTO meta_data (key, type, uid, gid, mode, atime, mtime, size, block_size)
                 VALUES ('/', 'dir', 1, 1, 16832, 1, 1, 0, 8192), ('/note', 'blob', 1, 1, 33184, 1, 1, 5, 8192);
             INSERT INTO value_data VALUES ('/note', 0, x'68656c6c6f');"
        ))
        .unwrap();
}

/// Where a document's commands run.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for name in ["home", "cwd", "bin", "run"] {
            std::fs::create_dir(place.path(name)).unwrap();
        }
        let root = repository();
        place.script(
            "strongroom",
            &format!(
                "#!/bin/bash
program={} dir={}
case \"$1 $2\" in
'disk serve' | 'metadata serve' | 'serve nbd')
    # In a terminal of its own.
    out=$(mktemp $dir/server.XXXXXX)
    setsid $program \"$@\" >$out 2>$out.log <<<'{PASSPHRASE}' &
    echo $! >>$dir/servers
    until [ -s $out ]; do
        kill -0 $! 2>/dev/null || {{ cat $out.log >&2; exit 1; }}
        sleep 0.05
    done ;;
create\\ *) exec $program \"$@\" --kdf-memory 8 --kdf-passes 1 ;;
*) exec $program \"$@\" ;;
esac
",
                program().display(),
                place.dir.path().display()
            ),
        );
        // What builds was run to get here: its targets must be there.
        place.script(
            "make",
            &format!(
                "#!/bin/sh\nexec /usr/bin/make -n -C {} \"$@\" >/dev/null\n",
                root.display()
            ),
        );
        let examples = std::env::current_exe().unwrap();
        let examples = examples.ancestors().nth(2).unwrap().join("examples");
        place.script(
            "cargo",
            &format!(
                "#!/bin/bash
# cargo run -p CRATE --example NAME -- ARGUMENTS; what it builds is built with the tests.
[ \"$1 $2 $4 $6\" = 'run -p --example --' ] || {{ PATH=${{PATH#*:}} exec cargo \"$@\"; }}
[ -f {}/crates/${{3#strongroom-}}/examples/$5.rs ] || exit 1
example=$5
shift 6
exec {}/$example \"$@\"
",
                root.display(),
                examples.display()
            ),
        );
        let lines = format!("{PASSPHRASE}\n").repeat(1000);
        std::fs::write(place.path("lines"), lines).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a script; whether it ended well, and all that was printed.
    fn bash(&self, text: &str) -> (bool, String) {
        let path = std::env::var("PATH").unwrap_or_default();
        let out = std::fs::File::create(self.path("out")).unwrap();
        let status = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", text])
            .current_dir(self.path("cwd"))
            .env("HOME", self.path("home"))
            .env_remove("XDG_STATE_HOME")
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .stdin(std::fs::File::open(self.path("lines")).unwrap())
            .stdout(Stdio::from(out.try_clone().unwrap()))
            .stderr(Stdio::from(out))
            .status()
            .unwrap();
        let said = std::fs::read(self.path("out")).unwrap();
        (
            status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Clients first: they wait for their servers. Then the servers.
        let script = format!(
            "set +e
             grep -o '{0}/[^ ]*' /proc/self/mountinfo /dev/null | cut -d: -f2 | while read -r at; do strongroom umount $at || umount -l $at; done
             while read -r pid; do kill $pid; tail --pid $pid -f /dev/null; done <{0}/servers",
            self.dir.path().display()
        );
        let _ = self.bash(&script);
    }
}

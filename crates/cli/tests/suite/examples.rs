//! The examples, run as a newcomer runs them: each public crate has one, and each does what it says.
//!
//! They are programs that cargo builds beside the tests of the whole workspace, so this finds them all after `cargo test --workspace`.
//! Those in C are run by the tests of `capi` and `sqlfs`.
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Crate, example, and lines that it prints.
const EXAMPLES: [(&str, &str, &[&str]); 22] = [
    (
        "model",
        "map_a_file",
        &[
            "freed: segment 1, 2 blocks",
            "8192 bytes in segment 2",
            "4096 zeros",
        ],
    ),
    (
        "seal",
        "seal_and_open",
        &[
            "wrong passphrase: true",
            "encrypted: true",
            "moved to another position: refused true",
            "hello",
        ],
    ),
    (
        "storage",
        "durable_replace",
        &["colour = green", "journal: 6 bytes"],
    ),
    ("pages", "sqlite_on_storage", &["1 note"]),
    (
        "segments",
        "append_and_read",
        &["12288 bytes read back: true"],
    ),
    (
        "catalog",
        "name_a_file",
        &["letter.txt: mode 644", "the same generation: true"],
    ),
    ("room", "first_room", &["NOBODY else reads this."]),
    (
        "embed",
        "transactions",
        &["closed: true", "/a is there: true"],
    ),
    (
        "foreign",
        "c_handles",
        &[
            "length 5",
            "refused: invalid argument: more is NULL",
            "closed 0, again -1",
        ],
    ),
    ("mount", "mount_room", &["hello", "5 bytes in the room"]),
    (
        "device",
        "file_device",
        &["in the file: hello", "beyond the end: refused true"],
    ),
    (
        "volume",
        "luks_volume",
        &["LUKS2", "hello", "encrypted: true"],
    ),
    // What a kernel refuses depends on its age; the crate's own tests look at that.
    ("confine", "drop_rights", &["kept: hello"]),
    ("streams", "echo_server", &["h"]),
    ("nbd", "serve_device", &["serving", "stopped"]),
    ("netdisk", "capabilities", &["read back: true"]),
    (
        "metadata-server",
        "share_room",
        &["hello", "after chmod 600: refused true"],
    ),
    ("service", "health_endpoint", &["stopped"]),
    (
        "import",
        "read_tar",
        &["letters/hello.txt: File { size: 5, data: None }, hello"],
    ),
    ("bucket", "room_in_bucket", &["Dear Ada"]),
    ("bench", "measure_directory", &[]),
    ("cli", "own_command", &[]),
];
/// Crates whose front page names the example of another, because they do nothing alone: crate, and whose example it is.
const ELSEWHERE: [(&str, &str, &str); 2] = [
    ("metadata-client", "share_room", "metadata-server"),
    ("metadata-proto", "share_room", "metadata-server"),
];
/// Those in C: crate and example.
const IN_C: [(&str, &str); 2] = [("capi", "first"), ("sqlfs", "notes")];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A directory to run an example in.
struct Work(tempfile::TempDir);

impl Work {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// What runs an example here, with nothing of the user's.
    fn command(&self, example: &str) -> Command {
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().nth(2).unwrap();
        let program = built.join("examples").join(example);
        assert!(
            program.exists(),
            "{} is missing: run `cargo test --workspace`, which builds the examples",
            program.display()
        );
        let mut command = Command::new(program);
        command
            .arg(self.0.path())
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.0.path().join("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs an example to its end: what it printed.
    fn run(&self, example: &str) -> String {
        let output = self.command(example).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{example}: {said}{errors}");
        said
    }

    /// Starts an example that serves until it is ended; its first line.
    fn start(&self, example: &str) -> (Running, String) {
        let mut child = self
            .command(example)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let running = Running { child, output };
        (running, line.trim_end().to_owned())
    }
}

struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// What else it printed until it ended well.
    fn ended(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where the test has failed; otherwise it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether each of the lines that the table has for an example is one that it printed.
fn assert_says(example: &str, said: &str) {
    let (_, _, lines) = EXAMPLES.iter().find(|row| row.1 == example).unwrap();
    for line in *lines {
        assert!(
            said.lines().any(|l| l == *line),
            "{example}: {line}: {said}"
        );
    }
}

#[test]
fn each_public_crate_has_one_that_its_front_page_names() {
    let listed: BTreeSet<_> = EXAMPLES
        .iter()
        .map(|(crate_, example, _)| (crate_.to_string(), format!("examples/{example}.rs")))
        .chain(IN_C.map(|(crate_, example)| (crate_.into(), format!("examples/{example}.c"))))
        .collect();
    for (crate_, example) in &listed {
        let dir = crates().join(crate_);
        let front = fs::read_to_string(dir.join("src/lib.rs")).unwrap();
        assert!(
            front.contains(&format!("`{example}`")),
            "{crate_}: {example}"
        );
        assert!(dir.join(example).exists(), "{crate_}: {example}");
    }
    for (crate_, example, of) in ELSEWHERE {
        let front = fs::read_to_string(crates().join(crate_).join("src/lib.rs")).unwrap();
        let named = format!("`examples/{example}.rs` of `{of}`");
        assert!(front.contains(&named), "{crate_}: {named}");
        assert!(listed.contains(&(of.into(), format!("examples/{example}.rs"))));
    }
    let with: BTreeSet<_> = listed
        .into_iter()
        .map(|(crate_, _)| crate_)
        .chain(ELSEWHERE.map(|(crate_, _, _)| crate_.into()))
        .collect();
    for entry in fs::read_dir(crates()).unwrap() {
        let entry = entry.unwrap();
        let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let public = !manifest.contains("publish = false");
        assert_eq!(with.contains(&name), public, "{name}");
    }
}

#[test]
fn they_do_what_they_say() {
    for (_, example, _) in EXAMPLES {
        match example {
            // These have tests of their own.
            "mount_room" | "serve_device" | "health_endpoint" | "measure_directory"
            | "own_command" => (),
            _ => assert_says(example, &Work::new().run(example)),
        }
    }
}

#[test]
fn a_mounted_room_is_used_by_ordinary_functions() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: there is no /dev/fuse");
        return;
    }
    assert_says("mount_room", &Work::new().run("mount_room"));
}

#[test]
fn a_served_device_greets_a_client_and_ends_with_its_input() {
    let work = Work::new();
    let (server, first) = work.start("serve_device");
    let mut client = UnixStream::connect(work.0.path().join("nbd.sock")).unwrap();
    let mut greeting = [0; 16];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");
    drop(client);
    assert_says("serve_device", &format!("{first}\n{}", server.ended()));
    let image = fs::metadata(work.0.path().join("disk.img")).unwrap();
    assert_eq!(image.len(), 64 << 20);
}

#[test]
fn a_health_endpoint_answers_and_ends_at_a_signal() {
    let work = Work::new();
    let (server, address) = work.start("health_endpoint");
    // It answers before it is ready, and is ready soon: only its answers say when.
    let metrics = loop {
        assert_eq!(get(&address, "/healthz").0, 200);
        let (status, _) = get(&address, "/readyz");
        if status == 200 {
            break get(&address, "/metrics").1;
        }
        assert_eq!(status, 503);
    };
    assert!(metrics.contains("\nexample_ticks_total "), "{metrics}");
    let pid = Pid::from_child(&server.child);
    kill_process(pid, Signal::TERM).unwrap();
    assert_says("health_endpoint", &server.ended());
}

fn get(address: &str, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[test]
fn a_measured_directory_is_left_as_it_was() {
    let work = Work::new();
    let said = work.run("measure_directory");
    assert!(said.contains("sequential write"), "{said}");
    let left: Vec<_> = fs::read_dir(work.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["runs"]);
}

#[test]
fn the_whole_command_runs_inside_another_program() {
    let said = Work::new().run("own_command");
    assert!(said.contains("\"format\""), "{said}");
}

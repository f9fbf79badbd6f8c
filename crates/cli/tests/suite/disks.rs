//! Network disks as people make and serve them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::common::Sandbox;
use crate::common::process::{Process, TIMEOUT};

/// A sandbox with a disk that is not served.
fn with_disk() -> Sandbox {
    let sandbox = Sandbox::empty();
    let init = ["disk", "init", "--store", "d1.store", "--size", "16MiB"];
    sandbox.ok(init.iter().chain(&["--key-out", "d1.key"]));
    sandbox
}

/// Serves the disk; where it listens.
fn serve(s: &Sandbox, mut command: Command) -> (Process, String) {
    let words = ["disk", "serve", "--store", "d1.store", "--key", "d1.key"];
    command.args(words).args(["--listen", "127.0.0.1:0"]);
    let process = Process::serve("disk", command, &s.path("disk.log")).unwrap();
    let said = process.said();
    let (_, address) = said.split_once("listens on ").expect("it says where");
    let address = address.split_whitespace().next().unwrap().to_owned();
    (process, address)
}

/// A shell's usual soft limit of 1024 open files was met by 512 connections: each has two. Then nobody could connect any more, also not the metadata
/// server, though the disk's own limits were not met.
#[test]
fn a_server_takes_as_many_connections_as_it_says_below_a_low_soft_limit_of_open_files() {
    let s = with_disk();
    let program = s.command(["--version"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 40; exec \"$0\" \"$@\""]);
    command.arg(program.get_program());
    command.current_dir(program.get_current_dir().unwrap());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (disk, address) = serve(&s, command);
    // Each waits for its first request, and none of them keeps the others out.
    let connect = || TcpStream::connect(&address).unwrap();
    let waiting: Vec<_> = (0..40).map(|_| connect()).collect();
    for mut socket in waiting.into_iter().chain([connect()]) {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.write_all(&[b'x'; 120]).unwrap();
        let mut reply = [0; 4];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"SNDr");
    }
    assert!(disk.stop().success());
}

/// New keys that could not be kept were in the way of the next try, and so was what a server with a key that is not there left.
#[test]
fn what_fails_leaves_nothing_in_the_way_of_the_next_try() {
    let s = with_disk();
    let rotate = ["disk", "key", "rotate", "--key", "d1.key", "--key-out"];
    std::fs::write(s.path("d1.key.failures"), "x").unwrap();
    let failing = ["d2.key", "--add-out", "nowhere/d2.add"];
    let ran = s.run(rotate.iter().chain(&failing));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("nowhere/d2.add"), "{}", ran.err);
    let serve = ["disk", "serve", "--listen", "127.0.0.1:0", "--store"];
    let ran = s.run(serve.iter().chain(&["d1.store", "--key", "d2.key"]));
    assert_eq!(ran.code, 1, "{}", ran.err);
    s.ok(rotate.iter().chain(&["d2.key"]));
    let count = std::fs::read(s.path("d2.key.failures")).unwrap();
    assert_eq!(count, b"x");
}

#[test]
fn a_store_that_was_cut_short_is_called_that() {
    let s = with_disk();
    let mut options = std::fs::File::options();
    options.write(true);
    let serve = ["disk", "serve", "--listen", "127.0.0.1:0", "--store"];
    for len in [8 << 20, 512 << 10] {
        let store = options.open(s.path("d1.store")).unwrap();
        store.set_len(len).unwrap();
        let ran = s.run(serve.iter().chain(&["d1.store", "--key", "d1.key"]));
        assert_eq!(ran.code, 5);
        let expected = format!("d1.store: it has {len} bytes, and the disk 16777216:");
        assert!(ran.err.contains(&expected), "{}", ran.err);
    }
}

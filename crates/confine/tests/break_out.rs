//! A confined process tries to break out. The tests start this program again: it confines itself and makes the attempts.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use confine::{Confined, Network, Profile, Strictness, enter};

const PLACE: &str = "BREAK_OUT_PLACE";
const KIND: &str = "BREAK_OUT_KIND";

/// What the kinds of processes keep here: the directory `own`, to read `given`, and by kind.
fn profile(kind: &str, place: &Path) -> Profile {
    let quiet = Profile {
        read: vec![place.join("given")],
        write: vec![place.join("own")],
        ..Profile::default()
    };
    match kind {
        "quiet" => quiet,
        "client" => Profile {
            network: Network::Client,
            ..quiet
        },
        "server" => Profile {
            network: Network::Server(vec![0]),
            ..quiet
        },
        "programs" => Profile {
            programs: true,
            io_uring: true,
            ..quiet
        },
        other => panic!("no kind {other}"),
    }
}

/// Whether this kernel can confine a process; a test that needs it is skipped otherwise.
fn lines(kind: &str) -> Option<Vec<String>> {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("own")).unwrap();
    std::fs::write(place.path().join("given"), "given").unwrap();
    std::fs::write(place.path().join("secret"), "secret").unwrap();
    std::fs::write(place.path().join("own/file"), "own").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _named = UnixListener::bind(place.path().join("socket")).unwrap();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inside", "--ignored", "--nocapture"])
        .env(PLACE, place.path())
        .env(KIND, kind)
        .env("BREAK_OUT_PORT", port.to_string())
        .env("BREAK_OUT_VICTIM", std::process::id().to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    let lines: Vec<String> = out
        .lines()
        .filter_map(|line| line.strip_prefix("attempt "))
        .map(str::to_owned)
        .collect();
    if lines.iter().any(|line| line == "not confined") {
        eprintln!("skipped: this kernel lacks a part of Landlock or seccomp");
        return None;
    }
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{out}\n{errors}");
    // The victim lives: it runs this.
    assert!(!place.path().join("own/stolen").exists());
    Some(lines)
}

fn assert_has(lines: &[String], expected: &[(&str, &str)]) {
    for (what, how) in expected {
        let line = format!("{what}: {how}");
        assert!(lines.contains(&line), "not `{line}` in {lines:#?}");
    }
}

/// Refused to every kind.
const REFUSED: &[(&str, &str)] = &[
    ("read another file", "refused"),
    ("list another directory", "refused"),
    ("make a file elsewhere", "refused"),
    ("truncate another file", "refused"),
    ("write what is only to be read", "refused"),
    ("move a file out", "refused"),
    ("reach another file through a link", "refused"),
    ("read another process's memory", "refused"),
    ("ptrace", "EPERM"),
    ("process_vm_readv", "EPERM"),
    ("pidfd_getfd", "EPERM"),
    ("unshare", "EPERM"),
    ("clone with a name space", "EPERM"),
    ("clone3", "ENOSYS"),
    ("mount", "EPERM"),
    ("bpf", "EPERM"),
    ("keyctl", "EPERM"),
    ("userfaultfd", "EPERM"),
    ("setuid", "EPERM"),
    ("memory to write and run", "EPERM"),
    ("make memory run", "EPERM"),
    ("be dumpable again", "EPERM"),
    ("type into the terminal", "EPERM"),
    ("packet socket", "EPERM"),
    ("a system call of x32", "ENOSYS"),
    ("signal another process", "refused"),
];

/// Kept by every kind.
const KEPT: &[(&str, &str)] = &[
    ("read the given file", "done"),
    ("read its own file", "done"),
    ("make, move and remove its own", "done"),
    ("a thread", "done"),
    ("a Unix socket", "done"),
    ("random bytes", "done"),
    ("its own status", "done"),
    ("hidden", "NoNewPrivs 1, Seccomp 2, dumpable 0"),
    ("a thread is confined", "refused"),
];

/// What a process of this kind met, which all kinds have in common and which only it has; none where the kernel lacks a part.
fn met(kind: &str, expected: &[(&str, &str)]) -> Option<Vec<String>> {
    let lines = lines(kind)?;
    for expected in [REFUSED, KEPT, expected] {
        assert_has(&lines, expected);
    }
    Some(lines)
}

#[test]
fn what_parses_files_keeps_its_files_alone() {
    let expected = [
        ("connect", "refused"),
        ("listen", "refused"),
        ("a datagram", "refused"),
        ("start a program", "refused"),
        ("io_uring", "EPERM"),
    ];
    met("quiet", &expected);
}

#[test]
fn a_client_connects_and_does_not_listen() {
    let expected = [
        ("connect", "done"),
        ("listen", "refused"),
        ("start a program", "refused"),
    ];
    met("client", &expected);
}

#[test]
fn a_server_listens_at_its_ports_and_does_not_connect() {
    let expected = [
        ("connect", "refused"),
        ("listen", "done"),
        ("listen at another port", "refused"),
        ("start a program", "refused"),
    ];
    met("server", &expected);
}

#[test]
fn programs_are_confined_as_what_started_them() {
    let expected = [
        ("start a program", "done"),
        ("a program reads another file", "refused"),
        ("start a program of its own making", "refused"),
        ("connect", "refused"),
    ];
    let Some(lines) = met("programs", &expected) else {
        return;
    };
    assert!(!lines.contains(&"io_uring: EPERM".to_owned()), "{lines:#?}");
}

#[test]
#[ignore = "the confined process: started by the other tests"]
fn inside() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return;
    };
    let profile = profile(&std::env::var(KIND).unwrap(), &place);
    match enter(&profile, Strictness::Required) {
        Ok(confined) => assert!(Confined::is_whole(confined)),
        Err(e) => {
            println!("attempt not confined");
            eprintln!("{e}");
            return;
        }
    }
    files(&place);
    calls();
    processes(&place);
    networks(&place);
}

/// Reports an attempt of the library's.
fn report<T>(what: &str, result: std::io::Result<T>) {
    let how = match result {
        Ok(_) => "done".to_owned(),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => "refused".to_owned(),
        // A rename out of a hierarchy.
        Err(e) if e.kind() == ErrorKind::CrossesDevices => "refused".to_owned(),
        Err(e) => e.to_string(),
    };
    println!("attempt {what}: {how}");
}

fn files(place: &Path) {
    let own = place.join("own");
    report("read another file", std::fs::read(place.join("secret")));
    report("list another directory", std::fs::read_dir(place));
    report(
        "make a file elsewhere",
        std::fs::File::create_new(place.join("new")),
    );
    report("truncate another file", {
        let path = place.join("secret");
        std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
    });
    report(
        "write what is only to be read",
        std::fs::write(place.join("given"), "changed"),
    );
    report(
        "move a file out",
        std::fs::rename(own.join("file"), place.join("moved")),
    );
    std::os::unix::fs::symlink("../secret", own.join("link")).unwrap();
    report(
        "reach another file through a link",
        std::fs::read(own.join("link")),
    );
    report("read the given file", std::fs::read(place.join("given")));
    report("read its own file", std::fs::read(own.join("file")));
    let all = || {
        std::fs::create_dir(own.join("below"))?;
        std::fs::write(own.join("new"), "new")?;
        std::fs::rename(own.join("new"), own.join("below/moved"))?;
        std::fs::remove_dir_all(own.join("below"))
    };
    report("make, move and remove its own", all());
    let status = std::fs::read_to_string("/proc/self/status");
    let status = status.inspect_err(|e| println!("{e}")).unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let dumpable = rustix::process::dumpable_behavior().unwrap();
    println!(
        "attempt hidden: NoNewPrivs {}, Seccomp {}, dumpable {}",
        of("NoNewPrivs:"),
        of("Seccomp:"),
        dumpable as i32
    );
    println!("attempt its own status: done");
    let other = place.join("secret");
    let thread = std::thread::Builder::new().spawn(move || {
        report("a thread is confined", std::fs::read(other));
    });
    report("a thread", thread.map(|thread| thread.join().unwrap()));
}

fn call(what: &str, number: libc::c_long, arguments: [usize; 5]) {
    let [a, b, c, d, e] = arguments;
    // SAFETY: none of these calls writes through a pointer: those given are null or unused. Those that would change memory's
    // protection or make a process are refused by the filter that is tested; where it fails, this process is a test's.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    let how = match std::io::Error::last_os_error().raw_os_error() {
        _ if result >= 0 => "done",
        Some(libc::EPERM) => "EPERM",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::EFAULT) => "EFAULT",
        _ => "another error",
    };
    println!("attempt {what}: {how}");
}

fn calls() {
    let victim: usize = std::env::var("BREAK_OUT_VICTIM").unwrap().parse().unwrap();
    let none = [0; 5];
    let run = libc::PROT_EXEC as usize;
    call(
        "ptrace",
        libc::SYS_ptrace,
        [libc::PTRACE_ATTACH as usize, victim, 0, 0, 0],
    );
    call(
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        [victim, 0, 0, 0, 0],
    );
    call("pidfd_getfd", libc::SYS_pidfd_getfd, none);
    call(
        "unshare",
        libc::SYS_unshare,
        [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0],
    );
    call(
        "clone with a name space",
        libc::SYS_clone,
        [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0],
    );
    call("clone3", libc::SYS_clone3, none);
    call("mount", libc::SYS_mount, none);
    call("bpf", libc::SYS_bpf, none);
    call("keyctl", libc::SYS_keyctl, none);
    call("userfaultfd", libc::SYS_userfaultfd, none);
    call("setuid", libc::SYS_setuid, none);
    call(
        "memory to write and run",
        libc::SYS_mmap,
        [
            0,
            4096,
            run | libc::PROT_WRITE as usize,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
            usize::MAX,
        ],
    );
    call("make memory run", libc::SYS_mprotect, [0, 4096, run, 0, 0]);
    call(
        "be dumpable again",
        libc::SYS_prctl,
        [libc::PR_SET_DUMPABLE as usize, 1, 0, 0, 0],
    );
    call(
        "type into the terminal",
        libc::SYS_ioctl,
        [0, libc::TIOCSTI as usize, 0, 0, 0],
    );
    call(
        "packet socket",
        libc::SYS_socket,
        [libc::AF_PACKET as usize, libc::SOCK_RAW as usize, 0, 0, 0],
    );
    call("io_uring", libc::SYS_io_uring_setup, none);
    match cfg!(target_arch = "x86_64") {
        // getpid, by the number that it has there.
        true => call("a system call of x32", 0x4000_0000 + 39, none),
        false => println!("attempt a system call of x32: ENOSYS"),
    }
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is as long as the length says.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 16);
    println!("attempt random bytes: done");
}

fn processes(place: &Path) {
    let victim: i32 = std::env::var("BREAK_OUT_VICTIM").unwrap().parse().unwrap();
    report(
        "read another process's memory",
        std::fs::File::open(format!("/proc/{victim}/mem")),
    );
    let pid = rustix::process::Pid::from_raw(victim).unwrap();
    // 0 asks whether a signal could be sent.
    let asked = rustix::process::test_kill_process(pid);
    report("signal another process", asked.map_err(Into::into));
    let run = |program: &Path, argument: &Path| {
        let ran = Command::new(program)
            .arg(argument)
            .stderr(Stdio::null())
            .output()?;
        match ran.status.success() {
            true => Ok(()),
            false => Err(std::io::Error::from(ErrorKind::PermissionDenied)),
        }
    };
    let cat = Path::new("/bin/cat");
    report("start a program", run(cat, &place.join("given")));
    report(
        "a program reads another file",
        run(cat, &place.join("secret")),
    );
    let made = place.join("own/made");
    if std::fs::copy(cat, &made).is_err() {
        // Its bytes may not be read where no program may be started.
        std::fs::write(&made, "#!/bin/sh\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&made, PermissionsExt::from_mode(0o755)).unwrap();
    }
    report(
        "start a program of its own making",
        run(&made, &place.join("given")),
    );
}

fn networks(place: &Path) {
    let port: u16 = std::env::var("BREAK_OUT_PORT").unwrap().parse().unwrap();
    report("connect", TcpStream::connect(("127.0.0.1", port)));
    report("listen", TcpListener::bind("127.0.0.1:0"));
    report(
        "listen at another port",
        TcpListener::bind(("127.0.0.2", port)),
    );
    report("a datagram", UdpSocket::bind("127.0.0.1:0"));
    report("a Unix socket", UnixStream::connect(place.join("socket")));
}

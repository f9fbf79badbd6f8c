//! A process of the system under test: started on a machine, waited for until it says that it serves, killed by its number.
//!
//! 1. Whatever happens to the test, its processes end with it: each is killed when its [`Process`] is dropped.
//! 2. Nothing here waits longer than [`TIMEOUT`].

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than anything here takes on a busy machine; what is not done by then hangs.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// A process, with its log in a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it says goes to the end of the log. It need not serve yet.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Process {
        let out = File::options().create(true).append(true).open(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {:?}: {e}", command.get_program()));
        Process {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        }
    }

    /// Starts a server, which reports as to systemd when it serves. An error has its log.
    pub fn serve(name: &str, mut command: Command, log: &Path) -> Result<Process, String> {
        let socket = log.with_extension("notify");
        let _ = std::fs::remove_file(&socket);
        let notices = UnixDatagram::bind(&socket).unwrap();
        notices
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        command.env("NOTIFY_SOCKET", &socket);
        let mut process = Process::start(name, command, log);
        let began = Instant::now();
        let mut notice = [0; 1024];
        loop {
            match notices.recv(&mut notice) {
                Ok(len) if notice[..len].starts_with(b"READY=1") => {
                    let status = format!("/proc/{}/status", process.child.id());
                    let status = std::fs::read_to_string(status).unwrap();
                    assert!(
                        status.contains("Seccomp:\t2"),
                        "{name} is not confined: {status}"
                    );
                    return Ok(process);
                }
                Ok(_) => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(e) => panic!("{name}: its notices: {e}"),
            }
            if let Some(status) = process.child.try_wait().unwrap() {
                return Err(format!("{name} ended with {status}: {}", process.said()));
            }
            if began.elapsed() > TIMEOUT {
                return Err(format!("{name} does not serve: {}", process.said()));
            }
        }
    }

    /// The end of its log.
    pub fn said(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let from = log.len().saturating_sub(4000);
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory, bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/statm", self.id())).unwrap();
        let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kill -9, and waits until it is gone.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        self.wait(TIMEOUT)
            .unwrap_or_else(|| panic!("{} was killed, and does not end", self.name));
    }

    /// Stops it, and waits.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(TIMEOUT)
            .unwrap_or_else(|| panic!("{} does not stop: {}", self.name, self.said()))
    }

    /// How it ended, if it does within this time.
    pub fn wait(&mut self, time: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if began.elapsed() > time {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds; says what did not.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

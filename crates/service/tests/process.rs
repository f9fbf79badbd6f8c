//! A server's process as its supervisor sees it: its log, its notifications to systemd, and its end. The server is this
//! very program, started again.
#![allow(missing_docs)]

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use service::{Common, LogFormat, Measures, Observed, Service, Stop};

const ROLE: &str = "SERVICE_TEST_ROLE";
const LONG: Duration = Duration::from_secs(60);

struct Nothing;

impl Observed for Nothing {
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
    fn measure(&self, _measures: &mut Measures) {}
}

/// Not a test: the server of the tests below.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn server_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let format = match role.as_str() {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    };
    let grace = match role.as_str() {
        "stuck for a moment" => Duration::from_millis(100),
        _ => LONG,
    };
    service::logs::start(format, "info");
    let stop = Stop::on_signals(grace).unwrap();
    let service = Service::start(&Common::default(), Arc::new(Nothing)).unwrap();
    tracing::info!(role, "begun");
    service.ready("serving nothing");
    stop.wait();
    service.stopping();
    if role.starts_with("stuck") {
        std::thread::sleep(LONG * 10);
    }
    tracing::info!("ended");
}

struct Server {
    child: Child,
    notices: UnixDatagram,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(role: &str, change: impl FnOnce(&mut Command)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notices = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        notices.set_read_timeout(Some(LONG)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "server_process", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .env_remove("STRONGROOM_LOG")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        change(&mut command);
        let child = command.spawn().unwrap();
        Self {
            child,
            notices,
            _dir: dir,
        }
    }

    fn notice(&self) -> String {
        let mut bytes = [0; 256];
        let len = self.notices.recv(&mut bytes).expect("a notice");
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ended, and what it wrote.
    fn end(mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < LONG, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        (status, log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn systemd_is_notified_of_the_beginning_and_the_end_and_a_signal_ends_it_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = Server::start("orderly", |_| ());
        let ready = server.notice();
        assert!(
            ready.contains("READY=1") && ready.contains("STATUS=serving nothing"),
            "{ready}"
        );
        server.signal(signal);
        assert_eq!(server.notice().trim_end(), "STOPPING=1");
        let (status, log) = server.end();
        assert!(status.success(), "{status}: {log}");
        assert!(log.contains("ended"), "{log}");
    }
}

#[test]
fn a_second_signal_ends_a_stuck_server_at_once() {
    let server = Server::start("stuck", |_| ());
    server.notice();
    server.signal(Signal::TERM);
    assert_eq!(server.notice().trim_end(), "STOPPING=1");
    server.signal(Signal::TERM);
    let (status, log) = server.end();
    assert_eq!((status.code(), status.signal()), (Some(143), None), "{log}");
    assert!(log.contains("second stop signal"), "{log}");
}

#[test]
fn a_stuck_server_is_ended_after_its_grace() {
    let server = Server::start("stuck for a moment", |_| ());
    server.notice();
    server.signal(Signal::TERM);
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("could not stop in time"), "{log}");
}

#[test]
fn a_log_in_json_is_one_object_a_line() {
    let server = Server::start("json", |_| ());
    server.notice();
    server.signal(Signal::TERM);
    let (_, log) = server.end();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let begun = lines
        .iter()
        .find(|line| line["message"] == "begun")
        .unwrap();
    assert_eq!(
        (&begun["role"], &begun["level"]),
        (&"json".into(), &"INFO".into())
    );
    assert!(begun["timestamp"].is_string());
}

#[test]
fn the_journal_gets_no_time_of_ours_and_a_foreign_stream_does() {
    for stamped in [false, true] {
        let mut log = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&log).unwrap();
        let name = match stamped {
            true => "1:1".to_owned(),
            false => format!("{}:{}", stat.st_dev, stat.st_ino),
        };
        let stderr = log.try_clone().unwrap();
        let server = Server::start("journal", |command| {
            command.env("JOURNAL_STREAM", &name).stderr(stderr);
        });
        server.notice();
        server.signal(Signal::TERM);
        server.end();
        std::io::Seek::rewind(&mut log).unwrap();
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        let line = text.lines().find(|line| line.contains("begun")).unwrap();
        assert_eq!(line.starts_with("20"), stamped, "{line}");
    }
}

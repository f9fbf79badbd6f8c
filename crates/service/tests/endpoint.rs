//! The endpoint over real sockets: what curl gets, what Prometheus would read, and how it treats clients that misbehave.
#![allow(missing_docs)]

#[allow(unreachable_pub)]
mod exposition;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use service::endpoint::{CONNECTIONS_MAX, REQUEST_TIMEOUT};
use service::{Common, Measures, Observed, Service};

#[derive(Default)]
struct Server {
    broken: AtomicBool,
    stuck: AtomicBool,
}

impl Observed for Server {
    fn ready(&self) -> Result<(), String> {
        while self.stuck.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.broken.load(Ordering::SeqCst) {
            return Err("disk d1 does not answer".into());
        }
        Ok(())
    }

    fn measure(&self, measures: &mut Measures) {
        measures.counter("strongroom_test_requests_total", "Requests answered.", 7);
        measures.counters(
            "strongroom_test_refused_total",
            "Requests refused, by \"reason\" \\ with\na line's end.",
            "reason",
            [("a \"quoted\" \\ word\n", 1), ("expired", u64::MAX)],
        );
        measures.gauge("strongroom_test_connections", "Connections.", 2.5);
        measures.gauges("strongroom_test_none", "Nothing.", "of", []);
    }
}

fn start() -> (Arc<Server>, Service, SocketAddr) {
    let server = Arc::new(Server::default());
    let common = Common {
        health: Some("0".parse().unwrap()),
        ..Common::default()
    };
    let service = Service::start(&common, server.clone()).unwrap();
    let address = service.address().unwrap();
    assert!(address.ip().is_loopback(), "a port alone is this machine's");
    (server, service, address)
}

/// What curl gets: status, media type, body.
fn get(address: SocketAddr, path: &str, more: &[&str]) -> (u16, String, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "30"])
        .args(["--write-out", "\n%{http_code} %{content_type}"])
        .args(more)
        .arg(format!("http://{address}{path}"))
        .output()
        .expect("curl is installed");
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, last) = text.rsplit_once('\n').unwrap();
    let (status, kind) = last.split_once(' ').unwrap();
    (status.parse().unwrap(), kind.to_owned(), body.to_owned())
}

#[test]
fn readiness_follows_the_server_and_liveness_does_not() {
    let (server, service, address) = start();
    assert_eq!(get(address, "/healthz", &[]).0, 200);
    let (status, _, body) = get(address, "/readyz", &[]);
    assert_eq!((status, body.as_str()), (503, "starting\n"));
    service.ready("serving");
    assert_eq!(get(address, "/readyz", &[]).0, 200);
    server.broken.store(true, Ordering::SeqCst);
    let (status, _, body) = get(address, "/readyz", &[]);
    assert_eq!((status, body.as_str()), (503, "disk d1 does not answer\n"));
    assert_eq!(get(address, "/healthz", &[]).0, 200);
    server.broken.store(false, Ordering::SeqCst);
    service.stopping();
    assert_eq!(get(address, "/readyz", &[]).0, 503);
    assert_eq!(get(address, "/elsewhere", &[]).0, 404);
    assert_eq!(get(address, "/healthz", &["--data", "x=1"]).0, 405);
    drop(service);
    let began = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(
            began.elapsed() < REQUEST_TIMEOUT,
            "the endpoint outlives the service"
        );
    }
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let (_server, _service, address) = start();
    let (status, kind, text) = get(address, "/metrics", &[]);
    assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4"));
    let families = exposition::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let sample = |name: &str, labels: &[(&str, &str)]| {
        families
            .iter()
            .flat_map(|family| &family.samples)
            .find(|s| {
                s.name == name
                    && s.labels
                        .iter()
                        .map(|(k, v)| (k.as_str(), v.as_str()))
                        .eq(labels.iter().copied())
            })
            .unwrap_or_else(|| panic!("no {name} {labels:?} in\n{text}"))
            .value
    };
    assert_eq!(sample("strongroom_test_requests_total", &[]), 7.0);
    let odd = [("reason", "a \"quoted\" \\ word\n")];
    assert_eq!(sample("strongroom_test_refused_total", &odd), 1.0);
    assert_eq!(sample("strongroom_test_connections", &[]), 2.5);
    assert!(sample("process_resident_memory_bytes", &[]) > 0.0);
    promtool(&text);
}

/// Prometheus' own judgement, where it is installed.
fn promtool(text: &str) {
    let Ok(mut child) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        eprintln!("promtool is not installed: judged by the test's own parser alone");
        return;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_server_that_is_stuck_is_said_to_be_and_liveness_still_answers() {
    let (server, service, address) = start();
    service.ready("serving");
    server.stuck.store(true, Ordering::SeqCst);
    let waiting = std::thread::spawn(move || get(address, "/readyz", &[]));
    assert_eq!(get(address, "/healthz", &[]).0, 200);
    let (status, _, body) = waiting.join().unwrap();
    assert_eq!(
        (status, body.as_str()),
        (503, "the server does not answer\n")
    );
    server.stuck.store(false, Ordering::SeqCst);
}

#[test]
fn slow_and_idle_clients_are_closed_and_no_more_than_a_bounded_number_is_served() {
    let (_server, _service, address) = start();
    let began = Instant::now();
    let mut slow: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|number| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(REQUEST_TIMEOUT * 4)).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET /healthz HT").unwrap();
            }
            stream
        })
        .collect();
    // Accepted in order, so that this one comes after those: it is closed at once, without an answer.
    let mut further = TcpStream::connect(address).unwrap();
    further.set_read_timeout(Some(REQUEST_TIMEOUT * 4)).unwrap();
    let _ = further.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut said = Vec::new();
    let _ = further.read_to_end(&mut said);
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    for stream in &mut slow {
        said.clear();
        // An error is a reset, which is an end as well; a time-out would be none.
        if let Err(error) = stream.read_to_end(&mut said) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
    // All at once, not one after another.
    let all = REQUEST_TIMEOUT * (CONNECTIONS_MAX as u32 / 2);
    assert!(began.elapsed() < all, "{:?}", began.elapsed());
    assert_eq!(get(address, "/healthz", &[]).0, 200);
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let (_server, _service, address) = start();
    let long = format!("X-Long: {}", "x".repeat(100_000));
    assert_eq!(get(address, "/healthz", &["--header", &long]).0, 431);
    assert_eq!(get(address, "/healthz", &[]).0, 200);
}

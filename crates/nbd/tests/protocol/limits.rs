//! Limits in number, size and time, and the end of a server.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use device::{AroundMemory, Device, MemoryDevice};
use nbd::{Config, ExportError, Listen, ServeError, Server, TlsPolicy};
use parking_lot::{Condvar, Mutex};

use crate::client::*;

/// Memory whose reads beyond the first 64 KiB wait until they are let go.
#[derive(Debug)]
struct Gated {
    memory: MemoryDevice,
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gated {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryDevice::new(1 << 20),
            open: Mutex::new(false),
            opened: Condvar::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    fn wait_for(&self, readers: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.waiting.load(Ordering::SeqCst) < readers {
            assert!(
                Instant::now() < deadline,
                "{} of {readers} came",
                self.waiting.load(Ordering::SeqCst)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl AroundMemory for Gated {
    fn memory(&self) -> &MemoryDevice {
        &self.memory
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset >= 64 << 10 {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut open = self.open.lock();
            while !*open {
                self.opened.wait(&mut open);
            }
        }
        self.memory.read_at(buf, offset)
    }
}

#[test]
fn requests_run_at_the_same_time_and_are_answered_as_they_end() {
    let gated = Gated::new();
    let server = serve(gated.clone(), Config::default());
    let mut client = Client::transmitting(&server, false);
    // Too large to be done while receiving.
    for cookie in 0..8 {
        client.request(READ, 0, cookie, 128 << 10, 64 << 10);
    }
    gated.wait_for(8);
    client.request(READ, 0, 100, 0, 512);
    let first = client.reply();
    assert_eq!((first.cookie, first.payload.len()), (100, 520));
    gated.open();
    let mut cookies: Vec<u64> = (0..8).map(|_| client.reply().cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_stop_answers_what_runs_and_takes_nothing_new() {
    let gated = Gated::new();
    let mut server = serve(gated.clone(), Config::default());
    let mut client = Client::transmitting(&server, false);
    client.request(READ, 0, 1, 128 << 10, 64 << 10);
    gated.wait_for(1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop(Duration::from_secs(30)));
        // The receiving side ends at once; the answer still comes.
        std::thread::sleep(Duration::from_millis(50));
        gated.open();
        assert_eq!(client.reply().cookie, 1);
        assert_eq!(client.rest().unwrap(), []);
        stopping.join().unwrap().unwrap();
    });
    assert_eq!(server.metrics().connections, 0);
}

#[test]
fn payloads_in_memory_are_bounded_and_nobody_starves() {
    let config = Config {
        payload_bytes_max: 32 << 20,
        ..Config::default()
    };
    let server = serve(Arc::new(MemoryDevice::new(64 << 20)), config);
    std::thread::scope(|scope| {
        for i in 0..4_u8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::transmitting(server, false);
                let data = vec![i; 24 << 20];
                for _ in 0..3 {
                    assert_eq!(client.write(u64::from(i) << 20, &data).kind, 0);
                }
            });
        }
    });
}

#[test]
fn an_idle_client_is_cut_off_and_half_a_request_too() {
    let config = Config {
        // They are waited for; on a busy machine, an honest handshake still takes less.
        handshake_max: Duration::from_secs(1),
        transfer_max: Duration::from_secs(1),
        idle_max: Some(Duration::from_secs(1)),
        ..Config::default()
    };
    let server = serve(Arc::new(MemoryDevice::new(1 << 20)), config);
    // In the handshake: idle, and a byte from time to time.
    let mut idle = Client::connect(&server);
    idle.rest().unwrap();
    let mut slow = Client::connect(&server);
    let begun = Instant::now();
    while slow.stream.write_all(&[0]).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    // In the transmission phase: half a request, half a payload, silence.
    let mut half = Client::transmitting(&server, false);
    let head = half.head(READ, 0, 1, 0, 512);
    half.send(&head[..10]);
    assert_eq!(half.rest().unwrap(), []);
    let mut half = Client::transmitting(&server, false);
    half.request(WRITE, 0, 1, 0, 512);
    assert_eq!(half.rest().unwrap(), []);
    let mut idle = Client::transmitting(&server, false);
    assert_eq!(idle.rest().unwrap(), []);
    assert_eq!(server.metrics().connections_cut, 5);
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let config = Config {
        connections_max: 2,
        ..Config::default()
    };
    let server = serve(Arc::new(MemoryDevice::new(1 << 20)), config);
    let kept = [Client::greeted(&server), Client::greeted(&server)];
    let mut third = Client::connect(&server);
    assert_eq!(third.rest().unwrap(), []);
    drop(kept);
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.metrics().connections > 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    Client::greeted(&server);
}

#[test]
fn what_others_could_reach_is_not_served_without_tls() {
    let config = |listen: &str| Config {
        listen: Listen::Tcp(listen.into()),
        ..Config::default()
    };
    let export = || nbd::Export {
        name: String::new(),
        description: String::new(),
        device: Arc::new(MemoryDevice::new(4096)),
        read_only: false,
    };
    let refused = Server::start(config("0.0.0.0:0"), vec![export()]).unwrap_err();
    assert!(matches!(refused, ServeError::OpenToOthers(_)));
    let forced = Config {
        open_to_all: true,
        ..config("0.0.0.0:0")
    };
    drop(Server::start(forced, vec![export()]).unwrap());
    let required = Config {
        policy: TlsPolicy::Require,
        ..config("127.0.0.1:0")
    };
    let refused = Server::start(required, vec![export()]).unwrap_err();
    assert!(matches!(refused, ServeError::NoTls));
    for (exports, error) in [
        (vec![], ExportError::Nothing),
        (vec![export(), export()], ExportError::Twice(String::new())),
        (
            vec![nbd::Export {
                name: "x".repeat(4097),
                ..export()
            }],
            ExportError::Name,
        ),
    ] {
        let refused = Server::start(config("127.0.0.1:0"), exports).unwrap_err();
        assert!(matches!(refused, ServeError::Exports(e) if e == error));
    }
}

#[test]
fn a_socket_that_a_dead_server_left_is_taken_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let config = || Config {
        listen: Listen::Unix(path.clone()),
        ..Config::default()
    };
    let device = || Arc::new(MemoryDevice::new(4096));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = serve(device(), config());
    let mode = std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let export = nbd::Export {
        name: String::new(),
        description: String::new(),
        device: device(),
        read_only: false,
    };
    let refused = Server::start(config(), vec![export.clone()]).unwrap_err();
    assert!(matches!(refused, ServeError::Taken(_)));
    drop(server);
    assert!(!path.exists());
    // What is no socket is nobody's to replace.
    std::fs::write(&path, "precious").unwrap();
    Server::start(config(), vec![export]).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// Its answers were waited for as long as those to requests are.
#[test]
fn a_client_that_takes_no_answers_in_the_handshake_is_cut_off_in_its_time() {
    let config = Config {
        handshake_max: Duration::from_secs(1),
        ..Config::default()
    };
    let export = nbd::Export {
        name: "n".repeat(4096),
        description: "d".repeat(4096),
        device: Arc::new(MemoryDevice::new(4096)),
        read_only: false,
    };
    let server = Server::start(config, vec![export]).unwrap();
    let mut client = Client::greeted(&server);
    // More than all buffers between the two hold.
    for _ in 0..4000 {
        client.send_option(LIST, &[]);
    }
    let begun = Instant::now();
    while server.metrics().connections > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.metrics().connections_cut, 1);
}

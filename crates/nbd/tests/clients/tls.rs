//! TLS with certificates and with pre-shared keys, and what is refused without.

use std::path::Path;
use std::sync::Arc;

use device::MemoryDevice;
use nbd::{Config, Listen, Server, Tls, TlsFiles, TlsPolicy};

use crate::common::{export, has, ok, run, text};

/// An authority, a server and a client it vouches for, and a client that it does not, in directories as libnbd wants them.
fn certificates(dir: &Path) {
    let sh = r#"
set -e
cd "$1"
mkdir -p server client stranger
new() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout "$1-key.pem" -out "$1-cert.pem" -subj "/CN=$2" -addext basicConstraints=critical,CA:TRUE; }
leaf() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$2-key.pem" -out leaf.csr -subj "/CN=$3"
  printf "subjectAltName=DNS:localhost,IP:127.0.0.1\n" > ext
  openssl x509 -req -in leaf.csr -CA "$1-cert.pem" -CAkey "$1-key.pem" -CAcreateserial -days 2 -out "$2-cert.pem" -extfile ext
}
new ca authority
new other "other authority"
leaf ca server/server localhost
leaf ca client/client somebody
leaf other stranger/client stranger
for dir in server client stranger; do cp ca-cert.pem "$dir/ca-cert.pem"; done
"#;
    ok("sh", &["-c", sh, "sh", text(dir)]);
}

fn serve(files: &TlsFiles, policy: TlsPolicy) -> (Server, u16) {
    let config = Config {
        listen: Listen::Tcp("127.0.0.1:0".into()),
        policy,
        tls: Some(Tls::read(files).unwrap()),
        ..Config::default()
    };
    let server = Server::start(
        config,
        vec![export("", Arc::new(MemoryDevice::new(1 << 20)))],
    )
    .unwrap();
    let port = server.local_addr().unwrap().port();
    (server, port)
}

fn succeeds(uri: &str) -> bool {
    run("nbdinfo", &["--size", uri]).status.success()
}

#[test]
fn certificates_are_shown_and_asked_for() {
    if !has("openssl") || !has("nbdinfo") || !has("nbdcopy") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let mut files = TlsFiles {
        certificates: Some(dir.path().join("server")),
        ..TlsFiles::default()
    };
    let (server, port) = serve(&files, TlsPolicy::Require);
    let uri = |who: &str| {
        format!(
            "nbds://localhost:{port}?tls-certificates={}",
            text(&dir.path().join(who))
        )
    };
    let said = ok("nbdinfo", &[&uri("client")]);
    assert!(said.contains("with TLS"), "{said}");
    assert!(succeeds(&uri("stranger")));
    // Data both ways, more than a record and more than a buffer.
    let image = dir.path().join("image");
    std::fs::write(&image, crate::common::noise(1 << 20, 6)).unwrap();
    ok(
        "nbdcopy",
        &["--connections=1", text(&image), &uri("client")],
    );
    let back = dir.path().join("back");
    ok("nbdcopy", &[&uri("client"), text(&back)]);
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&image).unwrap());
    drop(server);

    files.verify_clients = true;
    let (_server, port) = serve(&files, TlsPolicy::Require);
    let uri = |who: &str| {
        format!(
            "nbds://localhost:{port}?tls-certificates={}",
            text(&dir.path().join(who))
        )
    };
    assert!(succeeds(&uri("client")));
    assert!(!succeeds(&uri("stranger")));
}

#[test]
fn a_pre_shared_key_opens_and_another_does_not() {
    if !has("nbdinfo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.psk"), dir.path().join("bad.psk"));
    std::fs::write(
        &good,
        format!("alice:{}\nbob:{}\n", "1a".repeat(32), "2b".repeat(32)),
    )
    .unwrap();
    std::fs::write(&bad, format!("alice:{}\n", "2b".repeat(32))).unwrap();
    let files = TlsFiles {
        pre_shared_keys: Some(good.clone()),
        ..TlsFiles::default()
    };
    let (_server, port) = serve(&files, TlsPolicy::Require);
    let uri = |who: &str, file: &Path| {
        format!("nbds://{who}@localhost:{port}?tls-psk-file={}", text(file))
    };
    let said = ok("nbdinfo", &[&uri("alice", &good)]);
    assert!(said.contains("with TLS"), "{said}");
    assert!(succeeds(&uri("bob", &good)));
    assert!(!succeeds(&uri("alice", &bad)));
    assert!(!succeeds(&uri("eve", &good)));
}

#[test]
fn without_tls_nothing_is_answered_where_it_is_required() {
    if !has("nbdsh") || !has("nbdinfo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.psk");
    std::fs::write(&keys, format!("alice:{}\n", "1a".repeat(32))).unwrap();
    let files = TlsFiles {
        pre_shared_keys: Some(keys.clone()),
        ..TlsFiles::default()
    };
    let (_server, port) = serve(&files, TlsPolicy::Require);
    let plain = format!("nbd://localhost:{port}");
    assert!(!succeeds(&plain));
    assert!(!run("nbdinfo", &["--list", &plain]).status.success());
    drop(_server);
    let (_server, port) = serve(&files, TlsPolicy::Allow);
    assert!(succeeds(&format!("nbd://localhost:{port}")));
    let uri = format!("nbds://alice@localhost:{port}?tls-psk-file={}", text(&keys));
    assert!(succeeds(&uri));
}

#[test]
fn what_came_in_plain_before_tls_is_not_taken_for_what_came_inside_it() {
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.psk");
    std::fs::write(&keys, format!("alice:{}\n", "1a".repeat(32))).unwrap();
    let files = TlsFiles {
        pre_shared_keys: Some(keys),
        ..TlsFiles::default()
    };
    let (server, port) = serve(&files, TlsPolicy::Require);
    let option = |number: u32| {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes
    };
    let connect = || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        stream
    };
    let mut reply = [0; 20];
    let mut stream = connect();
    for (number, kind) in [(3, (1 << 31) + 5), (8, (1 << 31) + 5), (2, 1_u32)] {
        stream.write_all(&option(number)).unwrap();
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[12..16], kind.to_be_bytes(), "{number}");
        let mut words = vec![0; u32::from_be_bytes(reply[16..].try_into().unwrap()) as usize];
        stream.read_exact(&mut words).unwrap();
    }
    // The request for TLS and something after it, at once: no acknowledgement, an end.
    let mut stream = connect();
    stream.write_all(&[option(5), option(3)].concat()).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, []);
    // An export by the option that cannot be refused.
    let mut stream = connect();
    stream.write_all(&option(1)).unwrap();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, []);
    assert_eq!(server.metrics().connections_cut, 2);
}

//! Clients that are slow, idle, too many, or malformed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Shape};
use super::common::noise;
use super::process::TIMEOUT;

/// Connections that are opened and say nothing.
const IDLE: usize = 400;
/// What they may cost a server, bytes each: its thread's or task's memory, and then some.
const EACH: u64 = 256 << 10;

#[test]
fn idle_and_malformed_clients_are_cut_off_and_cost_little_while_others_work_on() {
    let Some(cluster) = Cluster::start(Shape::small()) else {
        return;
    };
    let root = cluster.mountpoint(0);
    std::fs::write(root.join("before"), noise(1 << 20, 1)).unwrap();
    for (address, server) in [
        (cluster.disk_address(0), cluster.disk(0)),
        (cluster.server_address(), cluster.server()),
    ] {
        let before = server.memory();
        let mut idle: Vec<TcpStream> = Vec::new();
        for number in 0..IDLE {
            let mut stream = cluster.connect(&address);
            if number % 2 == 0 {
                // Nonsense, and the beginning of a message that never comes.
                let _ = stream.write_all(&noise(number % 50, number as u64));
            }
            idle.push(stream);
        }
        // Those who were there before go on meanwhile.
        let bytes = noise(1 << 20, 2);
        std::fs::write(root.join("meanwhile"), &bytes).unwrap();
        assert_eq!(std::fs::read(root.join("meanwhile")).unwrap(), bytes);
        let grown = server.memory().saturating_sub(before);
        eprintln!("{IDLE} idle connections to {address}: {grown} bytes more");
        assert!(
            grown < IDLE as u64 * EACH,
            "{grown} bytes for {IDLE} connections"
        );
        // Each is closed by the server.
        let began = Instant::now();
        for stream in &mut idle {
            stream
                .set_read_timeout(Some(Duration::from_secs(1)))
                .unwrap();
            let mut buf = [0; 256];
            loop {
                match stream.read(&mut buf) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
                    Err(e) => assert!(began.elapsed() < TIMEOUT, "an idle client is kept: {e}"),
                }
            }
        }
    }
    assert_eq!(
        std::fs::read(root.join("before")).unwrap(),
        noise(1 << 20, 1)
    );
}

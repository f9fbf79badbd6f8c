//! A server with a bounded number of connections and an orderly end. A request is one byte; its answer is the same byte.
//!
//! `cargo run -p strongroom-streams --example echo_server`. Writes no file. Where requests of one connection are to be done at the same
//! time, implement [`streams::Served`] and call [`streams::work`] instead of the loop in `serve`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use streams::{
    Acceptor, Ahead, ConnectionLimiter, ConnectionPermit, Listener, Receiver, Sender, Serve,
    Socket, Stream,
};

/// No peer holds up the server for longer than this.
const LONG: Duration = Duration::from_secs(10);

/// A connection's bytes as they are; a server with TLS has its session here.
struct Plain(Socket);

impl Stream for Plain {
    fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }

    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.0.send_all(parts, Instant::now() + LONG)
    }

    fn cut(&self) {
        self.0.shutdown(Shutdown::Both);
    }
}

struct Echo;

impl Echo {
    fn answer(&self, socket: Socket) -> io::Result<()> {
        socket.prepare(LONG, LONG)?;
        let (stream, sender) = (Plain(socket), Sender::default());
        // Small requests are received many at once; a large payload goes where it belongs, without a copy.
        let mut receiver = Receiver::new(Ahead {
            usual: 4096,
            after_large: 1024,
            direct: 2048,
        });
        let mut byte = [0];
        // False: the peer ended between two requests. An end within one is an error.
        while receiver.fill(&stream, &mut byte, &mut |_| Ok(()))? {
            sender.send(&stream, [&byte, &[]])?;
        }
        Ok(())
    }
}

impl Serve for Echo {
    // On a thread of its own. The connection's place is free again when `_permit` is dropped.
    fn serve(self: Arc<Self>, socket: Socket, peer: String, _permit: ConnectionPermit) {
        if let Err(error) = self.answer(socket) {
            eprintln!("{peer}: {error}");
        }
    }
}

fn main() -> io::Result<()> {
    // At most 16 connections, with 128 KiB of stack each. The next one is closed at once.
    let permits = ConnectionLimiter::new("echo", 128 << 10, 16);
    let listener = Listener::Tcp(TcpListener::bind("127.0.0.1:0")?);
    let mut acceptor = Acceptor::start(listener, permits, Arc::new(Echo))?;

    let address = acceptor.local_addr().ok_or(io::ErrorKind::NotFound)?;
    let mut client = TcpStream::connect(address)?;
    client.write_all(b"h")?;
    let mut answer = [0];
    client.read_exact(&mut answer)?;
    println!("{}", char::from(answer[0]));
    // Lets running requests finish, and cuts connections that take longer.
    acceptor.stop(LONG);
    Ok(())
}

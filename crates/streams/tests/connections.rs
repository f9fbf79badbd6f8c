//! Connections over real sockets: what arrives, in which order, and how they end.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use streams::{
    Acceptor, Ahead, Buffers, ConnectionLimiter, ConnectionPermit, Listener, Receiver, Sender,
    Serve, Served, Socket, Stream, WorkerPool,
};

const AHEAD: Ahead = Ahead {
    usual: 256,
    after_large: 16,
    direct: 128,
};
/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A socket as it is.
struct Plain(Socket);

impl Plain {
    fn new(socket: Socket, tick: Duration) -> Self {
        socket.prepare(LONG, LONG).unwrap();
        socket.set_tick(Some(tick)).unwrap();
        Self(socket)
    }

    fn pair() -> (Self, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (
            Self::new(Socket::Unix(ours), Duration::from_millis(1)),
            theirs,
        )
    }
}

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

fn go_on(_: bool) -> io::Result<()> {
    Ok(())
}

#[test]
fn what_comes_in_pieces_is_received_whole_and_in_order() {
    let (stream, mut peer) = Plain::pair();
    let sent: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
    let mut expected = sent.iter().copied();
    let sending = std::thread::spawn({
        let sent = sent.clone();
        move || {
            for piece in sent.chunks(77) {
                peer.write_all(piece).unwrap();
            }
        }
    });
    let mut receiver = Receiver::new(AHEAD);
    for len in [1, 127, 128, 129, 1000, 3, 0, 5000] {
        let mut out = vec![0; len];
        receiver.fill_all(&stream, &mut out, &mut go_on).unwrap();
        assert!(out.iter().copied().eq(expected.by_ref().take(len)), "{len}");
        receiver.skip(&stream, 10, &mut go_on).unwrap();
        expected.by_ref().take(10).for_each(drop);
        let ready = receiver.ready();
        assert!(receiver.take(ready + 1).is_none());
        let there = receiver.take(ready).unwrap();
        assert!(
            there
                .iter()
                .copied()
                .eq(expected.by_ref().take(there.len()))
        );
    }
    let mut rest = vec![0; expected.len()];
    receiver.fill_all(&stream, &mut rest, &mut go_on).unwrap();
    assert!(rest.into_iter().eq(expected));
    sending.join().unwrap();
}

#[test]
fn an_end_between_messages_is_distinguished_from_one_within() {
    let (stream, mut peer) = Plain::pair();
    peer.write_all(&[1, 2, 3]).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let mut receiver = Receiver::new(AHEAD);
    assert!(receiver.fill(&stream, &mut [0; 2], &mut go_on).unwrap());
    let cut_short = receiver.fill(&stream, &mut [0; 2], &mut go_on).unwrap_err();
    assert_eq!(cut_short.kind(), io::ErrorKind::UnexpectedEof);
    assert!(!receiver.fill(&stream, &mut [0; 2], &mut go_on).unwrap());
    let missing = receiver.skip(&stream, 1, &mut go_on).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_waiting_thread_may_stop_and_learns_whether_anything_came() {
    let (stream, mut peer) = Plain::pair();
    let mut receiver = Receiver::new(AHEAD);
    let stop_at_third = |receiver: &mut Receiver| {
        let mut reported = Vec::new();
        let stopped = receiver.fill(&stream, &mut [0; 8], &mut |partial| {
            reported.push(partial);
            if reported.len() == 3 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(())
        });
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
        reported
    };
    assert_eq!(stop_at_third(&mut receiver), [false; 3]);
    peer.write_all(&[1]).unwrap();
    assert_eq!(stop_at_third(&mut receiver), [true; 3]);
}

#[test]
fn messages_of_many_threads_leave_whole_and_those_of_one_in_order() {
    const THREADS: u8 = 4;
    const MESSAGES: usize = 300;
    let (stream, mut peer) = Plain::pair();
    let sender = Sender::default();
    let received = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (stream, sender) = (&stream, &sender);
            scope.spawn(move || {
                for i in 0..MESSAGES {
                    // Small ones, which are gathered, and some that are not.
                    let len = if i % 2 == 0 { 20_000 } else { i };
                    let mut head = vec![thread];
                    head.extend_from_slice(&(len as u32).to_le_bytes());
                    head.extend_from_slice(&(i as u32).to_le_bytes());
                    sender.send(stream, [&head, &vec![thread; len]]).unwrap();
                }
            });
        }
        let mut received = [0; THREADS as usize];
        for _ in 0..usize::from(THREADS) * MESSAGES {
            let mut head = [0; 9];
            peer.read_exact(&mut head).unwrap();
            let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; len as usize];
            peer.read_exact(&mut body).unwrap();
            assert!(body.iter().all(|byte| *byte == head[0]));
            let number = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
            assert_eq!(number, received[usize::from(head[0])]);
            received[usize::from(head[0])] += 1;
        }
        received
    });
    assert_eq!(received, [MESSAGES as u32; THREADS as usize]);
}

/// Cannot send.
struct Mute(Plain);

impl Stream for Mute {
    fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.0.recv(out)
    }

    fn send(&self, _parts: &[&[u8]]) -> io::Result<()> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn cut(&self) {
        self.0.cut();
    }
}

#[test]
fn a_failure_to_send_ends_the_connection_for_the_receiver() {
    for len in [1, 100_000] {
        let (stream, _peer) = Plain::pair();
        let stream = Mute(stream);
        let sender = Sender::default();
        assert!(sender.send(&stream, [&[1], &vec![2; len]]).is_err());
        let mut receiver = Receiver::new(AHEAD);
        let mut refuse = |_: bool| Err(io::ErrorKind::TimedOut.into());
        assert!(!receiver.fill(&stream, &mut [0; 1], &mut refuse).unwrap());
    }
}

/// Echoes bytes, digits only two at a time.
struct Echo {
    limiter: Arc<ConnectionLimiter>,
    buffers: Buffers,
    together: Barrier,
    begun: AtomicUsize,
}

struct Echoing {
    shared: Arc<Echo>,
    worker_pool: WorkerPool<Receiver>,
    sender: Sender,
    stream: Plain,
}

impl Serve for Echo {
    fn serve(self: Arc<Self>, socket: Socket, _peer: String, permit: ConnectionPermit) {
        streams::work(&Arc::new(Echoing {
            shared: self,
            worker_pool: WorkerPool::new(permit, 2, Receiver::new(AHEAD)),
            sender: Sender::default(),
            stream: Plain::new(socket, Duration::from_millis(1)),
        }));
    }
}

impl Served for Echoing {
    type Receiving = Receiver;
    type Request<'c> = u8;

    fn worker_pool(&self) -> &WorkerPool<Receiver> {
        &self.worker_pool
    }

    fn buffers(&self) -> &Buffers {
        &self.shared.buffers
    }

    fn receive(&self, receiver: &mut Receiver, _buffer: &mut Vec<u8>) -> io::Result<Option<u8>> {
        let mut byte = [0];
        let there = receiver.fill(&self.stream, &mut byte, &mut go_on)?;
        if byte == *b"!" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(there.then_some(byte[0]))
    }

    fn is_refused(_request: &u8) -> bool {
        false
    }

    fn answer(&self, request: &u8, _buffer: &mut Vec<u8>) {
        self.shared.begun.fetch_add(1, Ordering::SeqCst);
        if request.is_ascii_digit() {
            self.shared.together.wait();
        }
        let _ = self.sender.send(&self.stream, [&[*request], &[]]);
    }

    fn failed(&self, _error: &io::Error) {
        self.shared.limiter.count_cut();
    }
}

fn echo(max: usize) -> (Arc<Echo>, Acceptor) {
    let limiter = ConnectionLimiter::new("echo", 128 << 10, max);
    let echo = Arc::new(Echo {
        limiter: limiter.clone(),
        buffers: Buffers::default(),
        together: Barrier::new(2),
        begun: AtomicUsize::new(0),
    });
    let listener = Listener::Tcp(TcpListener::bind("127.0.0.1:0").unwrap());
    let acceptor = Acceptor::start(listener, limiter, echo.clone()).unwrap();
    (echo, acceptor)
}

fn connect(acceptor: &Acceptor) -> TcpStream {
    let socket = TcpStream::connect(acceptor.local_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// The answer to one byte; `None` where the connection is over.
fn ask(mut socket: &TcpStream, byte: u8) -> Option<u8> {
    let mut answer = [0];
    socket.write_all(&[byte]).ok()?;
    socket.read_exact(&mut answer).ok()?;
    Some(answer[0])
}

#[test]
fn requests_of_a_connection_are_done_at_the_same_time() {
    let (echo, mut acceptor) = echo(4);
    let mut socket = connect(&acceptor);
    // Each waits for the other.
    socket.write_all(b"12").unwrap();
    let mut answers = [0; 2];
    socket.read_exact(&mut answers).unwrap();
    answers.sort_unstable();
    assert_eq!(answers, *b"12");
    assert_eq!(echo.limiter.counts().now, 1);
    drop(socket);
    assert!(acceptor.stop(LONG));
    assert_eq!(echo.limiter.counts().now, 0);
}

#[test]
fn there_are_no_more_connections_than_permits() {
    let (echo, mut acceptor) = echo(1);
    let first = connect(&acceptor);
    assert_eq!(ask(&first, b'a'), Some(b'a'));
    let second = connect(&acceptor);
    assert_eq!(ask(&second, b'b'), None);
    // What cannot be received ends the first, and its permit is free again.
    assert_eq!(ask(&first, b'!'), None);
    while ask(&connect(&acceptor), b'c').is_none() {}
    assert!(acceptor.stop(LONG));
    let counts = echo.limiter.counts();
    assert_eq!((counts.now, counts.taken, counts.cut), (0, 2, 1));
    assert!(counts.refused >= 1);
}

#[test]
fn a_stop_waits_for_what_runs_and_then_cuts() {
    let (echo, mut acceptor) = echo(4);
    let address = acceptor.local_addr().unwrap();
    let mut stuck = connect(&acceptor);
    assert_eq!(ask(&stuck, b'a'), Some(b'a'));
    // Waits for a second one that does not come.
    stuck.write_all(b"1").unwrap();
    while echo.begun.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    assert!(!echo.limiter.is_stopping());
    let begun = Instant::now();
    let timeout = Duration::from_millis(50);
    assert!(acceptor.stop(timeout));
    assert!(begun.elapsed() >= timeout);
    assert!(echo.limiter.is_stopping());
    assert_eq!(stuck.read(&mut [0]).unwrap(), 0);
    assert!(TcpStream::connect(address).is_err());
    assert!(!acceptor.stop(LONG));
    // The one that was stuck can leave.
    echo.together.wait();
    while echo.limiter.counts().now > 0 {
        std::thread::yield_now();
    }
}

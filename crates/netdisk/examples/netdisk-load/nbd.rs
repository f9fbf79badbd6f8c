//! As much of an NBD client as the comparison needs (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>): the
//! fixed newstyle handshake, reads and writes with several in flight. Built like our own client: threads take turns at
//! sending, one thread per connection hands out the replies.

use std::collections::HashMap;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

pub(crate) struct Nbd {
    connections: Vec<Arc<Connection>>,
    next: AtomicU64,
}

struct Connection {
    socket: TcpStream,
    turn: Mutex<()>,
    waiters: Mutex<HashMap<u64, Arc<Waiter>>>,
}

struct Waiter {
    read: usize,
    state: Mutex<Option<Vec<u8>>>,
    came: Condvar,
}

impl Nbd {
    pub(crate) fn connect(port: u16, connections: usize) -> io::Result<Self> {
        let connections = (0..connections)
            .map(|_| Connection::open(port))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            connections,
            next: AtomicU64::new(1),
        })
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        let data = self.ask(0, offset, out.len(), &[]);
        out.copy_from_slice(&data);
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) {
        self.ask(1, offset, data.len(), data);
    }

    fn ask(&self, kind: u16, offset: u64, len: usize, data: &[u8]) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = &self.connections[number as usize % self.connections.len()];
        let waiter = Arc::new(Waiter {
            read: if kind == 0 { len } else { 0 },
            state: Mutex::new(None),
            came: Condvar::new(),
        });
        connection.waiters.lock().insert(number, waiter.clone());
        let mut head = [0; 28];
        head[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        head[6..8].copy_from_slice(&kind.to_be_bytes());
        head[8..16].copy_from_slice(&number.to_be_bytes());
        head[16..24].copy_from_slice(&offset.to_be_bytes());
        head[24..].copy_from_slice(&(len as u32).to_be_bytes());
        let turn = connection.turn.lock();
        let mut slices = [IoSlice::new(&head), IoSlice::new(data)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let sent = (&connection.socket).write_vectored(rest).unwrap();
            IoSlice::advance_slices(&mut rest, sent);
        }
        drop(turn);
        let mut state = waiter.state.lock();
        while state.is_none() {
            waiter.came.wait(&mut state);
        }
        state.take().unwrap()
    }
}

impl Connection {
    fn open(port: u16) -> io::Result<Arc<Self>> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, no zeroes after the size; then the default export.
        socket.write_all(&3u32.to_be_bytes())?;
        socket.write_all(&[b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &[0; 4]].concat())?;
        let mut size = [0; 10];
        socket.read_exact(&mut size)?;
        let connection = Arc::new(Self {
            socket,
            turn: Mutex::new(()),
            waiters: Mutex::default(),
        });
        let reader = connection.clone();
        std::thread::spawn(move || reader.hand_out());
        Ok(connection)
    }

    fn hand_out(&self) {
        let mut from = BufReader::with_capacity(64 << 10, &self.socket);
        let mut head = [0; 16];
        while from.read_exact(&mut head).is_ok() {
            assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
            let number = u64::from_be_bytes(head[8..].try_into().unwrap());
            let waiter = self.waiters.lock().remove(&number).unwrap();
            let mut data = vec![0; waiter.read];
            from.read_exact(&mut data).unwrap();
            *waiter.state.lock() = Some(data);
            waiter.came.notify_one();
        }
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        for connection in &self.connections {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
    }
}

//! Connections: who is let in, for how long, and what is said on them.
//!
//! 1. Nothing is read from a client before it proves, in a TLS 1.3 handshake within [`HANDSHAKE`], that it has the key of
//!    a user of this room.
//! 2. A client with a key of this room whose user was removed gets one byte that says so.
//! 3. Connections that have not shown a key are counted apart, for each address and in all, and the oldest gives way to the
//!    newest: they keep nobody out. Users and addresses have their share of the others.
//! 4. What the calls of one user say takes no more memory than [`BYTES_MAX`] while they wait or run, over all connections: one that says
//!    more ends its connection.
//! 5. A connection on which no call came for [`SILENCE`] is closed; a client that takes no answers makes no calls either.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use metadata_proto::rpc::{LET_IN, Metadata, NOT_LET_IN};
use metadata_proto::transport;
use parking_lot::{Mutex, RwLock};
use room::Room;
use rustls::ServerConfig;
use streams::{Admission, Limits, Standing};
use tarpc::server::{BaseChannel, Channel};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::caller::{self, Caller};
use super::{Config, Shared};
use crate::enrol::{self, EnrolError, User};

/// For the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client sends several heartbeats in a lease; this is many leases.
const SILENCE: Duration = Duration::from_secs(120);
/// Calls of a connection that wait or run; more are refused, which ends the connection on the client's side.
const WAITING_MAX: usize = 1024;
/// Bytes of the calls of one user that wait or run.
const BYTES_MAX: usize = 32 << 20;
/// A call counts as so many bytes at least: it takes memory whatever it says.
const BYTES_MIN: usize = 1 << 10;

/// The server's TLS, whose certificate is made again before it ends.
#[derive(Debug, Default)]
pub(super) struct Tls(RwLock<Option<(Arc<ServerConfig>, Instant)>>);

impl Tls {
    fn get(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().as_ref().map(|(config, _)| config.clone())
    }

    /// Makes it, or makes it again where it is old.
    pub(super) fn tend(&self, room: &Room) -> Result<(), EnrolError> {
        let made = self.0.read().as_ref().map(|(_, made)| *made);
        if made.is_none_or(|made| made.elapsed() > enrol::SERVER_RENEWAL) {
            self.renew(room)?;
        }
        Ok(())
    }

    /// Makes it again, with the authorities of now.
    pub(super) fn renew(&self, room: &Room) -> Result<(), EnrolError> {
        let config = Arc::new(enrol::Authority::of(room)?.server_config()?);
        *self.0.write() = Some((config, Instant::now()));
        Ok(())
    }
}

/// The users, by the serial numbers of their keys, and their connections.
#[derive(Debug, Default)]
pub(super) struct Users {
    by_serial: RwLock<HashMap<[u8; 16], Arc<User>>>,
    connections: Mutex<HashMap<u64, ([u8; 16], CancellationToken)>>,
    last: Mutex<u64>,
    /// By their numbers.
    shares: Mutex<HashMap<u32, Share>>,
}

/// What is left of the share that a user's calls have, over all connections.
#[derive(Debug, Clone)]
struct Share {
    bytes: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Users {
    fn share_of(&self, user: &User) -> Share {
        let mut shares = self.shares.lock();
        let share = shares.entry(user.uid).or_insert_with(|| Share {
            bytes: Arc::new(Semaphore::new(BYTES_MAX)),
            running: Arc::new(Semaphore::new(caller::RUNNING_PER_USER)),
        });
        share.clone()
    }

    /// From now on these are the users. Returns the keys that were somebody's until now and are nobody's any more.
    pub(super) fn set(&self, users: &[User]) -> Vec<[u8; 16]> {
        let mut by_serial = HashMap::new();
        for user in users {
            let shared = Arc::new(user.clone());
            for serial in &user.serials {
                by_serial.insert(*serial, shared.clone());
            }
        }
        let mut now = self.by_serial.write();
        let before = std::mem::replace(&mut *now, by_serial);
        let gone = before.into_keys().filter(|key| !now.contains_key(key));
        gone.collect()
    }

    /// The user with this key, unless the key has ended.
    pub(super) fn get(&self, serial: &[u8; 16]) -> Option<Arc<User>> {
        let user = self.by_serial.read().get(serial).cloned();
        user.filter(|user| user.end_of(serial).is_none_or(|end| end >= enrol::now()))
    }

    /// Whether a key is a user's, and has ended.
    pub(super) fn has_ended(&self, serial: &[u8; 16]) -> bool {
        let user = self.by_serial.read().get(serial).cloned();
        user.and_then(|user| user.end_of(serial))
            .is_some_and(|end| end < enrol::now())
    }

    /// Closes the connections of keys that have ended.
    pub(super) fn cut_ended(&self) {
        for (serial, cut) in self.connections.lock().values() {
            if self.has_ended(serial) {
                cut.cancel();
            }
        }
    }

    /// Closes all connections: clients have another server to ask.
    pub(super) fn cut_all(&self) {
        for (_, cut) in self.connections.lock().values() {
            cut.cancel();
        }
    }

    /// Closes the connections of these keys.
    pub(super) fn cut(&self, serials: &[[u8; 16]]) {
        for (serial, cut) in self.connections.lock().values() {
            if serials.contains(serial) {
                cut.cancel();
            }
        }
    }
}

/// The connections that are there, and how those that give way are ended.
#[derive(Debug)]
struct Permits(Mutex<Permitted>);

#[derive(Debug)]
struct Permitted {
    admission: Admission,
    ends: HashMap<u64, CancellationToken>,
}

/// A connection's permit, until dropped.
struct Permit {
    permits: Arc<Permits>,
    number: u64,
    /// It gave way to another.
    displaced: CancellationToken,
}

impl Permits {
    fn new(config: &Config) -> Arc<Self> {
        let limits = Limits {
            clients: config.connections_max,
            per_address: config.connections_per_address,
            per_client: config.connections_per_user,
            waiting: config.waiting_max,
            waiting_per_address: config.waiting_max.div_ceil(4),
        };
        Arc::new(Self(Mutex::new(Permitted {
            admission: Admission::new(limits),
            ends: HashMap::new(),
        })))
    }

    /// A permit for a connection that has shown nothing, and whether another gave way for it.
    fn begin(self: &Arc<Self>, address: IpAddr) -> (Permit, bool) {
        let mut permitted = self.0.lock();
        let (number, other) = permitted.admission.begin(Some(address));
        let other = other.and_then(|other| permitted.ends.get(&other));
        if let Some(other) = other {
            other.cancel();
        }
        let gave_way = other.is_some();
        let displaced = CancellationToken::new();
        permitted.ends.insert(number, displaced.clone());
        let permit = Permit {
            permits: self.clone(),
            number,
            displaced,
        };
        (permit, gave_way)
    }
}

impl Permit {
    /// The connection is this user's; false where there are too many like it.
    fn belongs_to(&self, user: &User) -> bool {
        let standing = Standing::Client(Some(user.uid.into()));
        self.permits.0.lock().admission.prove(self.number, standing)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut permitted = self.permits.0.lock();
        permitted.admission.end(self.number);
        permitted.ends.remove(&self.number);
    }
}

/// A connection in the list of its user, until dropped.
struct Listed<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.shared.users.connections.lock().remove(&self.number);
        self.shared.counters.left();
    }
}

/// Threads that serve connections; calls are done by others. A second one on a small machine is woken for nothing, several times a call
/// (decision 28).
pub(super) fn threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    (processors / 4).clamp(1, 4)
}

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, closing: CancellationToken) {
    let permits = Permits::new(&shared.config);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closing.cancelled() => return,
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!("accepting connections: {e}");
                // Out of file descriptors, mostly: trying again at once would only burn the processor.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Its users and certificates may be of before, and a client has other servers to ask.
        if shared.incarnation().is_none() && shared.config.waits {
            continue;
        }
        let (permit, gave_way) = permits.begin(peer.ip());
        if gave_way {
            shared.counters.turned_away();
        }
        let Some(tls) = shared.tls.get() else {
            continue;
        };
        let acceptor = TlsAcceptor::from(tls);
        let (shared, closing) = (shared.clone(), closing.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = closing.cancelled() => {}
                () = permit.displaced.cancelled() => {}
                served = serve((tcp, peer), &acceptor, &shared, &permit) => {
                    if let Err(why) = served {
                        shared.counters.turned_away();
                        shared.audit.connection_refused(peer, &why);
                        tracing::info!(%peer, "not let in: {why}");
                    }
                }
            }
        });
    }
}

async fn serve(
    (tcp, peer): (TcpStream, SocketAddr),
    acceptor: &TlsAcceptor,
    shared: &Arc<Shared>,
    permit: &Permit,
) -> Result<(), String> {
    tcp.set_nodelay(true).map_err(|e| e.to_string())?;
    let mut stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp))
        .await
        .map_err(|_| "no handshake in time".to_owned())?
        .map_err(|e| e.to_string())?;
    let serial = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(|certificate| enrol::serial_of(certificate))
        .ok_or("a certificate that was not made here")?;
    let Some(user) = shared.users.get(&serial) else {
        // So that a removed user does not see it as a server that is away.
        let reported = async {
            stream.write_all(&[NOT_LET_IN]).await?;
            stream.shutdown().await
        };
        let _ = tokio::time::timeout(HANDSHAKE, reported).await;
        return Err("a key of nobody who is a user".into());
    };
    if !permit.belongs_to(&user) {
        return Err(format!(
            "too many connections: of all clients, of {}, or from this address",
            user.name
        ));
    }
    let cut = CancellationToken::new();
    let number = {
        let mut last = shared.users.last.lock();
        *last += 1;
        *last
    };
    shared
        .users
        .connections
        .lock()
        .insert(number, (serial, cut.clone()));
    shared.counters.came();
    let _listed = Listed { shared, number };
    // Removed between the look and the listing: nobody will cut it.
    if shared.users.get(&serial).is_none() {
        return Ok(());
    }
    tokio::time::timeout(HANDSHAKE, stream.write_all(&[LET_IN]))
        .await
        .map_err(|_| "it takes nothing".to_owned())?
        .map_err(|e| e.to_string())?;
    tracing::debug!(user = %user.name, "connected");
    let Share { bytes, running } = shared.users.share_of(&user);
    let caller = Caller::new(shared.clone(), (serial, peer), cut.clone(), running);
    let taken: Arc<Mutex<Option<OwnedSemaphorePermit>>> = Arc::default();
    let take = taken.clone();
    let admit = move |len: usize| {
        let len = u32::try_from(len.max(BYTES_MIN)).unwrap_or(u32::MAX);
        let permit = bytes.clone().try_acquire_many_owned(len);
        let permit = permit.map_err(|_| io::Error::other("its calls take too much memory"))?;
        *take.lock() = Some(permit);
        Ok(())
    };
    let mut calls = std::pin::pin!(
        BaseChannel::with_defaults(transport::serve(stream, Box::new(admit)))
            .max_concurrent_requests(WAITING_MAX)
            .execute(caller.serve())
    );
    loop {
        tokio::select! {
            call = calls.next() => match call {
                Some(call) => {
                    // Of the frame that was decoded last: this call's.
                    let taken = taken.lock().take();
                    tokio::spawn(caller::with_memory(taken, call));
                }
                None => return Ok(()),
            },
            () = cut.cancelled() => return Ok(()),
            () = tokio::time::sleep(SILENCE) => return Ok(()),
        }
    }
}

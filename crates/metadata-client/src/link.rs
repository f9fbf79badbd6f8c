//! The connection to the metadata server, and the session that goes on over it.
//!
//! 1. A connection that breaks, or on which a heartbeat is not answered in time, is opened again by the next caller that
//!    needs it, with a growing pause; the session goes on if the server still has it.
//! 2. A new session has another [`Session::generation`]: files, locks and grants of the old one are gone.
//! 3. Of several addresses all are tried at once, each again and again; the first that lets the client in counts. Only one server of a room
//!    does.
//! 4. A client keeps one [`ClientId`] for as long as it lives, whatever becomes of its sessions: by it the server knows which of
//!    its changes were done.
//!
//! It deliberately does not know what the calls mean.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use metadata_proto::rpc::{ClientId, MetadataClient, Refusal, Reply, SessionId, VERSION, Welcome};
use model::{Error, Result};
use netdisk::DiskAddress;
use parking_lot::Mutex;
use tarpc::client::RpcError;
use tarpc::context::Context;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::transport::Tls;

/// The first pause before a connection is tried again; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The longest pause where there are several addresses: another server may take over at any moment.
const PAUSE_MAX_OF_SEVERAL: Duration = Duration::from_millis(100);
/// For connecting, and for the greeting.
const CONNECT: Duration = Duration::from_secs(5);
/// For the greeting of one of several servers.
const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(2);

/// What the server calls a session, and what the client made of it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    /// The server's incarnation.
    pub(super) boot: u64,
    /// Rises with each new session of this client, from 1.
    pub(super) generation: u64,
    /// It ends this long after its last heartbeat.
    pub(super) lease: Duration,
    pub(super) disks: Vec<DiskAddress>,
}

/// A connection with its session.
#[derive(Debug, Clone)]
pub(super) struct Connected {
    pub(super) session: Arc<Session>,
    client: MetadataClient,
    number: u64,
    broken: CancellationToken,
}

/// How an attempt to ask ended.
pub(super) enum Attempt<T> {
    /// An answer.
    Answer(Reply<T>),
    /// None: the connection broke, or time ran out. The server may have done it: it is asked again, by the same number.
    Unknown(String),
}

#[derive(Debug, Default)]
struct State {
    connected: Option<Connected>,
    /// The session to go on with.
    session: Option<Arc<Session>>,
    generations: u64,
    connections: u64,
    ended: bool,
}

/// The way to the server.
#[derive(Debug)]
pub(super) struct Link {
    runtime: tokio::runtime::Runtime,
    /// As they were named, for people.
    address: String,
    addresses: Vec<String>,
    tls: Tls,
    client: ClientId,
    state: Mutex<State>,
    /// Held while connecting.
    connecting: tokio::sync::Mutex<()>,
}

impl Link {
    pub(super) fn new(address: String, tls: Tls) -> io::Result<Self> {
        // Without threads: a caller that waits for its answer serves the connection meanwhile, for all. To wake another thread for that, and
        // to be woken by it, takes longer than the work (decision 28).
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut client = ClientId([0; 16]);
        getrandom::fill(&mut client.0).map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Self {
            client,
            runtime,
            addresses: address.split(',').map(str::to_owned).collect(),
            address,
            tls,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// A connection with a session, made now if there is none.
    pub(super) fn connected(&self, deadline: Instant) -> Result<Connected> {
        if let Some(connected) = &self.state.lock().connected {
            return Ok(connected.clone());
        }
        self.runtime.block_on(self.connect_until(deadline))
    }

    /// No connection is made any more.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        if let Some(old) = state.connected.take() {
            old.broken.cancel();
        }
        drop(state);
        // The connection is closed by its task, which runs when somebody waits.
        self.runtime.block_on(tokio::task::yield_now());
    }

    async fn connect_until(&self, deadline: Instant) -> Result<Connected> {
        let late = |why: &str| {
            Error::Unreachable(format!("the metadata server at {} ({why})", self.address))
        };
        let until = tokio::time::Instant::from_std(deadline);
        let Ok(_alone) = tokio::time::timeout_at(until, self.connecting.lock()).await else {
            return Err(late("no connection in time"));
        };
        {
            let state = self.state.lock();
            if let Some(connected) = &state.connected {
                return Ok(connected.clone());
            }
            if state.ended {
                return Err(late("the mount has ended"));
            }
        }
        let tries = self.addresses.iter();
        let mut tries: FuturesUnordered<_> = tries
            .map(|address| self.greet_until(address, deadline))
            .collect();
        let mut last = "there is no address".to_owned();
        while let Some(greeted) = tries.next().await {
            match greeted {
                Ok(greeted) => return Ok(self.greeted(greeted)),
                Err(Refused::Final(e)) => return Err(e),
                Err(Refused::Again(why)) => last = why,
            }
        }
        Err(late(&last))
    }

    /// Tries one address until a server there lets the client in.
    async fn greet_until(
        &self,
        address: &str,
        deadline: Instant,
    ) -> std::result::Result<Greeted, Refused> {
        let (most, pause_max) = match self.addresses.len() {
            1 => (CONNECT, PAUSE_MAX),
            _ => (CONNECT_OF_SEVERAL, PAUSE_MAX_OF_SEVERAL),
        };
        let mut pause = PAUSE_MIN;
        loop {
            let why = match tokio::time::timeout(most, self.greet(address)).await {
                Ok(Ok(greeted)) => return Ok(greeted),
                Ok(Err(Refused::Final(e))) => return Err(Refused::Final(e)),
                Ok(Err(Refused::Again(why))) => why,
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() + pause >= deadline || self.state.lock().ended {
                return Err(Refused::Again(why));
            }
            tracing::debug!(address, "the metadata server cannot be reached: {why}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(pause_max);
        }
    }

    async fn greet(&self, address: &str) -> std::result::Result<Greeted, Refused> {
        let again = |e: &dyn std::fmt::Display| Refused::Again(e.to_string());
        let tcp = TcpStream::connect(address).await.map_err(|e| again(&e))?;
        tcp.set_nodelay(true).map_err(|e| again(&e))?;
        let transport = self.tls.transport(tcp).await.map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => Refused::Final(Error::AccessDenied),
            _ => again(&e),
        })?;
        let client = MetadataClient::new(tarpc::client::Config::default(), transport).spawn();
        let old = self.state.lock().session.clone();
        let mut context = tarpc::context::current();
        context.deadline = Instant::now() + CONNECT;
        let welcome = client
            .hello(context, VERSION, old.as_ref().map(|s| s.id))
            .await;
        let welcome = match welcome {
            Ok(Ok(welcome)) => welcome,
            Ok(Err(e @ Refusal::Version { .. })) => {
                return Err(Refused::Final(Error::Io(io::Error::other(e))));
            }
            // No such user any more.
            Ok(Err(Refusal::NoSession)) => return Err(Refused::Final(Error::AccessDenied)),
            Ok(Err(e)) => return Err(again(&e)),
            Err(e) => return Err(again(&e)),
        };
        match client.attach(context, welcome.session, self.client).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(again(&e)),
            Err(e) => return Err(again(&e)),
        }
        tracing::debug!(address, "connected to the metadata server");
        Ok(Greeted {
            old,
            welcome,
            client,
        })
    }

    fn greeted(&self, greeted: Greeted) -> Connected {
        let Greeted {
            old,
            welcome,
            client,
        } = greeted;
        let mut state = self.state.lock();
        let session = match old {
            Some(old) if old.id == welcome.session && old.boot == welcome.boot => old,
            _ => {
                state.generations += 1;
                Arc::new(Session {
                    id: welcome.session,
                    boot: welcome.boot,
                    generation: state.generations,
                    lease: Duration::from_secs(welcome.lease.clamp(1, 3600).into()),
                    disks: welcome.disks,
                })
            }
        };
        state.connections += 1;
        let connected = Connected {
            session: session.clone(),
            client,
            number: state.connections,
            broken: CancellationToken::new(),
        };
        state.session = Some(session);
        state.connected = Some(connected.clone());
        connected
    }

    /// Whether another server may take over from this one.
    pub(super) fn has_several(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Asks once.
    pub(super) fn attempt<T, F, R>(
        &self,
        connected: &Connected,
        deadline: Instant,
        ask: F,
    ) -> Attempt<T>
    where
        F: FnOnce(MetadataClient, Context, SessionId) -> R,
        R: Future<Output = std::result::Result<Reply<T>, RpcError>>,
    {
        let mut context = tarpc::context::current();
        context.deadline = deadline;
        let answer = self.runtime.block_on(async {
            let asked = ask(connected.client.clone(), context, connected.session.id);
            tokio::select! {
                answer = asked => answer.map_err(|e| e.to_string()),
                () = connected.broken.cancelled() => Err("the connection broke".to_owned()),
            }
        });
        match answer {
            Ok(answer) => {
                if answer.as_ref().is_err_and(|e| *e == Refusal::NoSession) {
                    self.session_over(connected);
                }
                Attempt::Answer(answer)
            }
            Err(why) => {
                self.broken(connected);
                Attempt::Unknown(why)
            }
        }
    }

    /// The connection is broken: calls that wait for an answer on it fail.
    pub(super) fn broken(&self, connected: &Connected) {
        connected.broken.cancel();
        let mut state = self.state.lock();
        let current = state.connected.as_ref();
        if current.is_some_and(|c| c.number == connected.number) {
            state.connected = None;
        }
    }

    /// The server does not know the session: the next connection begins another. What else was asked on this one gets the
    /// same answer.
    fn session_over(&self, connected: &Connected) {
        let mut state = self.state.lock();
        let current = state.session.as_ref();
        if current.is_some_and(|s| s.generation == connected.session.generation) {
            state.session = None;
            state.connected = None;
        }
    }
}

/// A server that let the client in.
struct Greeted {
    /// The session that was asked for.
    old: Option<Arc<Session>>,
    welcome: Welcome,
    client: MetadataClient,
}

enum Refused {
    /// Worth another try.
    Again(String),
    Final(Error),
}

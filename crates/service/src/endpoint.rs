//! Health and metrics over HTTP, and the notices that systemd waits for.
//!
//! 1. `/healthz`: the process lives. `/readyz`: it does its work, or says why not (503). `/metrics`: what it measures.
//! 2. At most [`CONNECTIONS_MAX`] clients at once, one request each, over after [`REQUEST_TIMEOUT`]; further ones are closed at once.
//! 3. A server that is stuck cannot stop the endpoint: a query to it has the same timeout, then the answer is 503.
//!
//! It deliberately has no TLS and no passwords: it reveals nothing secret, and listens on this machine only, unless the
//! settings say otherwise.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sd_notify::NotifyState;
use tokio::sync::{Semaphore, oneshot};

use crate::address::HealthAddress;
use crate::measures::{MEDIA_TYPE, Measures};
use crate::settings::Common;

/// Most clients at once.
pub const CONNECTIONS_MAX: usize = 32;
/// Longest time of a client, from its connection to the end of its answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Most questions to the server under way at once: of those that are stuck there are not more.
const QUESTIONS_MAX: usize = 4;
/// Most bytes of a request's head: hyper's least buffer.
const HEAD_MAX: usize = 8 << 10;

/// What a server reports about itself. Both are called on a thread of their own, at any time until the [`Service`] is dropped.
pub trait Observed: Send + Sync + 'static {
    /// Whether it does its work; if not, why not, in a line.
    fn ready(&self) -> Result<(), String>;
    /// What it measures now.
    fn measure(&self, measures: &mut Measures);
}

const STARTING: u8 = 0;
const SERVING: u8 = 1;
const STOPPING: u8 = 2;

struct State {
    observed: Arc<dyn Observed>,
    phase: AtomicU8,
    questions: Arc<Semaphore>,
}

/// A server as others see it: its endpoint, and its notifications to systemd. Dropping it ends the endpoint.
pub struct Service {
    state: Arc<State>,
    address: Option<SocketAddr>,
    /// Dropped, it ends the endpoint's thread.
    _end: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Begins to answer, where the settings name an address. It is not ready before [`Self::ready`].
    pub fn start(common: &Common, observed: Arc<dyn Observed>) -> io::Result<Service> {
        let state = Arc::new(State {
            observed,
            phase: AtomicU8::new(STARTING),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        });
        let Some(HealthAddress(address)) = common.health else {
            return Ok(Service {
                state,
                address: None,
                _end: None,
            });
        };
        let listener = TcpListener::bind(address).map_err(|e| {
            io::Error::new(e.kind(), format!("the health endpoint at {address}: {e}"))
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "health and metrics are open to anyone on the network");
        }
        let (end, ended) = oneshot::channel();
        let served = state.clone();
        std::thread::Builder::new()
            .name("health".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .max_blocking_threads(QUESTIONS_MAX)
                    .build();
                match runtime {
                    Ok(runtime) => {
                        runtime.block_on(async {
                            tokio::select! {
                                () = accept(listener, served) => {}
                                _ = ended => {}
                            }
                        });
                        // Who is stuck in an answer is not waited for.
                        runtime.shutdown_background();
                    }
                    Err(error) => tracing::error!(%error, "no health endpoint"),
                }
            })?;
        tracing::info!(%address, "health and metrics");
        Ok(Service {
            state,
            address: Some(address),
            _end: Some(end),
        })
    }

    /// Where the endpoint listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The server serves from now on. `status` is a line for `systemctl status`.
    pub fn ready(&self, status: &str) {
        self.state.phase.store(SERVING, Ordering::SeqCst);
        notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// It ends: `/readyz` says so from now on.
    pub fn stopping(&self) {
        self.state.phase.store(STOPPING, Ordering::SeqCst);
        notify(&[NotifyState::Stopping]);
    }
}

/// Where systemd does not wait for notices, nothing is sent.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd could not be notified");
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "no health endpoint");
            return;
        }
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many descriptors, say: it passes, and until then does not fill the log.
                tracing::debug!(%error, "health endpoint");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(HEAD_MAX)
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_TIMEOUT)
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| answer(request, state.clone())),
                );
            // A client that is slow, idle or does not speak HTTP is disconnected, without a report.
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, connection).await;
            drop(place);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Response::builder()
            .status(StatusCode::METHOD_NOT_ALLOWED)
            .header(ALLOW, "GET, HEAD")
            .body(Full::default());
    }
    match request.uri().path() {
        "/healthz" => plain(StatusCode::OK, "ok"),
        "/readyz" => match readiness(state).await {
            Ok(()) => plain(StatusCode::OK, "ready"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &why),
        },
        "/metrics" => match metrics(state).await {
            Ok(text) => Response::builder()
                .header(CONTENT_TYPE, MEDIA_TYPE)
                .body(Full::from(text)),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &why),
        },
        _ => plain(
            StatusCode::NOT_FOUND,
            "there is /healthz, /readyz and /metrics",
        ),
    }
}

fn plain(status: StatusCode, text: &str) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "text/plain; charset=utf-8")
        .body(Full::from(format!("{text}\n")))
}

async fn readiness(state: Arc<State>) -> Result<(), String> {
    match state.phase.load(Ordering::SeqCst) {
        STARTING => Err("starting".into()),
        SERVING => ask(&state, |observed| observed.ready()).await?,
        _ => Err("stopping".into()),
    }
}

async fn metrics(state: Arc<State>) -> Result<String, String> {
    ask(&state, |observed| {
        let mut measures = Measures::default();
        observed.measure(&mut measures);
        crate::process::measure(&mut measures);
        measures.text().map_err(|e| e.to_string())
    })
    .await?
}

/// Queries the server within 4/5 of the request's timeout, which leaves time to report that it does not answer.
async fn ask<T: Send + 'static>(
    state: &State,
    question: impl FnOnce(&dyn Observed) -> T + Send + 'static,
) -> Result<T, String> {
    let observed = state.observed.clone();
    let questions = state.questions.clone();
    let answer = async {
        // The semaphore is never closed. What is stuck keeps its place until it is not.
        let place = questions.acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let _place = place;
            question(&*observed)
        })
        .await
    };
    match tokio::time::timeout(REQUEST_TIMEOUT * 4 / 5, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err("the server failed when it was asked".into()),
        Err(_) => Err("the server does not answer".into()),
    }
}

//! The inbound side: accepts connections within a limit, and on each of them lets requests begin in order and answers leave
//! in order. Only what a handler says may be waited for later (a Produce's wait for replication) overlaps what follows.
//! Law: one task owns a connection, from its first byte to its last.
//!
//! ```text
//! socket → frame → handle (one at a time) ─┬─ Reply ──→ ┌───────────────────┐
//!                                          ├─ Later ──→ │ answers, in order │ → socket
//!                                          └─ Silent    └───────────────────┘  (≤ max_parked; full ⇒ no more reading)
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::framed::{FrameError, FrameReader, write_all};
use crate::quiet::Quiet;
use crate::tcp::{Accepting, TcpListener};

/// The shortest request: api key, version and correlation id.
const LEAST_REQUEST: usize = 8;

/// How long an accept loop rests when the process has run out of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A line about the same address is said once in this time.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps about one connection.
    type Session: Send + 'static;

    /// A connection was accepted.
    fn connected(&self, peer: &Peer) -> Self::Session;

    /// Handles one frame, the length field not included. The next frame of this connection waits until this is done.
    fn handle(
        &self,
        session: &mut Self::Session,
        frame: Bytes,
    ) -> impl Future<Output = Outcome> + Send;

    /// A connection has ended.
    fn disconnected(&self, session: Self::Session) {
        drop(session);
    }
}

/// Who is on the other side, and through which listener it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// The listener's name: `CLIENT` or `INTERNAL`.
    pub listener: Arc<str>,
}

/// An answer as it goes on the wire, its length field included, in as many pieces as it was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    pub parts: Vec<Bytes>,
}

impl From<Bytes> for Response {
    fn from(whole: Bytes) -> Self {
        Self { parts: vec![whole] }
    }
}

impl From<Vec<Bytes>> for Response {
    fn from(parts: Vec<Bytes>) -> Self {
        Self { parts }
    }
}

/// An answer that is still being waited for.
pub type Pending = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What became of a request.
pub enum Outcome {
    /// The answer.
    Reply(Response),
    /// The request has begun and has its place in the order; its answer comes later. May not end in another `Later`.
    Later(Pending),
    /// No answer is expected (acks=0).
    Silent,
    /// The connection must end. Says why, for the log, in a phrase.
    Close(String),
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reply(response) => f.debug_tuple("Reply").field(response).finish(),
            Self::Later(_) => f.write_str("Later"),
            Self::Silent => f.write_str("Silent"),
            Self::Close(why) => f.debug_tuple("Close").field(why).finish(),
        }
    }
}

/// The bounds of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The listener's name.
    pub listener: Arc<str>,
    /// Connections beyond this wait to be accepted.
    pub max_connections: usize,
    /// The longest request, in bytes (`socket.request.max.bytes`).
    pub max_request_bytes: usize,
    /// A connection on which nothing happens for this long is closed (`connections.max.idle.ms`).
    pub max_idle: Duration,
    /// How many answers may be outstanding on one connection.
    pub max_parked: usize,
    /// How long connections may go on finishing what they began once the server shuts down.
    pub drain: Duration,
}

impl ServerConfig {
    /// Kafka's defaults.
    pub fn new(listener: &str) -> Self {
        Self {
            listener: listener.into(),
            max_connections: 20_000,
            max_request_bytes: 100 * 1024 * 1024,
            max_idle: Duration::from_secs(600),
            max_parked: 16,
            drain: Duration::from_secs(5),
        }
    }
}

/// A listening socket and the service behind it.
#[derive(Debug)]
pub struct Server<S, L = TcpListener> {
    socket: L,
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    service: S,
    config: ServerConfig,
    quiet: Quiet,
}

impl<S: Service, L: Accepting> Server<S, L> {
    /// Serves `socket`, which the caller has bound: a port in use is for the caller to explain.
    pub fn new(socket: L, config: ServerConfig, service: S) -> Self {
        Self {
            socket,
            shared: Arc::new(Shared {
                service,
                config,
                quiet: Quiet::new(LINE_INTERVAL),
            }),
        }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts until `shutdown`, then lets connections finish what they began for at most `drain`, and returns when the
    /// last one is gone.
    pub async fn run(self, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        let limit = Arc::new(Semaphore::new(self.shared.config.max_connections));
        let abort = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                accepted = accept(&self.socket, &limit) => accepted,
            };
            let (stream, address, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = %self.shared.config.listener, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            };
            let shared = Arc::clone(&self.shared);
            let (shutdown, abort) = (shutdown.clone(), abort.clone());
            connections.spawn(async move {
                tokio::select! {
                    biased;
                    () = abort.cancelled() => {}
                    () = serve(&shared, stream, address, &shutdown) => {}
                }
                drop(permit);
            });
        }
        drop(self.socket);
        connections.close();
        if timeout(self.shared.config.drain, connections.wait())
            .await
            .is_err()
        {
            tracing::info!(
                listener = %self.shared.config.listener,
                connections = connections.len(),
                "closing connections that did not finish in time"
            );
            abort.cancel();
            connections.wait().await;
        }
    }
}

/// A place first, then the connection that takes it.
async fn accept<L: Accepting>(
    socket: &L,
    limit: &Arc<Semaphore>,
) -> io::Result<(L::Stream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(limit)
        .acquire_owned()
        .await
        .expect("the semaphore is never closed");
    let (stream, address) = socket.accept().await?;
    Ok((stream, address, permit))
}

async fn serve<S: Service>(
    shared: &Shared<S>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    address: SocketAddr,
    shutdown: &CancellationToken,
) {
    let peer = Peer {
        address,
        listener: Arc::clone(&shared.config.listener),
    };
    let mut session = shared.service.connected(&peer);
    let end = converse(shared, stream, &mut session, shutdown).await;
    shared.service.disconnected(session);
    let why = match end {
        End::Left => return,
        End::Idle => {
            tracing::debug!(listener = %peer.listener, %address, "connection was idle too long");
            return;
        }
        End::Socket(error) => {
            tracing::debug!(listener = %peer.listener, %address, %error, "connection broke");
            return;
        }
        End::Frame(FrameError::Io(error)) => {
            tracing::debug!(listener = %peer.listener, %address, %error, "connection broke");
            return;
        }
        End::Frame(error) => error.to_string(),
        End::Refused(why) => why,
    };
    if let Some(unsaid) = shared.quiet.may_speak(address.ip(), &why, Instant::now()) {
        tracing::warn!(listener = %peer.listener, %address, unsaid, "connection closed: {why}");
    }
}

/// Why a conversation ended.
enum End {
    /// In good order, theirs or ours.
    Left,
    Idle,
    Socket(io::Error),
    Frame(FrameError),
    Refused(String),
}

/// A place in the order of answers.
enum Slot {
    Ready(Response),
    Waiting(Pending),
}

/// What happened next on a connection.
enum Event {
    Shutdown,
    Frame(Result<Option<Bytes>, FrameError>),
    Handled(Outcome),
    FrontDone(Outcome),
    Idle,
}

async fn converse<S: Service>(
    shared: &Shared<S>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    session: &mut S::Session,
    shutdown: &CancellationToken,
) -> End {
    let config = &shared.config;
    // Nothing is read while something is written, so the socket need not be split.
    let stream = &mut stream;
    let mut reader = FrameReader::new(LEAST_REQUEST, config.max_request_bytes);
    let mut answers: VecDeque<Slot> = VecDeque::new();
    loop {
        // Phase one: nothing is being handled. Read the next frame while answers at the front become ready.
        let frame = loop {
            if let Err(end) = send_ready(&mut answers, stream, config.max_idle).await {
                return end;
            }
            if shutdown.is_cancelled() && answers.is_empty() {
                return End::Left;
            }
            let may_read = answers.len() < config.max_parked && !shutdown.is_cancelled();
            let is_idle = answers.is_empty();
            let idle_at = Instant::now() + config.max_idle;
            let event = tokio::select! {
                biased;
                outcome = front(&mut answers) => Event::FrontDone(outcome),
                () = shutdown.cancelled(), if may_read => Event::Shutdown,
                read = reader.next(stream), if may_read => Event::Frame(read),
                () = tokio::time::sleep_until(idle_at), if is_idle => Event::Idle,
            };
            match event {
                Event::Frame(Ok(Some(frame))) => break frame,
                Event::Frame(Ok(None)) => return End::Left,
                Event::Frame(Err(error)) => return End::Frame(error),
                Event::FrontDone(outcome) => {
                    answers.pop_front();
                    match settle(outcome) {
                        Ok(Some(slot)) => answers.push_front(slot),
                        Ok(None) => {}
                        Err(end) => return end,
                    }
                }
                Event::Idle => return End::Idle,
                Event::Shutdown | Event::Handled(_) => {}
            }
        };
        // Phase two: one request is being handled; answers before it leave as they become ready.
        let mut handling = std::pin::pin!(shared.service.handle(session, frame));
        loop {
            let event = tokio::select! {
                biased;
                outcome = front(&mut answers) => Event::FrontDone(outcome),
                outcome = &mut handling => Event::Handled(outcome),
            };
            match event {
                Event::FrontDone(outcome) => {
                    answers.pop_front();
                    match settle(outcome) {
                        Ok(Some(slot)) => answers.push_front(slot),
                        Ok(None) => {}
                        Err(end) => return end,
                    }
                    if let Err(end) = send_ready(&mut answers, stream, config.max_idle).await {
                        return end;
                    }
                }
                Event::Handled(Outcome::Later(pending)) => {
                    answers.push_back(Slot::Waiting(pending));
                    break;
                }
                Event::Handled(outcome) => {
                    match settle(outcome) {
                        Ok(Some(slot)) => answers.push_back(slot),
                        Ok(None) => {}
                        Err(end) => {
                            // What was answered before the offence is still owed.
                            flush_before_close(&mut answers, stream, config.max_idle).await;
                            return end;
                        }
                    }
                    break;
                }
                Event::Shutdown | Event::Frame(_) | Event::Idle => {}
            }
        }
    }
}

/// Waits for the answer at the front of the order; for ever if it is there already or there is none.
async fn front(answers: &mut VecDeque<Slot>) -> Outcome {
    match answers.front_mut() {
        Some(Slot::Waiting(pending)) => pending.await,
        Some(Slot::Ready(_)) | None => std::future::pending().await,
    }
}

fn settle(outcome: Outcome) -> Result<Option<Slot>, End> {
    match outcome {
        Outcome::Reply(response) => Ok(Some(Slot::Ready(response))),
        Outcome::Later(pending) => Ok(Some(Slot::Waiting(pending))),
        Outcome::Silent => Ok(None),
        Outcome::Close(why) => Err(End::Refused(why)),
    }
}

/// Sends every answer whose turn has come. Answers that are ready together leave together.
async fn send_ready(
    answers: &mut VecDeque<Slot>,
    to: &mut (impl AsyncWrite + Unpin),
    max_stall: Duration,
) -> Result<(), End> {
    while let Some(Slot::Ready(_)) = answers.front() {
        let mut parts = Vec::new();
        while let Some(Slot::Ready(_)) = answers.front() {
            if let Some(Slot::Ready(response)) = answers.pop_front() {
                parts.extend(response.parts);
            }
        }
        match timeout(max_stall, write_all(to, parts)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(End::Socket(error)),
            Err(_) => return Err(End::Idle),
        }
    }
    Ok(())
}

/// Gives outstanding answers the time a connection may be idle, at most, before the connection closes over an offence.
async fn flush_before_close(
    answers: &mut VecDeque<Slot>,
    to: &mut (impl AsyncWrite + Unpin),
    max_idle: Duration,
) {
    let until = Instant::now() + max_idle;
    loop {
        if send_ready(answers, to, max_idle).await.is_err() || answers.is_empty() {
            return;
        }
        let Ok(outcome) = timeout_at(until, front(answers)).await else {
            return;
        };
        answers.pop_front();
        match settle(outcome) {
            Ok(Some(slot)) => answers.push_front(slot),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

//! The outbound side: one connection on which many requests are under way at once, told apart by correlation id.
//! Law: one task owns the socket; every call has a deadline; a call that gives up leaves the connection usable.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Buf, Bytes};
use kuorum_protocol::api_key::ApiKey;
use kuorum_protocol::frame::{self, RequestHeader};
use kuorum_protocol::message::RequestMessage;
use kuorum_protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use kuorum_protocol::wire::WireError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::framed::{FrameError, FrameReader, write_all};
use crate::tcp;

/// Requests that wait to be written; more make their callers wait.
const WRITE_QUEUE: usize = 64;

/// Requests that wait for their answers; more are refused.
const MAX_IN_FLIGHT: usize = 4096;

/// The shortest answer: a correlation id.
const LEAST_RESPONSE: usize = 4;

/// The longest answer accepted: a full Fetch and what surrounds it.
const MAX_RESPONSE: usize = 128 * 1024 * 1024;

/// Why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The request may have been carried out.
    #[error("no answer in time")]
    TimedOut,
    /// The connection is gone. The request may have been carried out.
    #[error("the connection is closed: {0}")]
    Closed(Arc<str>),
    /// The request was not sent.
    #[error("cannot connect: {0}")]
    Connect(Arc<io::Error>),
    /// The request was not sent: too many are under way.
    #[error("too many requests are under way on one connection")]
    Busy,
    /// The request was not sent: this version cannot say it.
    #[error("cannot encode the request: {0}")]
    Encode(Arc<str>),
    /// The answer makes no sense.
    #[error("cannot decode the answer: {0}")]
    Decode(Arc<str>),
}

/// A connection to a broker. Clones share it; it closes when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
}

/// Tells whether a connection is broken that somebody else holds.
#[derive(Clone, Debug)]
pub struct Watch(Weak<Shared>);

impl Watch {
    /// Whether it has broken. One that nobody holds any more has not: it was let go.
    pub fn is_broken(&self) -> bool {
        let held = self.0.upgrade();
        held.is_some_and(|shared| lock(&shared.waiting).closed.is_some())
    }
}

#[derive(Debug)]
struct Shared {
    client_id: Option<String>,
    outgoing: mpsc::Sender<Bytes>,
    waiting: Arc<Mutex<Waiting>>,
    stop: CancellationToken,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Debug, Default)]
struct Waiting {
    next_correlation_id: i32,
    callers: HashMap<i32, oneshot::Sender<Bytes>>,
    /// Once set, nobody waits any more.
    closed: Option<Arc<str>>,
}

/// Takes a caller off the list when its call ends, however it ends.
struct Place<'a> {
    waiting: &'a Mutex<Waiting>,
    correlation_id: i32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.waiting).callers.remove(&self.correlation_id);
    }
}

impl Connection {
    /// Connects to `host:port`. `client_id` goes into the header of every request.
    pub async fn connect(
        address: &str,
        client_id: Option<&str>,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let stream = timeout_at(deadline, tcp::connect(address))
            .await
            .map_err(|_| CallError::TimedOut)?
            .map_err(|error| CallError::Connect(Arc::new(error)))?;
        let (from, to) = stream.into_split();
        Ok(Self::over(from, to, client_id))
    }

    /// A connection over a socket that is open already, given as its two directions, which are used at the same time.
    pub fn over<R, W>(from: R, to: W, client_id: Option<&str>) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outgoing, queue) = mpsc::channel(WRITE_QUEUE);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let stop = CancellationToken::new();
        tokio::spawn(carry(from, to, queue, Arc::clone(&waiting), stop.clone()));
        Self {
            shared: Arc::new(Shared {
                client_id: client_id.map(str::to_owned),
                outgoing,
                waiting,
                stop,
            }),
        }
    }

    /// Whether no further call can succeed.
    pub fn is_closed(&self) -> bool {
        lock(&self.shared.waiting).closed.is_some()
    }

    /// Looks at this connection without keeping it open.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.shared))
    }

    /// Ends the connection now; calls under way fail.
    pub fn close(&self) {
        self.shared.stop.cancel();
    }

    /// Asks `request` in the form of `version`, and waits for the answer.
    pub async fn call<Q: RequestMessage>(
        &self,
        version: i16,
        request: &Q,
        deadline: Instant,
    ) -> Result<Q::Response, CallError> {
        let mut answer = self
            .exchange(|id| self.frame(version, id, request), deadline)
            .await?;
        let unreadable = |error: WireError| CallError::Decode(error.to_string().into());
        frame::decode_response_header(Q::API, version, &mut answer).map_err(unreadable)?;
        frame::decode_body(version, answer).map_err(unreadable)
    }

    /// Sends a request that has no answer: Produce with acks=0.
    pub async fn tell<Q: RequestMessage>(
        &self,
        version: i16,
        request: &Q,
        deadline: Instant,
    ) -> Result<(), CallError> {
        self.post(|id| self.frame(version, id, request), deadline)
            .await
    }

    /// Asks which versions the other side serves. One that does not know version 3 says so in version 0 (KIP-511).
    pub async fn api_versions(
        &self,
        request: &ApiVersionsRequest,
        deadline: Instant,
    ) -> Result<ApiVersionsResponse, CallError> {
        const VERSION: i16 = 3;
        let mut answer = self
            .exchange(|id| self.frame(VERSION, id, request), deadline)
            .await?;
        let unreadable = |error: WireError| CallError::Decode(error.to_string().into());
        frame::decode_response_header(ApiKey::ApiVersions, VERSION, &mut answer)
            .map_err(unreadable)?;
        frame::decode_api_versions_body(VERSION, answer).map_err(unreadable)
    }

    fn frame<Q: RequestMessage>(
        &self,
        version: i16,
        correlation_id: i32,
        request: &Q,
    ) -> Result<Bytes, CallError> {
        let header = RequestHeader {
            api_key: Q::API,
            api_version: version,
            correlation_id,
            client_id: self.shared.client_id.clone(),
        };
        frame::encode_request(&header, request)
            .map_err(|error| CallError::Encode(error.to_string().into()))
    }

    /// Sends the frame that `encode` makes for a correlation id (length field included), and waits for the answer to it: a
    /// frame without its length, from the correlation id on.
    pub async fn exchange(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, CallError>,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let (sender, receiver) = oneshot::channel();
        let correlation_id = {
            let mut waiting = lock(&self.shared.waiting);
            if let Some(why) = &waiting.closed {
                return Err(CallError::Closed(Arc::clone(why)));
            }
            if waiting.callers.len() >= MAX_IN_FLIGHT {
                return Err(CallError::Busy);
            }
            let correlation_id = waiting.take_correlation_id();
            waiting.callers.insert(correlation_id, sender);
            correlation_id
        };
        let _place = Place {
            waiting: &self.shared.waiting,
            correlation_id,
        };
        let frame = encode(correlation_id)?;
        self.enqueue(frame, deadline).await?;
        match timeout_at(deadline, receiver).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.closed_error()),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    /// Sends a frame that has no answer (Produce with acks=0). Returns when it waits its turn to be written.
    pub async fn post(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, CallError>,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let correlation_id = lock(&self.shared.waiting).take_correlation_id();
        self.enqueue(encode(correlation_id)?, deadline).await
    }

    /// What every request's header says of its sender.
    pub fn client_id(&self) -> Option<&str> {
        self.shared.client_id.as_deref()
    }

    async fn enqueue(&self, frame: Bytes, deadline: Instant) -> Result<(), CallError> {
        match timeout_at(deadline, self.shared.outgoing.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.closed_error()),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    fn closed_error(&self) -> CallError {
        let closed = lock(&self.shared.waiting).closed.clone();
        CallError::Closed(closed.unwrap_or_else(|| "closing".into()))
    }
}

impl Waiting {
    fn take_correlation_id(&mut self) -> i32 {
        let id = self.next_correlation_id;
        self.next_correlation_id = id.checked_add(1).unwrap_or(0);
        id
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // A panic while the list is held cannot leave it half-changed.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries frames both ways until the socket breaks or the connection is dropped.
async fn carry(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    queue: mpsc::Receiver<Bytes>,
    waiting: Arc<Mutex<Waiting>>,
    stop: CancellationToken,
) {
    let why = tokio::select! {
        () = stop.cancelled() => "closed on this side".to_owned(),
        why = write_frames(to, queue) => why,
        why = read_frames(from, &waiting) => why,
    };
    let mut waiting = lock(&waiting);
    waiting.closed = Some(why.into());
    // Dropping the senders tells every caller.
    waiting.callers.clear();
}

async fn write_frames(mut to: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Bytes>) -> String {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, WRITE_QUEUE).await > 0 {
        if let Err(error) = write_all(&mut to, batch.drain(..)).await {
            return error.to_string();
        }
    }
    "closed on this side".to_owned()
}

async fn read_frames(mut from: impl AsyncRead + Unpin, waiting: &Mutex<Waiting>) -> String {
    let mut reader = FrameReader::new(LEAST_RESPONSE, MAX_RESPONSE);
    loop {
        match reader.next(&mut from).await {
            Ok(Some(frame)) => {
                let correlation_id = frame.clone().get_i32();
                // Nobody waits for an answer that came after its deadline.
                if let Some(caller) = lock(waiting).callers.remove(&correlation_id) {
                    let _ = caller.send(frame);
                }
            }
            Ok(None) => return "closed by the other side".to_owned(),
            Err(FrameError::Io(error)) => return error.to_string(),
            Err(error) => return error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_sees_what_breaks_and_not_what_is_let_go() {
        let (near, far) = tokio::io::duplex(64);
        let (from, to) = tokio::io::split(near);
        let broken = Connection::over(from, to, None);
        let watch = broken.watch();
        assert!(!watch.is_broken());
        drop(far);
        while !watch.is_broken() {
            tokio::task::yield_now().await;
        }
        drop(broken);
        assert!(!watch.is_broken(), "it was let go");

        let (near, _far) = tokio::io::duplex(64);
        let (from, to) = tokio::io::split(near);
        let let_go = Connection::over(from, to, None);
        let watch = let_go.watch();
        drop(let_go);
        assert!(!watch.is_broken());
    }
}

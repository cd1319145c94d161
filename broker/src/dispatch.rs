//! From a frame to a handler and back: the header, the version, the body, what the row needs, the numbers for operators.
//! Law: what cannot be understood closes the connection, as clients expect of a Kafka broker; nothing is guessed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use kuorum_protocol::api_key::ApiKey;
use kuorum_protocol::frame::{self, RequestHeader};
use kuorum_protocol::message::Message;
use kuorum_protocol::messages::Request;
use kuorum_transport::{Instant, Outcome, Peer, Service};

use crate::authorizer::{Resource, ResourceKind};
use crate::context::{ANONYMOUS, Context, Rooms};
use crate::handlers::{self, Row};
use crate::metrics::ErrorCounts;

/// What a handler says.
pub enum Answer<R> {
    /// The answer.
    Now(R),
    /// What had to happen in order has happened; the rest may overlap what follows on the connection.
    Later(Pin<Box<dyn Future<Output = R> + Send>>),
    /// The client expects no answer.
    Silent,
    /// The client must be told by the end of its connection. Says why, for the log.
    Close(String),
}

impl<R: std::fmt::Debug> std::fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(response) => f.debug_tuple("Now").field(response).finish(),
            Self::Later(_) => f.write_str("Later"),
            Self::Silent => f.write_str("Silent"),
            Self::Close(why) => f.debug_tuple("Close").field(why).finish(),
        }
    }
}

/// What the API table takes from a handler: a response, or an [`Answer`] that may hold one.
pub trait IntoAnswer {
    /// The response.
    type Response: Message + Send + 'static;

    /// The answer.
    fn into_answer(self) -> Answer<Self::Response>;
}

impl<M: Message + Send + 'static> IntoAnswer for M {
    type Response = M;

    fn into_answer(self) -> Answer<M> {
        Answer::Now(self)
    }
}

impl<M: Message + Send + 'static> IntoAnswer for Answer<M> {
    type Response = M;

    fn into_answer(self) -> Self {
        self
    }
}

/// Turns a handler's answer into bytes, and counts the errors in it.
pub fn encode<A: IntoAnswer>(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    errors: ErrorCounts,
    answer: A,
) -> Outcome {
    let reply = move |response: &A::Response| {
        response.errors(&mut |code| errors.count(code));
        match frame::encode_response(api, version, correlation_id, response) {
            Ok(parts) => Outcome::Reply(parts.into()),
            Err(error) => Outcome::Close(format!("cannot encode {api} version {version}: {error}")),
        }
    };
    match answer.into_answer() {
        Answer::Now(response) => reply(&response),
        Answer::Later(pending) => Outcome::Later(Box::pin(async move { reply(&pending.await) })),
        Answer::Silent => Outcome::Silent,
        Answer::Close(why) => Outcome::Close(why),
    }
}

/// The service behind every listener of a broker.
#[derive(Clone, Debug)]
pub struct Dispatch {
    rooms: Arc<Rooms>,
    principal: Arc<str>,
}

/// What is known about one connection.
#[derive(Debug)]
pub struct Session {
    listener: Arc<str>,
    client_id: Option<Arc<str>>,
}

impl Dispatch {
    /// Requests to these rooms.
    pub fn new(rooms: Arc<Rooms>) -> Self {
        Self {
            rooms,
            principal: ANONYMOUS.into(),
        }
    }

    fn context(&self, session: &mut Session, client_id: Option<String>) -> Context {
        if session.client_id.as_deref() != client_id.as_deref() {
            session.client_id = client_id.map(Arc::from);
        }
        Context::new(
            Arc::clone(&self.rooms),
            Arc::clone(&self.principal),
            Arc::clone(&session.listener),
            session.client_id.clone(),
        )
    }

    /// Everything that can be said about a request before its handler is called.
    fn understand(&self, mut frame: Bytes) -> Result<Understood, Outcome> {
        let size = frame.len();
        if let Some(correlation_id) = asks_in_a_version_to_come(&frame) {
            return Err(Outcome::Reply(
                frame::api_versions_fallback(correlation_id).into(),
            ));
        }
        let header = frame::decode_request_header(&mut frame)
            .map_err(|error| Outcome::Close(format!("a request header cannot be read: {error}")))?;
        let (api, version) = (header.api_key, header.api_version);
        let (place, row) = handlers::row(api)
            .ok_or_else(|| Outcome::Close(format!("{api} is not served by this broker")))?;
        if !api.supports(version) {
            return Err(Outcome::Close(format!(
                "{api} version {version} is not served"
            )));
        }
        let request = Request::decode(api, version, frame).map_err(|error| {
            Outcome::Close(format!("{api} version {version} cannot be read: {error}"))
        })?;
        Ok(Understood {
            header,
            row,
            place,
            request,
            size,
        })
    }
}

/// The correlation id of an ApiVersions request in a version nobody knows here. Such a client does not know yet what this
/// broker speaks and must be told; of its request only what stands first in every version can be read.
fn asks_in_a_version_to_come(frame: &[u8]) -> Option<i32> {
    let [k0, k1, v0, v1, c0, c1, c2, c3] = *frame.first_chunk::<8>()?;
    let is_api_versions = i16::from_be_bytes([k0, k1]) == ApiKey::ApiVersions.key();
    let is_known = ApiKey::ApiVersions.supports(i16::from_be_bytes([v0, v1]));
    (is_api_versions && !is_known).then_some(i32::from_be_bytes([c0, c1, c2, c3]))
}

struct Understood {
    header: RequestHeader,
    row: &'static Row,
    /// The row's place in the table, which is also its place among the metrics.
    place: usize,
    request: Request,
    size: usize,
}

impl Service for Dispatch {
    type Session = Session;

    fn connected(&self, peer: &Peer) -> Session {
        self.rooms.metrics.connections.inc();
        self.rooms.metrics.connections_created.inc();
        Session {
            listener: Arc::clone(&peer.listener),
            client_id: None,
        }
    }

    async fn handle(&self, session: &mut Session, frame: Bytes) -> Outcome {
        let began = Instant::now();
        let Understood {
            header,
            row,
            place,
            request,
            size,
        } = match self.understand(frame) {
            Ok(understood) => understood,
            Err(outcome) => return outcome,
        };
        let metrics = Arc::clone(&self.rooms.metrics);
        metrics.request(place).began(size);
        let (version, correlation_id) = (header.api_version, header.correlation_id);
        let cx = self.context(session, header.client_id);
        if row.needs.resource == ResourceKind::Cluster
            && !cx.may(row.needs.operation, Resource::Cluster)
        {
            return Outcome::Close(format!(
                "{} may not {:?}",
                cx.principal, row.needs.operation
            ));
        }
        // Boxed, so that a connection at rest does not hold room for the largest handler.
        let outcome = Box::pin(handlers::call(&cx, place, request, version, correlation_id)).await;
        match outcome {
            Outcome::Later(pending) => Outcome::Later(Box::pin(async move {
                let outcome = pending.await;
                metrics.request(place).ended(began, &outcome);
                outcome
            })),
            outcome => {
                metrics.request(place).ended(began, &outcome);
                outcome
            }
        }
    }

    fn disconnected(&self, _session: Session) {
        self.rooms.metrics.connections.dec();
    }
}

#[cfg(test)]
mod tests;

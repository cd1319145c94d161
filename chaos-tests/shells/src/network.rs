//! The other side of the doors to the network: requests go out, and listeners take them in, over turmoil's TCP.
//! Law: HTTP and Kafka's protocol as in production, byte for byte; only the socket below them is another.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, Request, Response, Uri, header};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kuorum_broker::cluster::carrier;
use kuorum_controller::quorum::{Carrier, CarryError, Cause};
use kuorum_transport::tcp::Dialed;
use kuorum_transport::{Accepting, CallError, Connection, Dialing, Instant, Network};
use parking_lot::Mutex;
use tokio::time::timeout_at;
use turmoil::net::{TcpListener, TcpStream};

/// Where every controller listens.
pub(crate) const PORT: u16 = 9093;
/// As in production.
const CONNECT: Duration = Duration::from_millis(200);

pub(crate) type Requests = SendRequest<Full<Bytes>>;

/// Carries requests over turmoil, and keeps connections for the next one, as the clients of production do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roads {
    idle: Arc<Mutex<BTreeMap<String, Vec<Requests>>>>,
}

impl Carrier for Roads {
    fn carry(
        &self,
        request: Request<Vec<u8>>,
        deadline: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, CarryError>> {
        let roads = self.clone();
        async move {
            match tokio::time::timeout(deadline, roads.exchange(request)).await {
                Ok(answer) => answer.map_err(CarryError::Unreachable),
                Err(late) => Err(CarryError::TimedOut(late.into())),
            }
        }
        .boxed()
    }
}

impl carrier::Carrier for Roads {
    fn carry(
        &self,
        request: Request<Vec<u8>>,
    ) -> BoxFuture<'static, Result<Response<carrier::Body>, carrier::Cause>> {
        let roads = self.clone();
        async move { roads.stream(request).await }.boxed()
    }
}

impl Roads {
    async fn exchange(&self, request: Request<Vec<u8>>) -> Result<Response<Bytes>, Cause> {
        let (address, request) = addressed(request)?;
        let mut requests = self.way_to(&address).await?;
        let (head, body) = requests.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.keep(address, requests);
        Ok(Response::from_parts(head, body))
    }

    /// An answer whose body comes as it comes. Its connection is kept for the next request once it has ended.
    async fn stream(&self, request: Request<Vec<u8>>) -> Result<Response<carrier::Body>, Cause> {
        let (address, request) = addressed(request)?;
        let mut requests = self.way_to(&address).await?;
        let (head, body) = requests.send_request(request).await?.into_parts();
        let rest = Some((self.clone(), address, requests, body));
        let body = stream::unfold(rest, async |rest| {
            let (roads, address, requests, mut body) = rest?;
            loop {
                match body.frame().await {
                    Some(Ok(frame)) => {
                        if let Ok(bytes) = frame.into_data() {
                            return Some((Ok(bytes), Some((roads, address, requests, body))));
                        }
                    }
                    Some(Err(error)) => return Some((Err(error.into()), None)),
                    None => {
                        roads.keep(address, requests);
                        return None;
                    }
                }
            }
        });
        Ok(Response::from_parts(head, body.boxed()))
    }

    fn keep(&self, address: String, requests: Requests) {
        let mut idle = self.idle.lock();
        idle.entry(address).or_default().push(requests);
    }

    async fn way_to(&self, address: &str) -> Result<Requests, Cause> {
        match self.idle_one(address).await {
            Some(requests) => Ok(requests),
            None => speak_http(address).await,
        }
    }

    async fn idle_one(&self, address: &str) -> Option<Requests> {
        loop {
            let mut requests = self.idle.lock().get_mut(address)?.pop()?;
            if requests.ready().await.is_ok() {
                return Some(requests);
            }
        }
    }

    /// An answer without end, on a connection of its own, which must be kept as long.
    pub(crate) async fn open(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<(Response<Incoming>, Requests), Cause> {
        let (address, request) = addressed(request)?;
        let mut requests = speak_http(&address).await?;
        let answer = requests.send_request(request).await?;
        Ok((answer, requests))
    }
}

impl Dialing for Roads {
    fn dial<'a>(
        &'a self,
        address: &'a str,
        client_id: Option<&'a str>,
        deadline: Instant,
    ) -> Dialed<'a> {
        Box::pin(async move {
            let stream = timeout_at(deadline, connect(address))
                .await
                .map_err(|_| CallError::TimedOut)?
                .map_err(|error| CallError::Connect(Arc::new(error)))?;
            let (from, to) = stream.into_split();
            Ok(Connection::over(from, to, client_id))
        })
    }
}

impl Network for Roads {
    type Listener = Socket;

    async fn listen(&self, address: &str) -> io::Result<Socket> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        Socket::bind(address.port()).await
    }
}

/// What goes into HTTP/1.1's first line and Host, and whom to call.
fn addressed(request: Request<Vec<u8>>) -> Result<(String, Request<Full<Bytes>>), Cause> {
    let (mut head, body) = request.into_parts();
    let address = head
        .uri
        .authority()
        .ok_or("the URI names nobody")?
        .to_string();
    let path = head
        .uri
        .path_and_query()
        .ok_or("the URI has no path")?
        .clone();
    head.uri = Uri::from(path);
    head.headers
        .insert(header::HOST, HeaderValue::try_from(address.as_str())?);
    Ok((
        address,
        Request::from_parts(head, Full::new(Bytes::from(body))),
    ))
}

async fn speak_http(address: &str) -> Result<Requests, Cause> {
    let stream = connect(address).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Ends with the sender, or with the other side.
    tokio::spawn(connection);
    sender.ready().await?;
    Ok(sender)
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await? {
        Ok(stream) => Ok(stream),
        Err(error) => {
            // turmoil refuses at once where a packet that is lost says nothing, and keeps the port for good.
            tokio::time::sleep(CONNECT).await;
            Err(error)
        }
    }
}

/// A listener of the simulated network.
pub(crate) struct Socket(TcpListener);

impl Socket {
    pub(crate) async fn bind(port: u16) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(("0.0.0.0", port)).await?))
    }
}

impl Accepting for Socket {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

//! The other side of the two doors to the network: requests go out, and listeners take them in, over turmoil's TCP.
//! Law: HTTP as in production, byte for byte; only the socket below it is another.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, Request, Response, Uri, header};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kuorum_controller::http::Accepting;
use kuorum_controller::quorum::{Carrier, CarryError, Cause};
use parking_lot::Mutex;
use turmoil::net::{TcpListener, TcpStream};

/// Where every controller listens.
pub(crate) const PORT: u16 = 9093;
/// As in production.
const CONNECT: Duration = Duration::from_millis(200);

pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// Carries requests over turmoil, and keeps connections for the next one, as the client of production does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roads {
    idle: Arc<Mutex<BTreeMap<String, Vec<Connection>>>>,
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

impl Roads {
    async fn exchange(&self, request: Request<Vec<u8>>) -> Result<Response<Bytes>, Cause> {
        let (address, request) = addressed(request)?;
        let mut connection = match self.idle_one(&address).await {
            Some(connection) => connection,
            None => connect(&address).await?,
        };
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut idle = self.idle.lock();
        idle.entry(address).or_default().push(connection);
        Ok(Response::from_parts(head, body))
    }

    async fn idle_one(&self, address: &str) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().get_mut(address)?.pop()?;
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// An answer without end, on a connection of its own, which must be kept as long.
    pub(crate) async fn open(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<(Response<Incoming>, Connection), Cause> {
        let (address, request) = addressed(request)?;
        let mut connection = connect(&address).await?;
        let answer = connection.send_request(request).await?;
        Ok((answer, connection))
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

async fn connect(address: &str) -> Result<Connection, Cause> {
    let stream = match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await? {
        Ok(stream) => stream,
        Err(error) => {
            // turmoil refuses at once where a packet that is lost says nothing, and keeps the port for good.
            tokio::time::sleep(CONNECT).await;
            return Err(error.into());
        }
    };
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Ends with the sender, or with the other side.
    tokio::spawn(connection);
    sender.ready().await?;
    Ok(sender)
}

/// A listener of the simulated network.
pub(crate) struct Socket(TcpListener);

impl Socket {
    pub(crate) async fn bind() -> io::Result<Self> {
        Ok(Self(TcpListener::bind(("0.0.0.0", PORT)).await?))
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

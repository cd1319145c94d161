//! The one door to the network: every socket of the house comes from here, or from whoever hands in another [`Network`].
//! Law: no other file of the house names `tokio::net`. What is done with a connection is compiled for its kind of socket, so
//! that the choice costs nothing for each byte.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::lookup_host;
pub use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::connection::{CallError, Connection};

/// A listening socket: the system's, or a simulated one.
pub trait Accepting: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// Where it listens.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

impl Accepting for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = Self::accept(self).await?;
        // A small answer is not held back for company; without it only latency is lost.
        let _ = stream.set_nodelay(true);
        Ok((stream, address))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// A connection that is being opened.
pub type Dialed<'a> = Pin<Box<dyn Future<Output = Result<Connection, CallError>> + Send + 'a>>;

/// Opens connections to others: over the system's network, or a simulated one.
pub trait Dialing: Debug + Send + Sync + 'static {
    /// Connects to `host:port`, as [`Connection::connect`] does.
    fn dial<'a>(
        &'a self,
        address: &'a str,
        client_id: Option<&'a str>,
        deadline: Instant,
    ) -> Dialed<'a>;
}

/// A network to live in: the system's, or a simulated one.
pub trait Network: Dialing {
    /// Its listening sockets.
    type Listener: Accepting;

    /// Opens a listening socket on `host:port`.
    fn listen(&self, address: &str) -> impl Future<Output = io::Result<Self::Listener>> + Send;
}

/// The network of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNetwork;

impl Dialing for SystemNetwork {
    fn dial<'a>(
        &'a self,
        address: &'a str,
        client_id: Option<&'a str>,
        deadline: Instant,
    ) -> Dialed<'a> {
        Box::pin(Connection::connect(address, client_id, deadline))
    }
}

impl Network for SystemNetwork {
    type Listener = TcpListener;

    async fn listen(&self, address: &str) -> io::Result<TcpListener> {
        listen(address).await
    }
}

/// Opens a listening socket on `host:port`.
pub async fn listen(address: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Opens a connection to `host:port`, trying each address the name has, IPv4 first: `localhost` is often served only there.
/// Small requests are not held back for company (TCP_NODELAY). "Connection refused" is told only if each of them refused.
pub async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut candidates: Vec<SocketAddr> = lookup_host(address).await?.collect();
    candidates.sort_by_key(SocketAddr::is_ipv6);
    let mut failed: Option<io::Error> = None;
    for candidate in candidates {
        match TcpStream::connect(candidate).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => {
                let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
                if failed.as_ref().is_none_or(refused) {
                    failed = Some(error);
                }
            }
        }
    }
    Err(failed.unwrap_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{address} names no address"),
        )
    }))
}

//! The one door to the network: every socket of the house comes from here, so a simulated world is swapped in one file.
//! Law: no other file of the house names `tokio::net`.

use std::io;
use std::net::SocketAddr;

use tokio::net::lookup_host;
pub use tokio::net::{TcpListener, TcpStream};

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

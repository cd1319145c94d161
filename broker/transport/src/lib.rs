//! Frames over TCP, in both directions, and the clock they are timed by.
//! Law: knows no request's meaning. Everything that can grow has a bound, everything that waits has a deadline.

pub mod backoff;
pub mod clock;
pub mod connection;
pub mod descriptors;
pub mod framed;
#[cfg(feature = "http")]
pub mod http;
pub mod process;
mod quiet;
pub mod server;
pub mod tcp;

pub use backoff::Backoff;
pub use clock::Clock;
pub use connection::{CallError, Connection, Watch};
pub use framed::{FrameError, FrameReader};
pub use server::{Outcome, Peer, Response, Server, ServerConfig, Service};
pub use tcp::{Accepting, Dialing, Network, SystemNetwork};
pub use tokio::time::Instant;

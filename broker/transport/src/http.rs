//! HTTP servers that a flood does not bring down, in controllers and brokers.
//! Law: connections are counted, and one that moves no byte for a minute is closed; bodies and times are bounded by the
//! routers.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::tcp::Accepting;

/// How long a connection may do nothing.
const IDLE: Duration = Duration::from_secs(60);
/// How long requests get to end when the process goes down.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves a router until the process goes down, then lets requests end for a moment.
pub async fn serve<L: Accepting>(
    listener: L,
    max_connections: usize,
    router: Router,
    clock: Clock,
    going_down: CancellationToken,
) {
    let bounded = Bounded {
        listener,
        permits: Arc::new(Semaphore::new(max_connections)),
        clock: clock.clone(),
    };
    let signal = going_down.clone();
    let server = axum::serve(bounded, router)
        .with_graceful_shutdown(async move { signal.cancelled().await });
    let late = async {
        going_down.cancelled().await;
        clock.sleep(DRAIN).await;
    };
    tokio::select! {
        result = async { server.await } => {
            if let Err(error) = result {
                tracing::error!("an HTTP server has stopped: {error}");
            }
        }
        () = late => {}
    }
}

/// A listener that has only so many connections open at once; the next one waits in the kernel's queue.
#[derive(Debug)]
struct Bounded<L> {
    listener: L,
    permits: Arc<Semaphore>,
    clock: Clock,
}

impl<L: Accepting> Listener for Bounded<L> {
    type Io = Watched<L::Stream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let deadline = Box::pin(tokio::time::sleep(IDLE));
                    return (
                        Watched {
                            stream,
                            deadline,
                            _permit: permit,
                        },
                        address,
                    );
                }
                Err(error) => {
                    // Out of descriptors, mostly: wait for some to be returned.
                    tracing::warn!("cannot accept a connection: {error}");
                    self.clock.sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with a deadline that every byte renews.
#[derive(Debug)]
struct Watched<S> {
    stream: S,
    deadline: Pin<Box<tokio::time::Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl<S> Watched<S> {
    fn renew(&mut self) {
        self.deadline
            .as_mut()
            .reset(tokio::time::Instant::now() + IDLE);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            self.renew();
            return Poll::Ready(result);
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_write(cx, buf) {
            self.renew();
            return Poll::Ready(result);
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

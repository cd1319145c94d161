//! How requests to the controllers leave this broker: over HTTP as the system has it, or over a simulated network.
//! Law: carries and understands nothing. Deadlines are the caller's: a request that is dropped is given up.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};

/// What a carrier met with.
pub type Cause = Box<dyn Error + Send + Sync>;

/// The body of an answer, as it comes; a stream of the controllers has no end.
pub type Body = BoxStream<'static, Result<Bytes, Cause>>;

/// Carries requests to controllers: the broker's one door to them.
pub trait Carrier: Debug + Send + Sync + 'static {
    /// Sends a request to the host and port of its URI. Ends with the head of the answer, whatever its status.
    fn carry(&self, request: Request<Vec<u8>>)
    -> BoxFuture<'static, Result<Response<Body>, Cause>>;
}

impl Carrier for reqwest::Client {
    fn carry(
        &self,
        request: Request<Vec<u8>>,
    ) -> BoxFuture<'static, Result<Response<Body>, Cause>> {
        let client = self.clone();
        async move {
            let answer = client.execute(request.try_into()?).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let body = answer.bytes_stream().map(|piece| Ok(piece?)).boxed();
            let mut answer = Response::new(body);
            *answer.status_mut() = status;
            *answer.headers_mut() = headers;
            Ok(answer)
        }
        .boxed()
    }
}

/// The HTTP client all of a broker's requests to controllers go through.
///
/// # Errors
/// If the system has no randomness or the like.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(Duration::from_millis(500))
        .tcp_nodelay(true)
        // Controllers close what is idle for a minute; never send into a connection that is about to go.
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
}

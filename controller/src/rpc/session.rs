//! The stream by whose end a broker's death is noticed.
//! Law: the session lives as long as the response's body. It also ends when this controller leaves office, so that the
//! broker opens it where it counts.

use std::convert::Infallible;
use std::time::Duration;

use async_stream::stream;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use kuorum_metadata::rpc::SessionRequest;

use super::{Payload, Rpc, reply};

/// How often the stream says that it is still there.
const BEAT: Duration = Duration::from_secs(1);

pub(super) async fn open(
    State(rpc): State<Rpc>,
    Payload(request): Payload<SessionRequest>,
) -> Response {
    let mut office = rpc.active.watch();
    let session = match rpc.active.open_session(&request) {
        Ok(session) => session,
        Err(error) => return reply::<()>(Err(error)),
    };
    let opened_under = *office.borrow_and_update();
    let beats = stream! {
        // Moved in here, so that it is dropped with the body.
        let _session = session;
        loop {
            yield Ok::<_, Infallible>(Bytes::from_static(b"\n"));
            let left = office.wait_for(|office| *office != opened_under);
            tokio::select! {
                () = rpc.clock.sleep(BEAT) => {}
                _ = left => return,
                () = rpc.going_down.cancelled() => return,
            }
        }
    };
    Body::from_stream(beats).into_response()
}

//! The history of events as people see it: each as the admin API says it, and all of them as an endless stream
//! (`text/event-stream`).
//! Law: a stream is pulled by its reader and holds no more than one chunk, so a slow reader slows nobody; one that was so
//! slow that events were dropped meanwhile is told so. A controller that has lost sight of the quorum ends its streams.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use kuorum_metadata::events::EventFilter;
use kuorum_metadata::{Event, EventId};
use kuorum_transport::Clock;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::feed::BLIND;
use crate::quorum::Published;

/// How many streams one controller serves at a time.
const STREAMS: usize = 64;
/// How many events one chunk of a stream holds.
const CHUNK: usize = 100;
/// The longest silence on a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often a silent stream looks whether there is still a quorum.
const LOOK: Duration = Duration::from_secs(1);
/// What a reader that lost its stream is asked to wait, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// The permits for [`frames`].
pub fn streams() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(STREAMS))
}

/// An event as the admin API says it.
pub fn view(event: &Event) -> kuorum_admin_api::Event {
    let kind = serde_json::to_value(&event.what).expect("events hold nothing JSON cannot say");
    let details = match kind {
        Value::Object(mut kind) => match kind.remove("details") {
            Some(Value::Object(details)) => details,
            _ => Map::new(),
        },
        _ => Map::new(),
    };
    kuorum_admin_api::Event {
        id: event.id.0,
        at_ms: event.at.0,
        kind: event.what.name().to_owned(),
        topic: event.topic.clone(),
        topic_id: event.topic_id.map(|id| id.to_string()),
        partition: event.partition,
        broker: event.broker.map(|broker| broker.0),
        cause: event.cause.clone(),
        message: event.to_string(),
        metadata_offset: event.id.offset(),
        details,
    }
}

/// The wanted events after `from`, for ever. `permit` is held as long as somebody reads.
pub fn frames(
    published: Arc<Published>,
    in_sight: impl Fn() -> bool + Send + 'static,
    clock: Clock,
    going_down: CancellationToken,
    filter: EventFilter,
    from: EventId,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream! {
        let _permit = permit;
        let mut applied = published.watch();
        let mut at = from;
        let begun = clock.now().monotonic;
        let (mut sighted, mut said) = (begun, begun);
        // The id tells a reader that sees nothing before it loses its stream where to go on.
        yield Ok(Bytes::from(format!("id: {at}\nretry: {RETRY_MS}\n\n")));
        loop {
            applied.mark_unchanged();
            let now = clock.now().monotonic;
            let read = published.with_history(|history| history.read(at, &filter, CHUNK));
            match read {
                Err(overrun) => {
                    yield Ok(reset(at, overrun.floor));
                    (at, said) = (overrun.floor, now);
                    continue;
                }
                Ok((events, seen)) => {
                    at = seen;
                    if !events.is_empty() {
                        said = now;
                        let text: String = events.iter().map(|event| frame(event)).collect();
                        yield Ok(Bytes::from(text));
                        continue;
                    }
                }
            }
            if in_sight() {
                let end = published.applied_end();
                if at.offset() < end || end == 0 {
                    sighted = now;
                } else if now.since(sighted) >= BLIND {
                    // The reader has seen what never happened here: the cluster was set up anew.
                    let end = published.with_history(|history| history.end());
                    yield Ok(reset(at, end));
                    (at, said, sighted) = (end, now, now);
                    continue;
                }
            } else if now.since(sighted) >= BLIND {
                tracing::info!("ended a stream of events: this controller has lost sight of the quorum");
                return;
            }
            if now.since(said) >= HEARTBEAT {
                said = now;
                yield Ok(Bytes::from(format!(": still here\nid: {at}\n\n")));
            }
            tokio::select! {
                changed = applied.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = clock.sleep(LOOK) => {}
                () = going_down.cancelled() => return,
            }
        }
    }
}

fn frame(event: &Event) -> String {
    let json = serde_json::to_string(&view(event)).expect("events hold nothing JSON cannot say");
    format!("id: {}\ndata: {json}\n\n", event.id)
}

/// Events between `asked` and the next one sent are not to be had any more.
fn reset(asked: EventId, floor: EventId) -> Bytes {
    let text = format!(
        "id: {floor}\nevent: reset\ndata: {{\"asked_after\":{asked},\"dropped_through\":{floor}}}\n\n"
    );
    Bytes::from(text)
}

#[cfg(test)]
mod tests;

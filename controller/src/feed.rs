//! The metadata log as brokers follow it: committed, applied, in order, resumable by offset.
//! Law: any controller serves it; an offset that is no longer at hand gets the whole image. A controller that has lost
//! sight of the quorum ends its feeds, so that a broker does not follow into the past.

use std::convert::Infallible;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use kuorum_metadata::rpc::FeedLine;
use kuorum_transport::Clock;
use tokio_util::sync::CancellationToken;

use crate::quorum::{Next, Quorum};

/// The longest silence on a feed.
const IDLE: Duration = Duration::from_secs(1);
/// How much is written before others get their turn.
const CHUNK_BYTES: usize = 256 * 1024;
/// How long a controller may be without a leader, or a leader without a majority, before its feeds end.
pub(crate) const BLIND: Duration = Duration::from_secs(3);

/// The lines of the feed from an offset on, each ended by a newline.
pub fn lines(
    quorum: Quorum,
    clock: Clock,
    from: i64,
    going_down: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream! {
        let mut next = from.max(0);
        let mut applied = quorum.published().watch();
        let mut sighted = clock.now().monotonic;
        let mut told_all = false;
        loop {
            applied.mark_unchanged();
            match quorum.published().next(next, CHUNK_BYTES) {
                Next::Image(image, end) => {
                    // Everything below `end` is in it; offsets of lines are inclusive.
                    yield Ok(line(&FeedLine::Snapshot {
                        offset: end - 1,
                        records: image.to_records(),
                    }));
                    next = end;
                }
                Next::Entries(entries, end) => {
                    let more = !entries.is_empty();
                    for (offset, records) in entries {
                        yield Ok(line(&FeedLine::Entry { offset, records: records.to_vec() }));
                    }
                    let moved = end > next;
                    next = next.max(end);
                    if more && next < quorum.published().applied_end() {
                        continue;
                    }
                    if moved && !more {
                        yield Ok(line(&FeedLine::Idle { offset: next - 1 }));
                    }
                }
            }
            if !told_all && next >= quorum.published().applied_end() {
                // A broker that starts waits for the word that there is no more.
                told_all = true;
                yield Ok(line(&FeedLine::Idle { offset: next - 1 }));
            }
            let now = clock.now().monotonic;
            if in_sight(&quorum) {
                sighted = now;
            } else if now.since(sighted) >= BLIND {
                tracing::info!("ended a feed: this controller has lost sight of the quorum");
                return;
            }
            tokio::select! {
                changed = applied.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = clock.sleep(IDLE) => {
                    yield Ok(line(&FeedLine::Idle { offset: next - 1 }));
                }
                () = going_down.cancelled() => return,
            }
        }
    }
}

/// Whether this controller knows what the quorum agrees on: it leads a majority, or follows somebody.
pub(crate) fn in_sight(quorum: &Quorum) -> bool {
    if quorum.leading().is_some() {
        quorum.heard_of_late()
    } else {
        quorum.leader().is_some()
    }
}

fn line(line: &FeedLine) -> Bytes {
    let mut bytes = serde_json::to_vec(line).expect("records hold nothing JSON cannot say");
    bytes.push(b'\n');
    bytes.into()
}

//! Streams of events under a clock that stands still until somebody waits.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use kuorum_metadata::events::EventKind;
use kuorum_metadata::{History, MetadataImage};
use kuorum_protocol::{LeaderEpoch, Timestamp};

use super::*;

const KEPT: usize = 5;

type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, Infallible>> + Send>>;

/// A controller's published state, and whether it sees the quorum.
struct Story {
    published: Arc<Published>,
    sees: Arc<AtomicBool>,
    going_down: CancellationToken,
    applied: i64,
}

impl Story {
    fn new() -> Self {
        let history = History::new(KEPT, 1 << 20);
        Self {
            published: Arc::new(Published::new(MetadataImage::default(), 0, history)),
            sees: Arc::new(AtomicBool::new(true)),
            going_down: CancellationToken::new(),
            applied: 0,
        }
    }

    /// So many entries more, with one event each.
    fn happen(&mut self, entries: i64) {
        for _ in 0..entries {
            self.happen_to("a");
        }
    }

    fn happen_to(&mut self, topic: &str) {
        let event = Event {
            id: EventId::new(self.applied, 1),
            at: Timestamp(self.applied),
            topic: Some(topic.to_owned()),
            topic_id: None,
            partition: Some(0),
            broker: None,
            cause: "why".to_owned(),
            what: EventKind::LeaderRecovered {
                leader_epoch: LeaderEpoch(1),
            },
        };
        self.applied += 1;
        let image = MetadataImage::default();
        self.published
            .advance(image, Vec::new(), vec![event], self.applied);
    }

    fn read(&self, from: i64, topic: Option<&str>) -> Frames {
        let filter = EventFilter {
            topic: topic.map(str::to_owned),
            ..EventFilter::default()
        };
        let sees = Arc::clone(&self.sees);
        let permit = streams().try_acquire_owned().unwrap();
        Box::pin(frames(
            Arc::clone(&self.published),
            move || sees.load(Ordering::SeqCst),
            Clock::seeded(1),
            self.going_down.clone(),
            filter,
            EventId(from),
            permit,
        ))
    }
}

async fn next(frames: &mut Frames) -> String {
    let chunk = frames.next().await.expect("the stream goes on").unwrap();
    String::from_utf8(chunk.to_vec()).unwrap()
}

/// The ids in a chunk, as offsets of their entries.
fn offsets(chunk: &str) -> Vec<i64> {
    let ids = chunk.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.map(|id| EventId(id.parse().unwrap()).offset())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_reader_sees_every_event_once_and_goes_on_elsewhere() {
    let (mut here, mut there) = (Story::new(), Story::new());
    here.happen(3);
    let mut frames = here.read(0, None);
    assert_eq!(next(&mut frames).await, "id: 0\nretry: 1000\n\n");
    let chunk = next(&mut frames).await;
    assert_eq!(offsets(&chunk), [0, 1, 2]);
    assert!(chunk.contains("\ndata: {\"id\":1,"), "{chunk}");
    here.happen(1);
    let chunk = next(&mut frames).await;
    assert_eq!(offsets(&chunk), [3]);
    let last: i64 = chunk.lines().next().unwrap()[4..].parse().unwrap();

    // Another controller applies the same entries, and for now fewer of them.
    there.happen(3);
    let mut frames = there.read(last, None);
    next(&mut frames).await;
    there.happen(3);
    assert_eq!(offsets(&next(&mut frames).await), [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_was_too_slow_is_told_and_stops_nobody() {
    let mut story = Story::new();
    story.happen(1);
    let mut slow = story.read(0, None);
    let mut quick = story.read(0, None);
    next(&mut slow).await;
    next(&mut quick).await;
    assert_eq!(offsets(&next(&mut quick).await), [0]);
    // The slow one does not read; what happens does not wait for it.
    for round in 0..20 {
        story.happen(1);
        assert_eq!(offsets(&next(&mut quick).await), [round + 1]);
    }
    let chunk = next(&mut slow).await;
    assert!(chunk.contains("event: reset\n"), "{chunk}");
    assert_eq!(offsets(&chunk), [15], "the last that is gone");
    assert_eq!(offsets(&next(&mut slow).await), [16, 17, 18, 19, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_that_it_is_there_and_where_it_is() {
    let mut story = Story::new();
    story.happen(2);
    let mut frames = story.read(0, Some("a"));
    next(&mut frames).await;
    assert_eq!(offsets(&next(&mut frames).await), [0, 1]);
    // Entries that nobody here wants to hear of do not put the heartbeat off.
    let begun = tokio::time::Instant::now();
    let chunk = {
        let beat = next(&mut frames);
        tokio::pin!(beat);
        loop {
            tokio::select! {
                chunk = &mut beat => break chunk,
                () = tokio::time::sleep(Duration::from_secs(7)) => story.happen_to("b"),
            }
        }
    };
    assert_eq!(story.applied, 4);
    assert!(chunk.starts_with(": "), "{chunk}");
    assert_eq!(
        offsets(&chunk),
        [story.applied - 1],
        "resuming skips what was passed over"
    );
    let silence = begun.elapsed();
    assert!(
        (HEARTBEAT..=HEARTBEAT + LOOK).contains(&silence),
        "{silence:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_process_or_when_the_quorum_is_out_of_sight() {
    let mut story = Story::new();
    story.happen(1);
    let mut frames = story.read(0, None);
    next(&mut frames).await;
    next(&mut frames).await;
    story.sees.store(false, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    assert!(frames.next().await.is_none());
    let took = begun.elapsed();
    assert!((BLIND..=BLIND + LOOK).contains(&took), "{took:?}");

    let mut frames = story.read(0, None);
    next(&mut frames).await;
    next(&mut frames).await;
    story.going_down.cancel();
    assert!(frames.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reader_from_a_cluster_that_is_no_more_is_told() {
    let mut story = Story::new();
    story.happen(2);
    let mut frames = story.read(EventId::new(1_000_000, 1).0, None);
    next(&mut frames).await;
    let chunk = next(&mut frames).await;
    assert!(chunk.contains("event: reset\n"), "{chunk}");
    assert_eq!(offsets(&chunk), [1]);
    story.happen(1);
    assert_eq!(offsets(&next(&mut frames).await), [2]);
}

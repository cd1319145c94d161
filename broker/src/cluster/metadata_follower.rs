//! The broker's ear: it streams the committed metadata log from a controller and applies it in order.
//! Law: every entry is applied once and in order; first this broker acts on a change, then requests may see it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::StreamExt;
use kuorum_metadata::delta::MetadataDelta;
use kuorum_metadata::image::MetadataImage;
use kuorum_metadata::rpc::FeedLine;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::controller_client::{ControllerClient, ControllerPeer};
use super::lifecycle::Membership;
use super::metadata_cache::MetadataCache;
use crate::replica_manager::ReplicaManager;

/// A feed says something at least every second; one that is silent for this long is given up.
const SILENCE: Duration = Duration::from_secs(3);
/// A feed of another than the active controller is good for this long, then the active one is tried again.
const SECOND_THOUGHT: Duration = Duration::from_secs(5);
/// A line longer than this is not ours. A snapshot is one line.
const LINE_MOST: usize = 1 << 30;
const PAUSE_LEAST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_millis(500);
/// How often lasting trouble is said again.
const REMINDER: Duration = Duration::from_secs(30);

/// Follows the metadata log until told to stop.
#[derive(Debug)]
pub struct MetadataFollower {
    pub controllers: ControllerClient,
    pub cache: Arc<MetadataCache>,
    pub replicas: Arc<ReplicaManager>,
    pub membership: Arc<Membership>,
}

/// What is known so far, and what of it has been acted on.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) image: MetadataImage,
    /// Applied up to here.
    pub(super) offset: i64,
    /// Whether a controller has said that there is nothing more to tell.
    pub(super) caught_up: bool,
    /// What changed since the replica manager last acted; `None` when it has to look at everything.
    pub(super) pending: Option<MetadataDelta>,
}

/// Why a feed was left.
#[derive(Debug)]
enum Left {
    Stopping,
    /// Another controller is active now, and hears of commits first.
    Elsewhere,
    Trouble(String),
}

impl MetadataFollower {
    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let mut progress = Progress::new();
        let mut pause = PAUSE_LEAST;
        let mut turn = 0;
        let mut said: Option<Instant> = None;
        loop {
            let before = progress.offset;
            let controller = self.choose(&mut turn);
            match self.follow(&controller, &mut progress, &stop).await {
                Left::Stopping => return,
                Left::Elsewhere => {
                    // An even turn tries the active one first.
                    turn += turn % 2;
                    continue;
                }
                Left::Trouble(trouble) => {
                    debug!(controller = controller.id, %trouble, "the metadata feed ended");
                    if progress.offset > before {
                        pause = PAUSE_LEAST;
                        said = None;
                    }
                    let due = said.is_none_or(|at| at.elapsed() >= REMINDER);
                    if pause >= PAUSE_MOST && due {
                        said = Some(Instant::now());
                        warn!(controller = controller.id, address = %controller.address, offset = progress.offset,
                              cause = %trouble, "cannot follow the metadata log; trying the next controller");
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MOST);
            turn += 1;
        }
    }

    /// The active controller hears of commits first; any other is as good when it is unknown or does not answer.
    fn choose(&self, turn: &mut usize) -> ControllerPeer {
        let all = self.controllers.controllers();
        let active = *self.controllers.active().borrow();
        let position = active.and_then(|id| all.iter().position(|peer| peer.id == id));
        match position {
            Some(position) if turn.is_multiple_of(2) => all[position].clone(),
            _ => all[*turn % all.len()].clone(),
        }
    }

    async fn follow(
        &self,
        controller: &ControllerPeer,
        progress: &mut Progress,
        stop: &CancellationToken,
    ) -> Left {
        let mut stream = match self.controllers.feed(controller, progress.offset + 1).await {
            Ok(stream) => stream,
            Err(error) => return Left::Trouble(error.to_string()),
        };
        let mut active = self.controllers.active();
        let not_the_active = active
            .borrow_and_update()
            .is_some_and(|id| id != controller.id);
        let second_thought = tokio::time::sleep(SECOND_THOUGHT);
        tokio::pin!(second_thought);
        let mut registered = self.membership.subscribe();
        let mut buffer = BytesMut::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Left::Stopping,
                changed = active.changed() => {
                    if changed.is_err() {
                        return Left::Stopping;
                    }
                    if active.borrow_and_update().is_some_and(|id| id != controller.id) {
                        return Left::Elsewhere;
                    }
                }
                () = &mut second_thought, if not_the_active => return Left::Elsewhere,
                changed = registered.changed() => {
                    if changed.is_err() {
                        return Left::Stopping;
                    }
                    self.publish(progress).await;
                }
                chunk = tokio::time::timeout(SILENCE, stream.next()) => {
                    let chunk = match chunk {
                        Err(_) => return Left::Trouble("silent".to_owned()),
                        Ok(None) => return Left::Trouble("closed".to_owned()),
                        Ok(Some(Err(error))) => return Left::Trouble(error.to_string()),
                        Ok(Some(Ok(chunk))) => chunk,
                    };
                    buffer.extend_from_slice(&chunk);
                    if let Err(trouble) = progress.take_lines(&mut buffer) {
                        return Left::Trouble(trouble);
                    }
                    self.publish(progress).await;
                }
            }
        }
    }

    /// Lets the broker act on what changed, then shows the image to requests.
    async fn publish(&self, progress: &mut Progress) {
        self.publish_image(progress).await;
        if progress.caught_up {
            self.cache.mark_caught_up();
        }
    }

    async fn publish_image(&self, progress: &mut Progress) {
        if progress.offset <= self.cache.offset() && !self.may_begin(progress) {
            return;
        }
        let image = Arc::new(progress.image.clone());
        // Until the image contains this process's own registration it may still name the roles of its predecessor,
        // and a restarted leader never resumes its epoch: nothing is acted on before.
        if self.registration_is_in(progress.offset) {
            match progress.pending.replace(MetadataDelta::default()) {
                Some(delta) => self.replicas.apply(&image, Some(delta)).await,
                None => {
                    info!(offset = progress.offset, "caught up with the metadata log");
                    self.replicas.apply(&image, None).await;
                }
            }
        }
        self.cache.publish(image, progress.offset);
    }

    fn registration_is_in(&self, offset: i64) -> bool {
        self.membership
            .epoch()
            .is_some_and(|epoch| offset >= epoch.0)
    }

    /// Registered and caught up, but nothing acted on yet.
    fn may_begin(&self, progress: &Progress) -> bool {
        progress.pending.is_none() && self.registration_is_in(progress.offset)
    }
}

impl Progress {
    /// Knows nothing.
    pub(super) fn new() -> Self {
        Self {
            image: MetadataImage::default(),
            offset: -1,
            caught_up: false,
            pending: None,
        }
    }

    /// Applies every whole line of `buffer` and leaves the rest in it.
    pub(super) fn take_lines(&mut self, buffer: &mut BytesMut) -> Result<(), String> {
        let mut scanned = 0;
        while let Some(length) = buffer[scanned..].iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(scanned + length);
            buffer.advance(1);
            scanned = 0;
            if line.is_empty() {
                continue;
            }
            let line = serde_json::from_slice(&line)
                .map_err(|error| format!("a line of the feed is unreadable: {error}"))?;
            self.take(line);
        }
        if buffer.len() > LINE_MOST {
            return Err("a line of the feed has no end".to_owned());
        }
        Ok(())
    }

    pub(super) fn take(&mut self, line: FeedLine) {
        match line {
            FeedLine::Snapshot { offset, records } => {
                let mut image = MetadataImage::default();
                let mut ignored = MetadataDelta::default();
                for record in &records {
                    image.apply(offset, record, &mut ignored);
                }
                self.image = image;
                self.offset = offset;
                self.pending = None;
            }
            FeedLine::Entry { offset, records } => {
                // A feed opened anew may begin with what was already applied.
                if offset <= self.offset {
                    return;
                }
                let mut nowhere = MetadataDelta::default();
                let delta = self.pending.as_mut().unwrap_or(&mut nowhere);
                for record in &records {
                    self.image.apply(offset, record, delta);
                }
                self.offset = offset;
            }
            FeedLine::Idle { offset } => {
                self.offset = self.offset.max(offset);
                self.caught_up = true;
            }
        }
    }
}

//! The broker's newest view of what the cluster agreed on, readable by every request without a lock.
//! Law: the image only moves forward, and it is published here after the broker has acted on it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use kuorum_metadata::image::MetadataImage;
use tokio::sync::watch;

/// The published image and the offset of the metadata log up to which it is complete.
#[derive(Debug)]
pub struct MetadataCache {
    image: ArcSwap<MetadataImage>,
    offset: watch::Sender<i64>,
    caught_up: watch::Sender<bool>,
}

impl Default for MetadataCache {
    fn default() -> Self {
        Self::new()
    }
}

impl MetadataCache {
    /// Knows nothing yet: an empty image as of offset −1.
    pub fn new() -> Self {
        Self {
            image: ArcSwap::from_pointee(MetadataImage::default()),
            offset: watch::Sender::new(-1),
            caught_up: watch::Sender::new(false),
        }
    }

    /// The newest image. Hold it for one request, so that the request sees one state of the cluster.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// The metadata log is applied up to and including this offset; −1 before the first entry.
    pub fn offset(&self) -> i64 {
        *self.offset.borrow()
    }

    /// Publishes `image`, which is complete up to `offset`.
    pub fn publish(&self, image: Arc<MetadataImage>, offset: i64) {
        self.image.store(image);
        self.offset.send_if_modified(|known| {
            let moved = offset > *known;
            *known = offset.max(*known);
            moved
        });
    }

    /// A controller has said that there is nothing more to tell for now.
    pub fn mark_caught_up(&self) {
        self.caught_up
            .send_if_modified(|known| !std::mem::replace(known, true));
    }

    /// Waits until a controller has said for the first time that there is nothing more to tell.
    pub async fn caught_up(&self) {
        // The sender lives as long as this cache.
        drop(self.caught_up.subscribe().wait_for(|known| *known).await);
    }

    /// Waits until the image satisfies `shown`; `false` when `patience` ran out first.
    pub async fn wait_until(
        &self,
        shown: impl Fn(&MetadataImage) -> bool,
        patience: Duration,
    ) -> bool {
        let mut moved = self.offset.subscribe();
        let satisfied = async {
            while !shown(&self.image.load()) {
                if moved.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, satisfied).await.is_ok()
    }

    /// Wakes whenever the offset moves.
    pub fn subscribe(&self) -> watch::Receiver<i64> {
        self.offset.subscribe()
    }
}

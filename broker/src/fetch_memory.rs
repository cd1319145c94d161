//! The memory of answers that consumers have not taken yet.
//! Law: what all of them hold together is bounded, however many are slow. Nobody is refused for it: the less is left, the less one
//! answer carries, down to a single batch.
//!
//! Followers are not counted: there are few of them, what they ask for is bounded by `replica.fetch.response.max.bytes`, and they must not
//! wait for somebody's slow consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// One answer takes no more than this part of what is left, so that a few cannot take all of it.
const PART: usize = 4;

/// All of it (`fetch.memory.max.bytes`).
#[derive(Debug)]
pub struct FetchMemory {
    limit: usize,
    used: AtomicUsize,
}

impl FetchMemory {
    /// Nothing of `limit` bytes is taken yet.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
        })
    }

    /// A share for an answer that may carry up to `wanted` bytes: possibly less, possibly none.
    #[must_use]
    pub fn take(self: &Arc<Self>, wanted: usize) -> Share {
        let mut bytes = 0;
        let taken = |used: usize| {
            bytes = wanted.min(self.limit.saturating_sub(used) / PART);
            Some(used + bytes)
        };
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        Share {
            memory: Arc::clone(self),
            bytes,
        }
    }

    /// How much is taken now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one answer may carry; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    memory: Arc<FetchMemory>,
    bytes: usize,
}

impl Share {
    /// How much that is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The answer carries `bytes`: mostly less than was taken, and more if there was not even room for its first batch.
    pub fn settle(&mut self, bytes: usize) {
        let used = &self.memory.used;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// The same records; the share lasts until they, and all others that hold it, have been sent or given up.
    #[must_use]
    pub fn hold(self: &Arc<Self>, records: Bytes) -> Bytes {
        if records.is_empty() {
            return records;
        }
        Bytes::from_owner(Held {
            records,
            _share: Arc::clone(self),
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Held {
    records: Bytes,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_less_is_given() {
        let memory = FetchMemory::new(1_000);
        let first = memory.take(10_000);
        assert_eq!((first.bytes(), memory.used()), (250, 250));
        let second = memory.take(10_000);
        assert_eq!((second.bytes(), memory.used()), (187, 437));
        let modest = memory.take(10);
        assert_eq!((modest.bytes(), memory.used()), (10, 447));
        drop((first, second, modest));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_batch_that_has_no_room_is_counted_and_leaves_nothing_to_others() {
        let memory = FetchMemory::new(1_000);
        let mut large = memory.take(10_000);
        large.settle(5_000);
        assert_eq!((memory.used(), memory.take(100).bytes()), (5_000, 0));
        large.settle(1);
        assert_eq!((memory.used(), memory.take(100).bytes()), (1, 100));
    }

    #[test]
    fn a_share_lasts_as_long_as_any_of_its_records() {
        let memory = FetchMemory::new(1_000);
        let mut share = memory.take(100);
        share.settle(6);
        let share = Arc::new(share);
        let one = share.hold(Bytes::from_static(b"abc"));
        let other = share.hold(Bytes::from_static(b"def"));
        drop(share);
        assert_eq!(memory.used(), 6);
        let part = one.slice(1..);
        drop((one, other));
        assert_eq!((&part[..], memory.used()), (&b"bc"[..], 6));
        drop(part);
        assert_eq!(memory.used(), 0);
    }
}

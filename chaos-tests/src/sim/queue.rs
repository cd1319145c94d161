//! Simulated time: events in the order they are due, and among equals in the order they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use kuorum_protocol::{Monotonic, Now, Timestamp};

/// Where the wall clock stands when a run begins, in milliseconds since 1970.
const WALL_START: i64 = 1_750_000_000_000;

/// What is yet to happen.
#[derive(Debug)]
pub(super) struct Queue<E> {
    now: Duration,
    planned: u64,
    heap: BinaryHeap<Reverse<Due<E>>>,
}

#[derive(Debug)]
struct Due<E> {
    at: Duration,
    number: u64,
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> Queue<E> {
    pub(super) fn new() -> Self {
        Self {
            now: Duration::ZERO,
            planned: 0,
            heap: BinaryHeap::new(),
        }
    }

    /// Time since the run began.
    pub(super) fn elapsed(&self) -> Duration {
        self.now
    }

    /// What both clocks say.
    pub(super) fn now(&self) -> Now {
        Now {
            monotonic: Monotonic(self.now),
            wall: Timestamp(WALL_START + self.now.as_millis() as i64),
        }
    }

    /// Plans `event` for `delay` from now.
    pub(super) fn plan(&mut self, delay: Duration, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Due {
            at: self.now + delay,
            number: self.planned,
            event,
        }));
    }

    /// The next event that is due before `until`; otherwise time goes on to `until`.
    pub(super) fn next(&mut self, until: Duration) -> Option<E> {
        if self.heap.peek().is_none_or(|due| due.0.at > until) {
            self.now = self.now.max(until);
            return None;
        }
        let Reverse(due) = self.heap.pop()?;
        self.now = self.now.max(due.at);
        Some(due.event)
    }

    /// Puts off, by what `by` says of each, some of what is planned; the order among the rest stays.
    pub(super) fn put_off(&mut self, mut by: impl FnMut(&E) -> Duration) {
        let mut planned = std::mem::take(&mut self.heap).into_vec();
        planned.sort_by_key(|due| due.0.number);
        for due in &mut planned {
            due.0.at += by(&due.0.event);
        }
        self.heap = planned.into();
    }
}

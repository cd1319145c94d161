//! The events of late, bounded.
//! Law: what is pushed again is passed over, and what is dropped is dropped from the beginning, so that a reader is either
//! told every event after the one it knows, or told that some are gone.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Event, EventFilter, EventId};
use crate::snapshot::{self, SnapshotError};

/// The events of late. A clone costs a pointer an event.
#[derive(Clone, Debug)]
pub struct History {
    events: VecDeque<(Arc<Event>, usize)>,
    bytes: usize,
    /// Events up to this one are gone.
    floor: EventId,
    /// The last event ever pushed.
    end: EventId,
    /// How many events are kept.
    max_events: usize,
    /// How many bytes of JSON they may be.
    max_bytes: usize,
}

/// The events asked for are not all at hand any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// Events up to this one are gone.
    pub floor: EventId,
}

/// The first line of an encoded history.
#[derive(Serialize, Deserialize)]
struct Head {
    floor: EventId,
    end: EventId,
}

impl History {
    /// Holds nothing yet, and never more than so much.
    pub fn new(max_events: usize, max_bytes: usize) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            floor: EventId(0),
            end: EventId(0),
            max_events,
            max_bytes,
        }
    }

    /// Takes events in the order of their ids; those it knows already are passed over.
    pub fn push(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            if event.id <= self.end {
                continue;
            }
            self.end = event.id;
            let bytes = line(&event).len();
            self.keep(Arc::new(event), bytes);
        }
    }

    fn keep(&mut self, event: Arc<Event>, bytes: usize) {
        self.bytes += bytes;
        self.events.push_back((event, bytes));
        while self.events.len() > self.max_events || self.bytes > self.max_bytes {
            let Some((dropped, bytes)) = self.events.pop_front() else {
                break;
            };
            self.bytes -= bytes;
            self.floor = dropped.id;
        }
    }

    /// The events after one, oldest first.
    ///
    /// # Errors
    /// If some of them are gone. After [`Overrun::floor`] none is.
    pub fn after(
        &self,
        id: EventId,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, Overrun> {
        if id < self.floor {
            return Err(Overrun { floor: self.floor });
        }
        let begin = self.events.partition_point(|(event, _)| event.id <= id);
        Ok(self.events.range(begin..).map(|(event, _)| event))
    }

    /// All that is at hand, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.events.iter().map(|(event, _)| event)
    }

    /// Up to `most` wanted events after one, and the last event that was looked at.
    ///
    /// # Errors
    /// As [`History::after`].
    pub fn read(
        &self,
        id: EventId,
        filter: &EventFilter,
        most: usize,
    ) -> Result<(Vec<Arc<Event>>, EventId), Overrun> {
        let mut wanted = Vec::new();
        let mut seen = id;
        for event in self.after(id)? {
            if wanted.len() == most {
                break;
            }
            seen = event.id;
            if filter.matches(event) {
                wanted.push(Arc::clone(event));
            }
        }
        Ok((wanted, seen))
    }

    /// The last event ever pushed, 0 before the first.
    pub fn end(&self) -> EventId {
        self.end
    }

    /// Events up to this one are gone, 0 if none is.
    pub fn floor(&self) -> EventId {
        self.floor
    }

    /// How many events are at hand.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The bytes that follow the image in a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = line(&Head {
            floor: self.floor,
            end: self.end,
        });
        for (event, _) in &self.events {
            text.extend(line(event.as_ref()));
        }
        snapshot::seal_history(self.end.offset(), &text)
    }

    /// Reads what [`History::encode`] wrote, and keeps of it what the bounds of this build allow. No bytes are no events.
    ///
    /// # Errors
    /// If the bytes are damaged, or a newer version wrote them.
    pub fn decode(
        bytes: &[u8],
        max_events: usize,
        max_bytes: usize,
    ) -> Result<Self, SnapshotError> {
        let mut history = Self::new(max_events, max_bytes);
        if bytes.is_empty() {
            return Ok(history);
        }
        let text = snapshot::open_history(bytes)?;
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let wrong = |error: serde_json::Error| SnapshotError::NotUnderstood(error.to_string());
        let head: Head = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(wrong)?;
        history.floor = head.floor;
        for line in lines {
            // A newer build may know more kinds; whatever else could be wrong the checksum has excluded.
            let Ok(event) = serde_json::from_slice(line) else {
                continue;
            };
            history.keep(Arc::new(event), line.len() + 1);
        }
        history.end = head.end;
        Ok(history)
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("events hold nothing JSON cannot say");
    bytes.push(b'\n');
    bytes
}

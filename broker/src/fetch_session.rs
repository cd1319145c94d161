//! Fetch sessions (KIP-227): a client that fetches the same partitions again and again names them once, and is answered
//! only about those that changed.
//! Law: pure bookkeeping. A session remembers what was asked and what was told; nobody here reads a log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{Monotonic, PartitionIndex, TopicId};
use parking_lot::Mutex;

/// The epoch of a request that wants no session, or the end of the one it names.
const FINAL_EPOCH: i32 = -1;

/// The epoch of a request that wants a new session.
const INITIAL_EPOCH: i32 = 0;

/// The session id of an answer without a session.
const NO_SESSION: i32 = 0;

/// A session that was not used for this long may be evicted by anyone (`min.incremental.fetch.session.eviction.ms`).
const EVICTION_AGE: Duration = Duration::from_secs(120);

/// A request for more partitions than this gets no session, so that sessions cannot eat the memory.
const MAX_PARTITIONS: usize = 100_000;

/// How a request names a topic: by name up to version 12, by id since.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicKey {
    Name(Arc<str>),
    Id(TopicId),
}

/// A partition as a request names it.
pub type PartitionKey = (TopicKey, PartitionIndex);

/// What a request wants from one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: PartitionKey,
    /// −1 when the client does not say.
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    /// −1 when the client does not say.
    pub last_fetched_epoch: i32,
    /// The follower's log start; −1 from consumers.
    pub log_start_offset: i64,
    pub max_bytes: i32,
}

/// What decides whether a partition is worth telling about again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub last_stable_offset: i64,
}

/// What an answer would say of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub told: Told,
    /// There are records, an error, or a divergence: it must be said.
    pub must_tell: bool,
    /// There are records: the partition had its turn and goes to the end of the order.
    pub has_records: bool,
}

/// The part of a request that is about its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionAsk {
    pub id: i32,
    pub epoch: i32,
    /// Topics are named by id (version 13 and later).
    pub by_id: bool,
    /// A follower; it may take the slot of a consumer.
    pub privileged: bool,
}

/// What to fetch for a request, in order, and what kind of answer to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPlan {
    pub wanted: Vec<Wanted>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sessionless,
    /// Everything is told, and a session begins.
    First(i32),
    /// Only what changed is told.
    Incremental(i32),
}

impl FetchPlan {
    /// Whether who had its turn goes to the end: one request after the other begins with another partition.
    pub fn is_in_turns(&self) -> bool {
        matches!(self.kind, Kind::Incremental(_))
    }

    /// The session id to answer with.
    pub fn session_id(&self) -> i32 {
        match self.kind {
            Kind::Sessionless => NO_SESSION,
            Kind::First(id) | Kind::Incremental(id) => id,
        }
    }
}

/// All sessions of a broker.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<i32, Session>,
    evictions: u64,
}

#[derive(Debug)]
struct Session {
    /// The epoch its next request must carry.
    next_epoch: i32,
    by_id: bool,
    privileged: bool,
    last_used: Monotonic,
    partitions: HashMap<PartitionKey, Remembered>,
    /// Whose turn it is: places in ascending order.
    order: BTreeMap<u64, PartitionKey>,
    next_place: u64,
}

#[derive(Debug)]
struct Remembered {
    wanted: Wanted,
    place: u64,
    told: Option<Told>,
}

impl FetchSessions {
    /// Room for `slots` sessions (`max.incremental.fetch.session.cache.slots`).
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            state: Mutex::default(),
        }
    }

    /// How many sessions there are, and how many were evicted so far.
    pub fn counts(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.sessions.len(), state.evictions)
    }

    /// Decides what a request fetches. `random` names a new session, should there be one.
    pub fn begin(
        &self,
        ask: SessionAsk,
        named: Vec<Wanted>,
        forgotten: &[PartitionKey],
        now: Monotonic,
        random: u64,
    ) -> Result<FetchPlan, ErrorCode> {
        let mut state = self.state.lock();
        match ask.epoch {
            FINAL_EPOCH => {
                // A session is ended by its id; the request itself is answered in full.
                state.sessions.remove(&ask.id);
                Ok(FetchPlan {
                    wanted: named,
                    kind: Kind::Sessionless,
                })
            }
            INITIAL_EPOCH => {
                state.sessions.remove(&ask.id);
                let kind = match state.make_room(self.slots, ask.privileged, now) {
                    true if !named.is_empty() && named.len() <= MAX_PARTITIONS => {
                        Kind::First(state.open(ask, &named, now, random))
                    }
                    _ => Kind::Sessionless,
                };
                Ok(FetchPlan {
                    wanted: named,
                    kind,
                })
            }
            _ => state.resume(ask, named, forgotten, now),
        }
    }

    /// Settles an answer: returns, for each of `findings` (in the order of the plan), whether it is to be told. A partition
    /// that had its turn goes to the end of the order.
    pub fn finish(&self, plan: &FetchPlan, findings: &[Finding]) -> Vec<bool> {
        assert_eq!(
            plan.wanted.len(),
            findings.len(),
            "one finding per partition"
        );
        let (id, all) = match plan.kind {
            Kind::Sessionless => return vec![true; findings.len()],
            Kind::First(id) => (id, true),
            Kind::Incremental(id) => (id, false),
        };
        let mut state = self.state.lock();
        // Evicted meanwhile: tell everything; the next request learns that the session is gone.
        let Some(session) = state.sessions.get_mut(&id) else {
            return vec![true; findings.len()];
        };
        plan.wanted
            .iter()
            .zip(findings)
            .map(|(wanted, finding)| session.settle(&wanted.key, finding) || all)
            .collect()
    }
}

impl State {
    /// Whether there is a free slot, after evicting whom the rules let evict.
    fn make_room(&mut self, slots: usize, privileged: bool, now: Monotonic) -> bool {
        if self.sessions.len() < slots {
            return true;
        }
        let oldest = |of: &dyn Fn(&Session) -> bool| {
            self.sessions
                .iter()
                .filter(|(_, session)| of(session))
                .min_by_key(|(_, session)| session.last_used)
                .map(|(id, _)| *id)
        };
        let victim = oldest(&|session| now.since(session.last_used) > EVICTION_AGE).or_else(|| {
            privileged
                .then(|| oldest(&|session| !session.privileged))
                .flatten()
        });
        match victim {
            Some(id) => {
                self.sessions.remove(&id);
                self.evictions += 1;
                true
            }
            None => false,
        }
    }

    fn open(&mut self, ask: SessionAsk, named: &[Wanted], now: Monotonic, random: u64) -> i32 {
        let mut id = ((random % (i32::MAX as u64 - 1)) + 1) as i32;
        while self.sessions.contains_key(&id) {
            id = id.checked_add(1).unwrap_or(1);
        }
        let mut session = Session {
            next_epoch: INITIAL_EPOCH + 1,
            by_id: ask.by_id,
            privileged: ask.privileged,
            last_used: now,
            partitions: HashMap::with_capacity(named.len()),
            order: BTreeMap::new(),
            next_place: 0,
        };
        for wanted in named {
            session.want(wanted.clone());
        }
        self.sessions.insert(id, session);
        id
    }

    fn resume(
        &mut self,
        ask: SessionAsk,
        named: Vec<Wanted>,
        forgotten: &[PartitionKey],
        now: Monotonic,
    ) -> Result<FetchPlan, ErrorCode> {
        let session = self
            .sessions
            .get_mut(&ask.id)
            .ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.next_epoch != ask.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != ask.by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        session.next_epoch = ask.epoch.checked_add(1).unwrap_or(INITIAL_EPOCH + 1);
        session.last_used = now;
        for key in forgotten {
            session.forget(key);
        }
        for wanted in named {
            session.want(wanted);
        }
        if session.partitions.is_empty() || session.partitions.len() > MAX_PARTITIONS {
            let wanted = session.in_order();
            self.sessions.remove(&ask.id);
            return Ok(FetchPlan {
                wanted,
                kind: Kind::Sessionless,
            });
        }
        Ok(FetchPlan {
            wanted: session.in_order(),
            kind: Kind::Incremental(ask.id),
        })
    }
}

impl Session {
    fn want(&mut self, wanted: Wanted) {
        if let Some(known) = self.partitions.get_mut(&wanted.key) {
            known.wanted = wanted;
            return;
        }
        let place = self.take_place();
        self.order.insert(place, wanted.key.clone());
        let key = wanted.key.clone();
        self.partitions.insert(
            key,
            Remembered {
                wanted,
                place,
                told: None,
            },
        );
    }

    fn forget(&mut self, key: &PartitionKey) {
        if let Some(gone) = self.partitions.remove(key) {
            self.order.remove(&gone.place);
        }
    }

    fn in_order(&self) -> Vec<Wanted> {
        self.order
            .values()
            .filter_map(|key| self.partitions.get(key))
            .map(|known| known.wanted.clone())
            .collect()
    }

    fn settle(&mut self, key: &PartitionKey, finding: &Finding) -> bool {
        let place = self.next_place;
        let Some(known) = self.partitions.get_mut(key) else {
            return true;
        };
        let news = finding.must_tell || known.told != Some(finding.told);
        known.told = Some(finding.told);
        if finding.has_records {
            self.order.remove(&known.place);
            known.place = place;
            self.order.insert(place, key.clone());
            self.next_place += 1;
        }
        news
    }

    fn take_place(&mut self) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        place
    }
}

#[cfg(test)]
mod tests;

//! The stores of the quorum: openraft's own suite, and what is left after the power fails.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use kuorum_metadata::{MetadataRecord, RecordBatch};
use kuorum_protocol::{ControllerEpoch, Timestamp, TopicId};
use kuorum_storage::{Dir, DirFile, SimDir};
use kuorum_transport::Clock;
use openraft::storage::{LogFlushed, RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{
    CommittedLeaderId, EntryPayload, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder,
};

use uuid::Uuid;

use super::Threads;
use super::failure::Failure;
use super::log_store::LogStore;
use super::state_machine::StateMachine;
use super::types::{Entry, LogId, StorageError, TypeConfig, Vote};

fn id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 1), index)
}

fn blank(term: u64, index: u64) -> Entry {
    Entry {
        log_id: id(term, index),
        payload: EntryPayload::Blank,
    }
}

/// A decision of some size, so that entries differ.
fn decision(term: u64, index: u64, size: usize) -> Entry {
    let batch = RecordBatch {
        controller_epoch: ControllerEpoch(1),
        decided_at: Timestamp::NONE,
        records: vec![MetadataRecord::FeatureLevel {
            name: "x".repeat(size),
            level: 1,
        }],
    };
    Entry {
        log_id: id(term, index),
        payload: EntryPayload::Normal(Arc::new(batch)),
    }
}

fn open<D: Dir>(dir: &D) -> LogStore<D> {
    LogStore::open(dir.clone(), Clock::seeded(1), Failure::new()).expect("the store opens")
}

/// openraft's suite appends entries with gaps, and entries that were purged, which our log refuses by law: here blank
/// entries fill the gaps and what was purged is left out.
struct Filled<D: Dir>(LogStore<D>);

impl<D: Dir> RaftLogReader<TypeConfig> for Filled<D> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        self.0.try_get_log_entries(range).await
    }
}

impl<D: Dir> RaftLogStorage<TypeConfig> for Filled<D> {
    type LogReader = LogStore<D>;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        self.0.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> LogStore<D> {
        self.0.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.0.save_vote(vote).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        self.0.read_vote().await
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (start, end) = self.0.bounds();
        let entries: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| entry.log_id.index >= start)
            .collect();
        let filling = entries
            .first()
            .map_or(end..end, |first| end..first.log_id.index);
        let blanks = filling.map(|index| Entry {
            log_id: LogId {
                index,
                ..entries[0].log_id
            },
            payload: EntryPayload::Blank,
        });
        let all: Vec<Entry> = blanks.chain(entries.iter().cloned()).collect();
        self.0.append(all, callback).await
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.0.truncate(log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.0.purge(log_id).await
    }
}

struct Simulated;

impl StoreBuilder<TypeConfig, Filled<SimDir>, StateMachine<SimDir>> for Simulated {
    async fn build(&self) -> Result<((), Filled<SimDir>, StateMachine<SimDir>), StorageError> {
        let dir = SimDir::new(7);
        dir.create().expect("the simulated disk has room");
        let machine =
            StateMachine::open(dir.clone(), Failure::new(), 100).expect("the machine opens");
        Ok(((), Filled(open(&dir)), machine))
    }
}

#[test]
fn the_stores_pass_the_suite_of_openraft() {
    Suite::test_all(Simulated).expect("the suite passes");
}

const SEGMENT: &str = "00000000000000000000.log";

fn fresh(seed: u64) -> SimDir {
    let dir = SimDir::new(seed);
    dir.create().expect("the simulated disk has room");
    dir.sync_parent().expect("the simulated disk syncs");
    dir
}

async fn all(store: &mut LogStore<SimDir>) -> Vec<Entry> {
    store
        .try_get_log_entries(..)
        .await
        .expect("the log can be read")
}

#[tokio::test]
async fn what_was_acknowledged_survives_the_power_failing() {
    for seed in 0..40 {
        let dir = fresh(seed);
        let mut store = open(&dir);
        store.save_vote(&Vote::new(3, 1)).await.unwrap();
        let acknowledged: Vec<Entry> = (0..20)
            .map(|index| decision(1, index, (seed * 37 + index * 91) as usize % 5000))
            .collect();
        for pair in acknowledged.chunks(2) {
            store.blocking_append(pair.to_vec()).await.unwrap();
        }
        store.truncate(id(1, 15)).await.unwrap();
        store.blocking_append([decision(2, 15, 10)]).await.unwrap();
        store.save_vote(&Vote::new_committed(4, 2)).await.unwrap();
        store.purge(id(1, 3)).await.unwrap();
        drop(store);
        dir.crash();

        let mut store = open(&dir);
        assert_eq!(
            store.read_vote().await.unwrap(),
            Some(Vote::new_committed(4, 2)),
            "seed {seed}"
        );
        let state = store.get_log_state().await.unwrap();
        assert_eq!(state.last_purged_log_id, Some(id(1, 3)), "seed {seed}");
        assert_eq!(state.last_log_id, Some(id(2, 15)), "seed {seed}");
        let mut expected = acknowledged[4..15].to_vec();
        expected.push(decision(2, 15, 10));
        assert_eq!(all(&mut store).await, expected, "seed {seed}");
    }
}

#[tokio::test]
async fn a_purge_beyond_the_end_begins_the_log_anew() {
    let dir = fresh(3);
    let mut store = open(&dir);
    store.save_vote(&Vote::new(1, 1)).await.unwrap();
    store
        .blocking_append([blank(1, 0), blank(1, 1)])
        .await
        .unwrap();
    // A snapshot was installed that holds everything up to 9.
    store.purge(id(2, 9)).await.unwrap();
    store.blocking_append([blank(2, 10)]).await.unwrap();
    drop(store);
    dir.crash();
    let mut store = open(&dir);
    assert_eq!(all(&mut store).await, [blank(2, 10)]);
    assert_eq!(store.bounds(), (10, 11));
}

#[tokio::test]
async fn the_power_may_fail_anywhere_in_a_purge_beyond_the_end() {
    for seed in 0..4 {
        for change in 0.. {
            let dir = fresh(seed);
            let mut store = open(&dir);
            store.save_vote(&Vote::new(1, 1)).await.unwrap();
            store
                .blocking_append([blank(1, 0), blank(1, 1)])
                .await
                .unwrap();
            dir.cut_power_after(change);
            let purged = store.purge(id(2, 9)).await;
            drop(store);
            dir.crash();

            let what = format!("seed {seed}, power cut at change {change}");
            let mut store = open(&dir);
            let state = store.get_log_state().await.unwrap();
            match state.last_purged_log_id {
                Some(upto) => {
                    assert_eq!((upto, state.last_log_id), (id(2, 9), Some(upto)), "{what}");
                    assert_eq!(store.bounds(), (10, 10), "{what}");
                }
                None => {
                    assert!(purged.is_err(), "{what}");
                    assert_eq!(store.bounds(), (0, 2), "{what}");
                }
            }
            if purged.is_ok() {
                break;
            }
        }
    }
}

/// A lagging controller gets a snapshot while its log lies in several files, and is killed at any moment of that: it must
/// not take what is left for damage, because there is no way back from that.
#[tokio::test]
async fn a_purge_beyond_the_end_may_be_cut_short_between_two_files() {
    let sized = |dir: &SimDir| {
        let clock = Clock::seeded(1);
        LogStore::open_sized(dir.clone(), clock, Failure::new(), Threads::Own, 20_000)
    };
    for killed in [true, false] {
        for change in 0.. {
            let dir = fresh(change + 1);
            let mut store = sized(&dir).unwrap();
            store.save_vote(&Vote::new(1, 1)).await.unwrap();
            for index in 0..10 {
                let entry = decision(1, index, 5_000);
                store.blocking_append([entry]).await.unwrap();
            }
            let log = dir.subdirectory("__cluster_metadata-0");
            let files = log.list().unwrap().into_iter();
            let files = files.filter(|entry| entry.name.ends_with(".log"));
            assert!(files.count() > 2, "several files");
            store.mark_durable_end().await.unwrap();
            dir.cut_power_after(change);
            let purged = store.purge(id(2, 99)).await;
            let whole = !dir.is_without_power();
            drop(store);
            if killed {
                dir.kill();
            } else {
                dir.crash();
            }
            let what = format!("killed: {killed}, cut short at change {change}");
            let mut store = sized(&dir).unwrap_or_else(|error| panic!("{what}: {error}"));
            let state = store.get_log_state().await.unwrap();
            match state.last_purged_log_id {
                Some(upto) => {
                    assert_eq!((upto, state.last_log_id), (id(2, 99), Some(upto)), "{what}");
                    assert_eq!(store.bounds(), (100, 100), "{what}");
                }
                None => assert_eq!(store.bounds(), (0, 10), "{what}"),
            }
            store
                .blocking_append([blank(2, store.bounds().1)])
                .await
                .unwrap();
            if whole {
                purged.unwrap();
                break;
            }
        }
    }
}

#[tokio::test]
async fn entries_that_were_durable_are_missed() {
    // What becomes of the log while the process is down, and whether it may run again.
    type Row = (&'static str, fn(&SimDir), bool);
    let rows: [Row; 4] = [
        ("nothing", |_| (), true),
        (
            "its last bytes are gone",
            |log| {
                let file = log.open(SEGMENT).unwrap();
                file.set_len(file.len().unwrap() - 1).unwrap();
            },
            false,
        ),
        (
            "its last byte is another",
            |log| {
                let file = log.open(SEGMENT).unwrap();
                let last = file.len().unwrap() - 1;
                let mut byte = [0];
                file.read_at(&mut byte, last).unwrap();
                file.write_at(&[byte[0] ^ 1], last).unwrap();
            },
            false,
        ),
        (
            "all of it is gone",
            |log| {
                log.remove(SEGMENT).unwrap();
            },
            false,
        ),
    ];
    for (what, damage, opens) in rows {
        let dir = fresh(7);
        let mut store = open(&dir);
        store.save_vote(&Vote::new(1, 1)).await.unwrap();
        for index in 0..3 {
            store.blocking_append([blank(1, index)]).await.unwrap();
        }
        store.mark_durable_end().await.unwrap();
        drop(store);
        dir.crash();
        damage(&dir.subdirectory("__cluster_metadata-0"));
        let mut reasons = Vec::new();
        for start in 1..=2 {
            let again = LogStore::open(dir.clone(), Clock::seeded(1), Failure::new());
            assert_eq!(again.is_ok(), opens, "{what}, start {start}");
            reasons.extend(again.err().map(|error| error.to_string()));
        }
        assert!(
            reasons.iter().all(|reason| *reason == reasons[0]),
            "{what}: {reasons:#?}"
        );
    }
}

#[tokio::test]
async fn entries_that_were_cut_on_purpose_are_not_missed() {
    let dir = fresh(8);
    let mut store = open(&dir);
    store.save_vote(&Vote::new(1, 1)).await.unwrap();
    for index in 0..5 {
        store.blocking_append([blank(1, index)]).await.unwrap();
    }
    store.mark_durable_end().await.unwrap();
    store.truncate(id(1, 2)).await.unwrap();
    drop(store);
    dir.crash();
    let store = open(&dir);
    assert_eq!(store.bounds(), (0, 2));
}

#[tokio::test]
async fn who_has_entries_but_no_vote_does_not_run() {
    for (entries, opens) in [(1, true), (2, false)] {
        let dir = fresh(6);
        let mut store = open(&dir);
        for index in 0..entries {
            store.blocking_append([blank(1, index)]).await.unwrap();
        }
        drop(store);
        dir.crash();
        let again = LogStore::open(dir, Clock::seeded(1), Failure::new());
        assert_eq!(again.is_ok(), opens, "{entries} entries");
    }
}

#[tokio::test]
async fn an_entry_never_leaves_a_gap() {
    let dir = fresh(4);
    let mut store = open(&dir);
    store.blocking_append([blank(1, 0)]).await.unwrap();
    assert!(store.blocking_append([blank(1, 2)]).await.is_err());
}

#[tokio::test]
async fn one_append_carries_a_bounded_number_of_bytes() {
    let dir = fresh(5);
    let mut store = open(&dir);
    store.save_vote(&Vote::new(1, 1)).await.unwrap();
    let entries: Vec<Entry> = (0..60).map(|index| decision(1, index, 20_000)).collect();
    store.blocking_append(entries.clone()).await.unwrap();
    store
        .blocking_append([decision(1, 60, 900_000)])
        .await
        .unwrap();
    for reopened in [false, true] {
        if reopened {
            drop(store);
            store = open(&dir);
        }
        let some = store.limited_get_log_entries(0, 61).await.unwrap();
        assert!(
            (5..20).contains(&some.len()),
            "{} entries, reopened: {reopened}",
            some.len()
        );
        assert_eq!(some[..], entries[..some.len()]);
        let large = store.limited_get_log_entries(60, 61).await.unwrap();
        assert_eq!(large.len(), 1, "an entry that is too large goes alone");
    }
}

#[tokio::test]
async fn a_failed_sync_is_reported_and_nothing_is_acknowledged_after_it() {
    let dir = fresh(6);
    let failure = Failure::new();
    let mut store = LogStore::open(dir.clone(), Clock::seeded(1), failure.clone()).unwrap();
    store.blocking_append([blank(1, 0)]).await.unwrap();
    dir.fail_next_sync();
    assert!(store.blocking_append([blank(1, 1)]).await.is_err());
    assert!(failure.reported().await.what.contains("metadata log"));
    assert!(
        store.blocking_append([blank(1, 2)]).await.is_err(),
        "never retried"
    );
}

#[tokio::test]
async fn a_snapshot_survives_and_is_replaced_whole() {
    let dir = fresh(8);
    let mut machine = StateMachine::open(dir.clone(), Failure::new(), 100).unwrap();
    let office = RecordBatch {
        controller_epoch: ControllerEpoch(1),
        decided_at: Timestamp::NONE,
        records: vec![MetadataRecord::ControllerEpoch {
            epoch: ControllerEpoch(1),
            controller_id: 1,
        }],
    };
    let taken = Entry {
        log_id: id(1, 0),
        payload: EntryPayload::Normal(Arc::new(office)),
    };
    let outcomes = machine.apply([taken, decision(1, 1, 10)]).await.unwrap();
    assert!(outcomes.iter().all(|outcome| !outcome.skipped));
    machine
        .get_snapshot_builder()
        .await
        .build_snapshot()
        .await
        .unwrap();
    machine.apply([decision(1, 2, 20)]).await.unwrap();
    let digest_at_two = machine.published().image().digest();
    machine
        .get_snapshot_builder()
        .await
        .build_snapshot()
        .await
        .unwrap();
    drop(machine);
    dir.crash();
    let mut machine = StateMachine::open(dir, Failure::new(), 100).unwrap();
    assert_eq!(machine.applied_state().await.unwrap().0, Some(id(1, 2)));
    assert_eq!(machine.published().image().digest(), digest_at_two);
    assert_eq!(machine.published().applied_end(), 3);
    // What comes from a controller that has left office changes nothing.
    let stale = RecordBatch {
        controller_epoch: ControllerEpoch(0),
        decided_at: Timestamp::NONE,
        records: Vec::new(),
    };
    let stale = Entry {
        log_id: id(2, 3),
        payload: EntryPayload::Normal(Arc::new(stale)),
    };
    assert!(machine.apply([stale]).await.unwrap()[0].skipped);
    assert_eq!(machine.published().image().digest(), digest_at_two);
}

/// A topic that is created in the entry at `index`.
fn topic(index: u64) -> Entry {
    let batch = RecordBatch {
        controller_epoch: ControllerEpoch(1),
        decided_at: Timestamp(1_000 + index as i64),
        records: vec![MetadataRecord::Topic {
            name: format!("topic-{index}"),
            topic_id: TopicId(Uuid::from_u128(u128::from(index))),
        }],
    };
    Entry {
        log_id: id(1, index),
        payload: EntryPayload::Normal(Arc::new(batch)),
    }
}

fn in_office() -> Entry {
    let batch = RecordBatch {
        controller_epoch: ControllerEpoch(1),
        decided_at: Timestamp(1_000),
        records: vec![MetadataRecord::ControllerEpoch {
            epoch: ControllerEpoch(1),
            controller_id: 1,
        }],
    };
    Entry {
        log_id: id(1, 0),
        payload: EntryPayload::Normal(Arc::new(batch)),
    }
}

/// `id at` of each event.
fn told<D: Dir>(machine: &StateMachine<D>) -> Vec<String> {
    machine.published().with_history(|history| {
        let events = history.events();
        events
            .map(|event| format!("{}@{}", event.id.offset(), event.at.0))
            .collect()
    })
}

#[tokio::test]
async fn the_history_has_neither_gaps_nor_repeats_after_a_restart_or_a_snapshot_from_elsewhere() {
    let open = |dir: &SimDir| StateMachine::open(dir.clone(), Failure::new(), 4).unwrap();
    let dir = fresh(9);
    let mut machine = open(&dir);
    machine
        .apply([in_office(), topic(1), topic(2)])
        .await
        .unwrap();
    let mut builder = machine.get_snapshot_builder().await;
    machine.apply([topic(3)]).await.unwrap();
    assert_eq!(told(&machine), ["0@1000", "1@1001", "2@1002", "3@1003"]);
    // Of the moment at which it was begun, whatever is applied meanwhile.
    let snapshot = builder.build_snapshot().await.unwrap();
    drop(machine);
    dir.crash();

    // The log is applied again from the snapshot on.
    let mut machine = open(&dir);
    assert_eq!(told(&machine), ["0@1000", "1@1001", "2@1002"]);
    machine.apply([topic(3)]).await.unwrap();
    assert_eq!(told(&machine), ["0@1000", "1@1001", "2@1002", "3@1003"]);
    machine.apply([topic(4)]).await.unwrap();
    assert_eq!(told(&machine), ["1@1001", "2@1002", "3@1003", "4@1004"]);

    // One that was away for long gets the snapshot, and with it what happened meanwhile.
    let other_dir = fresh(10);
    let mut other = open(&other_dir);
    let mut receiving = other.begin_receiving_snapshot().await.unwrap();
    *receiving = *snapshot.snapshot;
    other
        .install_snapshot(&snapshot.meta, receiving)
        .await
        .unwrap();
    other.apply([topic(3), topic(4)]).await.unwrap();
    assert_eq!(told(&other), told(&machine));
    drop(other);
    other_dir.crash();
    let other = open(&other_dir);
    assert_eq!(told(&other), ["0@1000", "1@1001", "2@1002"]);
}

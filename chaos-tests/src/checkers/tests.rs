//! For each property that no single rule, switched off, is sure to break first: histories that it must refuse, and alone; and
//! their likes that all accept. A property nobody can break proves nothing.

use std::sync::Arc;

use kuorum_metadata::image::PartitionImage;
use kuorum_metadata::record::PartitionRecord;
use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

use super::*;

/// What happened to one partition, which brokers 1 and 2 have, and how it stands in the end.
struct History {
    events: Vec<Event>,
    decided: PartitionImage,
    replicas: Vec<ReplicaState>,
    strays: Vec<BrokerId>,
}

impl History {
    /// Broker 1 leads in epoch 5; both have 10, 11 and 12, and all of it is visible.
    fn sound() -> Self {
        let both = vec![BrokerId(1), BrokerId(2)];
        let record = PartitionRecord {
            leader_epoch: LeaderEpoch(5),
            ..PartitionRecord::of(TopicId::default(), 0, both.clone())
        };
        let decided = PartitionImage::from(&record);
        let mut history = Self {
            events: Vec::new(),
            replicas: both.into_iter().map(replica).collect(),
            strays: Vec::new(),
            decided,
        };
        history.replicas[0].leading = Some(Leading {
            leader_epoch: LeaderEpoch(5),
            maximal: history.decided.isr.iter().copied().collect(),
            pending: false,
            isr: history.decided.isr.iter().copied().collect(),
            partition_epoch: history.decided.partition_epoch,
        });
        history.all_have(&[(5, 10), (5, 11), (5, 12)]);
        history
    }

    fn after(events: impl IntoIterator<Item = Event>) -> Self {
        Self {
            events: events.into_iter().collect(),
            ..Self::sound()
        }
    }

    /// Both logs hold these (epoch, value).
    fn all_have(&mut self, records: &[(i32, u64)]) {
        for replica in &mut self.replicas {
            let end = Offset(records.len() as i64);
            (replica.log_end, replica.durable_end, replica.high_watermark) = (end, end, end);
            (replica.records, replica.epochs) = (Vec::new(), Vec::new());
            for ((epoch, value), offset) in records.iter().zip(0..) {
                let (epoch, value, offset) = (LeaderEpoch(*epoch), *value, Offset(offset));
                if replica.epochs.last().is_none_or(|last| last.0 < epoch) {
                    replica.epochs.push((epoch, offset));
                }
                replica.records.push((offset, Logged { epoch, value }));
            }
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// An unclean election kept `keeps` of it; since then broker 1 leads in epoch 6, and the logs hold these.
    fn cut(self, keeps: i64, records: &[(i32, u64)]) -> Self {
        self.with(|history| {
            history.events.push(Event::UncleanElection {
                partition: 0,
                leader: BrokerId(1),
                leader_epoch: LeaderEpoch(6),
                keeps: Offset(keeps),
                gives_up: Vec::new(),
                allowed: true,
            });
            history.decided.leader_epoch = LeaderEpoch(6);
            let leading = history.replicas[0].leading.as_mut();
            leading.expect("broker 1 leads").leader_epoch = LeaderEpoch(6);
            history.all_have(records);
        })
    }

    fn then(self, events: impl IntoIterator<Item = Event>) -> Self {
        self.with(|history| history.events.extend(events))
    }

    /// Whom it is shown to and who refuses it, each asked by itself.
    fn refused_by(&self) -> Vec<&'static str> {
        let committed = Ledger::default();
        let state = State {
            partitions: vec![PartitionState {
                number: 0,
                decided: Arc::new(self.decided.clone()),
                min_isr: 1,
                deleted_below: Offset(0),
                committed: &committed,
                replicas: self.replicas.clone(),
                strays: self.strays.clone(),
                salvaged: Vec::new(),
            }],
        };
        let all = Checkers::default().all.into_iter();
        let refuses = |checker: Box<dyn Checker>| {
            let mut alone = Checkers {
                all: vec![checker],
                ..Checkers::default()
            };
            for event in &self.events {
                alone.event(event);
            }
            alone.state(&state);
            alone.rest(&state);
            alone.found().map(|violation| violation.checker)
        };
        all.filter_map(refuses).collect()
    }
}

fn replica(broker: BrokerId) -> ReplicaState {
    ReplicaState {
        broker,
        alive: true,
        lost: false,
        log_start: Offset(0),
        log_end: Offset(0),
        durable_end: Offset(0),
        high_watermark: Offset(0),
        epochs: Vec::new(),
        leading: None,
        records: Vec::new(),
    }
}

/// All of it becomes visible, where two must have it.
fn visible(committed_isr: usize, holders: usize) -> Event {
    Event::HighWatermark {
        partition: 0,
        broker: BrokerId(1),
        leader_epoch: LeaderEpoch(5),
        from: Offset(0),
        to: Offset(3),
        committed_isr,
        min_isr: 2,
        holders,
    }
}

fn acked(producer: Option<u64>, value: u64, offset: i64) -> Event {
    Event::Acked {
        partition: 0,
        broker: BrokerId(1),
        producer,
        value,
        offset: Offset(offset),
        all: true,
        appended_under: LeaderEpoch(5),
        led_under: Some(LeaderEpoch(5)),
    }
}

fn acked_when_it_led_in(now: Option<i32>) -> Event {
    let mut event = acked(None, 11, 1);
    if let Event::Acked { led_under, .. } = &mut event {
        *led_under = now.map(LeaderEpoch);
    }
    event
}

/// Asked and answered under this epoch; `consumer` reads everything in order and compares epochs.
fn read(consumer: Option<usize>, epoch: i32, value: u64, offset: i64) -> Event {
    Event::Read {
        partition: 0,
        broker: BrokerId(1),
        asked_under: LeaderEpoch(epoch),
        answered_under: LeaderEpoch(epoch),
        offset: Offset(offset),
        value,
        consumer,
    }
}

fn all_read(consumer: usize) -> [Event; 3] {
    [0, 1, 2].map(|offset| read(Some(consumer), 5, 10 + offset, offset as i64))
}

fn told(to: i64) -> Event {
    Event::CutTold {
        partition: 0,
        consumer: 0,
        to: Offset(to),
    }
}

fn refused(all: bool) -> Event {
    Event::SequenceRefused {
        partition: 0,
        client: 3,
        all,
        code: ErrorCode::OutOfOrderSequenceNumber,
    }
}

fn committed(value: u64, offset: i64) -> Event {
    let epoch = LeaderEpoch(5);
    Event::Committed {
        partition: 0,
        broker: BrokerId(1),
        leader_epoch: epoch,
        offset: Offset(offset),
        record: Logged { epoch, value },
    }
}

fn out_of_range(position: i64) -> Event {
    Event::OutOfRange {
        partition: 0,
        broker: BrokerId(1),
        position: Offset(position),
        log_start: Offset(0),
    }
}

fn latest(asked_under: i32, answered_under: i32) -> Event {
    Event::Latest {
        partition: 0,
        client: 0,
        asked_under: LeaderEpoch(asked_under),
        answered_under: LeaderEpoch(answered_under),
        offset: Offset(3),
    }
}

const ONE: Option<u64> = Some(1);
const LATER: [(i32, u64); 3] = [(5, 10), (6, 77), (6, 78)];

#[test]
fn what_each_property_refuses() {
    let sound = History::sound;
    let after = |events: &[Event]| History::after(events.iter().cloned());
    let rows: Vec<(&str, &str, History)> = vec![
        (
            "acked-is-durable",
            "another record where one was acknowledged",
            after(&[acked(None, 99, 1)]),
        ),
        (
            "acked-is-durable",
            "acknowledged and gone",
            after(&[acked(None, 13, 3)]),
        ),
        (
            "acked-is-durable",
            "one offset acknowledged for two",
            after(&[acked(None, 11, 1), acked(None, 99, 1)]),
        ),
        (
            "acked-is-durable",
            "an idempotent producer's record there twice",
            after(&[acked(ONE, 10, 0)]).with(|it| it.all_have(&[(5, 10), (5, 10)])),
        ),
        (
            "acked-is-durable",
            "in another order than sent",
            after(&[acked(ONE, 11, 0), acked(ONE, 10, 1)])
                .with(|it| it.all_have(&[(5, 11), (5, 10)])),
        ),
        (
            "log-matching",
            "another record on one of them",
            sound().with(|it| it.replicas[1].records[1].1.value = 99),
        ),
        (
            "log-matching",
            "a record less on one of them",
            sound().with(|it| {
                it.replicas[1].records.pop();
            }),
        ),
        (
            "log-matching",
            "another epoch below both high watermarks",
            sound().with(|it| it.replicas[1].epochs = vec![(LeaderEpoch(4), Offset(0))]),
        ),
        (
            "consistent-read",
            "two readers disagree",
            after(&[read(None, 5, 99, 1), read(None, 5, 11, 1)]),
        ),
        (
            "consistent-read",
            "a leader made another record visible before",
            after(&[committed(99, 1), committed(11, 1)]),
        ),
        (
            "consistent-read",
            "it was read, and is another one now",
            after(&[read(None, 5, 99, 1)]),
        ),
        (
            "consistent-read",
            "it was read, and the log ends before it",
            after(&[read(None, 5, 13, 3)]),
        ),
        (
            "consistent-read",
            "where a reader was there is nothing, it is said",
            after(&[out_of_range(3)]),
        ),
        (
            "readers-are-told",
            "another record at an offset it had read, without a word",
            History::after(all_read(0))
                .cut(1, &LATER)
                .then([read(Some(0), 6, 77, 1), read(Some(0), 6, 78, 2)]),
        ),
        (
            "readers-are-told",
            "told of less than was cut",
            History::after(all_read(0)).cut(1, &LATER).then([
                told(2),
                read(Some(0), 6, 77, 1),
                read(Some(0), 6, 78, 2),
            ]),
        ),
        (
            "readers-are-told",
            "it holds what was cut, and never asked again",
            History::after(all_read(0)).cut(1, &LATER[..2]),
        ),
        (
            "readers-are-told",
            "led past a record",
            after(&[read(Some(0), 5, 10, 0), read(Some(0), 5, 12, 2)]),
        ),
        (
            "sequences-are-kept",
            "a producer whose records were all acknowledged",
            after(&[refused(true)]),
        ),
        (
            "replication-quorum-superset",
            "the leader does not wait for one that may be elected",
            sound().with(|it| {
                let leading = it.replicas[0].leading.as_mut().expect("it leads");
                leading.maximal.remove(&BrokerId(2));
            }),
        ),
        (
            "replication-quorum-superset",
            "nor for one outside of the ISR that may be",
            sound().with(|it| {
                it.decided.elr = vec![BrokerId(3)];
            }),
        ),
        (
            "convergence",
            "one is out of sync",
            sound().with(|it| {
                it.decided.isr.pop();
            }),
        ),
        (
            "convergence",
            "one is down",
            sound().with(|it| it.replicas[1].alive = false),
        ),
        (
            "convergence",
            "one does not know that all is visible",
            sound().with(|it| it.replicas[1].high_watermark = Offset(2)),
        ),
        (
            "convergence",
            "a log where there is no replica",
            sound().with(|it| it.strays = vec![BrokerId(3)]),
        ),
        (
            "convergence",
            "two lead",
            sound().with(|it| it.replicas[1].leading = it.replicas[0].leading.clone()),
        ),
        (
            "convergence",
            "a change of the ISR that nobody settles",
            sound().with(|it| {
                let leading = it.replicas[0].leading.as_mut();
                leading.expect("it leads").pending = true;
            }),
        ),
        (
            "no-zombie-reads",
            "a read that the leader before answers",
            after(&[Event::Read {
                partition: 0,
                broker: BrokerId(1),
                asked_under: LeaderEpoch(6),
                answered_under: LeaderEpoch(5),
                offset: Offset(1),
                value: 11,
                consumer: None,
            }]),
        ),
        (
            "no-zombie-reads",
            "a question for the end that it answers",
            after(&[latest(6, 5)]),
        ),
        (
            "no-stale-epoch-ack",
            "acknowledged when it did not lead any more",
            after(&[acked_when_it_led_in(None)]),
        ),
        (
            "no-stale-epoch-ack",
            "acknowledged when it led again",
            after(&[acked_when_it_led_in(Some(7))]),
        ),
        (
            "min-isr-visibility",
            "visible while too few are in sync",
            after(&[visible(1, 2)]),
        ),
        (
            "min-isr-visibility",
            "visible while too few have it",
            after(&[visible(2, 1)]),
        ),
    ];
    for (name, what, history) in &rows {
        assert_eq!(history.refused_by(), [*name], "{what}");
    }
    let shown: std::collections::BTreeSet<&str> = rows.iter().map(|(name, ..)| *name).collect();
    let promised: std::collections::BTreeSet<&str> = SHOWN_BY_HISTORIES.iter().copied().collect();
    assert_eq!(shown, promised);
}

#[test]
fn what_all_of_them_accept() {
    let after = |events: &[Event]| History::after(events.iter().cloned());
    let rows = [
        ("nothing happened", History::sound()),
        (
            "acknowledged, read and there",
            after(&[
                acked(ONE, 10, 0),
                acked(ONE, 12, 2),
                visible(2, 2),
                committed(11, 1),
                latest(5, 5),
            ])
            .then(all_read(0)),
        ),
        (
            "a reader that is told reads on",
            History::after(all_read(0)).cut(1, &LATER).then([
                told(1),
                read(Some(0), 6, 77, 1),
                read(Some(0), 6, 78, 2),
            ]),
        ),
        (
            "what an unclean election gives up is no promise",
            after(&[acked(None, 12, 2), committed(12, 2)]).cut(1, &LATER),
        ),
        (
            "nor is a sequence of it, or a position",
            after(&[])
                .cut(1, &LATER)
                .then([refused(true), out_of_range(3)]),
        ),
        ("acks=1 promises no sequence", after(&[refused(false)])),
        ("a client that compares no epochs", after(&[latest(-1, 5)])),
    ];
    for (what, history) in rows {
        assert_eq!(history.refused_by(), [""; 0], "{what}");
    }
}

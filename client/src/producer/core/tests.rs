use std::collections::{BTreeMap, BTreeSet};

use kuorum_protocol::record::{BatchView, RecordsReader};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn at(milliseconds: u64) -> Monotonic {
    Monotonic(ms(milliseconds))
}

fn settings() -> Settings {
    Settings {
        idempotent: true,
        max_in_flight: 5,
        batch_size: 16_384,
        linger: ms(5),
        retries: i32::MAX,
        delivery_timeout: ms(120_000),
        retry_backoff: ms(100),
        retry_backoff_max: ms(1000),
        max_request_size: 1_048_576,
        codec: Codec::None,
    }
}

fn key() -> Key {
    Key {
        topic: "payments".into(),
        partition: 0,
    }
}

const LEADER: Leader = Leader {
    broker: 1,
    topic_id: TopicId(Uuid::from_u128(7)),
};
const OK: Result<Ack, Failure> = Ok(Ack {
    base_offset: 0,
    log_append_time: -1,
});

fn refused(code: ErrorCode) -> Result<Ack, Failure> {
    Err(Failure::Refused {
        code,
        message: String::new(),
        records: Vec::new(),
    })
}

/// A batch's epoch, first sequence and records.
type Numbered = (i16, i32, Vec<u32>);

/// One partition's core with a helper for each thing a test wants to say.
struct Desk {
    core: Core<u32>,
    now: Monotonic,
    leader: Leader,
    done: Done<u32>,
}

impl Desk {
    fn new(settings: Settings) -> Self {
        let mut core = Core::new(settings);
        core.set_producer(ProducerId(9999), ProducerEpoch(0));
        Self {
            core,
            now: at(0),
            leader: LEADER,
            done: Vec::new(),
        }
    }

    /// One batch of the records given.
    fn batch(&mut self, records: &[u32]) {
        for record in records {
            let value = record.to_string();
            let value = Some(value.as_bytes());
            let time = Timestamp(i64::from(*record));
            self.core
                .append(&key(), time, None, value, &[], *record, self.now)
                .unwrap();
        }
        // What is appended next begins a new batch.
        let queue = self.core.queues.get_mut(&key()).unwrap();
        queue.seal(queue.waiting.len() - 1, false);
    }

    /// Sends what may be sent; returns each batch with its epoch, first sequence and records.
    fn drain(&mut self) -> Vec<(OutRequest, Numbered)> {
        let leader = self.leader;
        let drained = self
            .core
            .drain(self.now, u64::MAX, |_| Some(leader), |_| true);
        drained
            .requests
            .into_iter()
            .map(|request| {
                assert_eq!(request.batches.len(), 1);
                let content = content(&request.batches[0].bytes);
                (request, content)
            })
            .collect()
    }

    fn answer(&mut self, request: &OutRequest, result: Result<Ack, Failure>) {
        let batch = &request.batches[0];
        self.core.request_done(request.id);
        self.core
            .on_result(&batch.key, batch.ticket, result, self.now, &mut self.done);
    }

    /// Sends the one batch that may be sent, which must be this, and has it acknowledged.
    fn expect_acked(&mut self, epoch: i16, sequence: i32, records: &[u32]) {
        let sent = self.drain();
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!(sent[0].1, (epoch, sequence, records.to_vec()));
        self.answer(&sent[0].0, OK);
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now = self.now + ms(milliseconds);
    }
}

fn content(bytes: &Bytes) -> Numbered {
    let batch = BatchView::parse(bytes).unwrap();
    assert!(batch.crc_is_valid());
    let records = RecordsReader::new(bytes, DecompressLimit::CONSUMED)
        .unwrap()
        .map(|record| {
            let value = record.unwrap().value.unwrap();
            std::str::from_utf8(&value).unwrap().parse().unwrap()
        })
        .collect();
    (batch.producer_epoch().0, batch.base_sequence().0, records)
}

#[test]
fn a_batch_waits_for_company_until_it_is_full_or_lingered() {
    let mut desk = Desk::new(Settings {
        batch_size: 200,
        ..settings()
    });
    let leader = |_: &Key| Some(LEADER);
    let append = |core: &mut Core<u32>, now| {
        core.append(&key(), Timestamp(0), None, Some(&[1; 20]), &[], 1, now)
            .unwrap()
    };
    assert!(append(&mut desk.core, at(0)), "a new batch");
    assert!(!append(&mut desk.core, at(1)), "joins it");
    let drained = desk.core.drain(at(4), 0, leader, |_| true);
    assert!(drained.requests.is_empty());
    assert_eq!(drained.wake_at, Some(at(5)));
    assert_eq!(
        desk.core.drain(at(5), 0, leader, |_| true).requests.len(),
        1
    );

    for _ in 0..5 {
        append(&mut desk.core, at(6));
    }
    let full = desk.core.drain(at(6), 0, leader, |_| true);
    assert!(
        full.requests.is_empty(),
        "the partition is not warm and one is under way"
    );
    let flush = desk.core.last_place();
    assert!(!desk.core.is_resolved(flush));
}

#[test]
fn nothing_is_sent_without_identity_leader_or_connection() {
    let mut desk = Desk::new(settings());
    desk.core.producer = None;
    desk.batch(&[1]);
    let known = |_: &Key| Some(LEADER);
    let drained = desk.core.drain(at(9), 0, |_| None, |_| true);
    assert!(drained.needs_metadata && drained.requests.is_empty());
    let drained = desk.core.drain(at(9), 0, known, |_| true);
    assert!(drained.needs_identity && drained.requests.is_empty());
    desk.core.set_producer(ProducerId(1), ProducerEpoch(0));
    let drained = desk.core.drain(at(9), 0, known, |_| false);
    assert_eq!(drained.connect, BTreeSet::from([1]));
    assert!(drained.requests.is_empty());
    assert_eq!(desk.core.drain(at(9), 0, known, |_| true).requests.len(), 1);
}

/// A(0), B(1), C(2) of producer 9999: A's first try is refused, B and C are refused with it, and all come in order.
#[test]
fn a_refused_batch_is_not_overtaken() {
    let mut desk = Desk::new(settings());
    desk.batch(&[0]);
    desk.expect_acked(0, 0, &[0]);
    for records in [[1, 2], [3, 4], [5, 6]] {
        desk.batch(&records);
    }
    let sent = desk.drain();
    assert_eq!(sent.len(), 3, "all under way at once");
    desk.answer(&sent[1].0, refused(ErrorCode::OutOfOrderSequenceNumber));
    assert!(desk.drain().is_empty(), "A is still under way");
    desk.answer(&sent[0].0, refused(ErrorCode::NotEnoughReplicas));
    desk.answer(&sent[2].0, refused(ErrorCode::OutOfOrderSequenceNumber));
    assert!(desk.drain().is_empty(), "A waits for its time");
    desk.wait(150);
    desk.expect_acked(0, 1, &[1, 2]);
    desk.expect_acked(0, 3, &[3, 4]);
    desk.expect_acked(0, 5, &[5, 6]);
    assert_eq!(desk.done.len(), 7);
    assert!(desk.done.iter().all(|(_, result)| result.is_ok()));
}

/// Without idempotence two batches under way change places, and one at a time they do not.
#[test]
fn order_without_idempotence_takes_one_request_at_a_time() {
    for (max_in_flight, expected) in [(5, vec![3, 4, 1, 2]), (1, vec![1, 2, 3, 4])] {
        let mut desk = Desk::new(Settings {
            idempotent: false,
            max_in_flight,
            ..settings()
        });
        desk.batch(&[1, 2]);
        desk.batch(&[3, 4]);
        let mut log = Vec::new();
        let sent = desk.drain();
        desk.answer(&sent[0].0, refused(ErrorCode::NotEnoughReplicas));
        for (request, (_, _, records)) in &sent[1..] {
            log.extend(records);
            desk.answer(request, OK);
        }
        desk.wait(150);
        while log.len() < 4 {
            for (request, (_, _, records)) in desk.drain() {
                log.extend(records);
                desk.answer(&request, OK);
            }
        }
        assert_eq!(log, expected);
    }
}

#[test]
fn the_first_batch_of_an_incarnation_goes_alone() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    desk.batch(&[2]);
    desk.expect_acked(0, 0, &[1]);
    desk.batch(&[3]);
    assert_eq!(desk.drain().len(), 2);
}

#[test]
fn an_unanswered_batch_keeps_its_number() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, Err(Failure::NoAnswer("closed".into())));
    desk.batch(&[2]);
    desk.wait(150);
    desk.expect_acked(0, 0, &[1]);
    desk.expect_acked(0, 1, &[2]);
}

#[test]
fn a_lost_log_begins_a_new_epoch() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    desk.expect_acked(0, 0, &[1]);
    desk.batch(&[2]);
    desk.batch(&[3]);
    let sent = desk.drain();
    assert_eq!(sent.len(), 2);
    for (request, _) in &sent {
        desk.answer(request, refused(ErrorCode::OutOfOrderSequenceNumber));
    }
    desk.expect_acked(1, 0, &[2]);
    desk.expect_acked(1, 1, &[3]);
}

#[test]
fn what_may_still_lie_in_a_socket_is_not_renumbered() {
    // (who leads when the batch is sent again, whether it is sent under a new epoch)
    for (second, renumbered) in [(1, false), (2, true)] {
        let mut desk = Desk::new(settings());
        desk.batch(&[1]);
        desk.expect_acked(0, 0, &[1]);
        desk.batch(&[2]);
        let sent = desk.drain();
        desk.answer(
            &sent[0].0,
            Err(Failure::NoAnswer("no answer in time".into())),
        );
        desk.wait(150);
        desk.leader.broker = second;
        let sent = desk.drain();
        assert_eq!(sent[0].1, (0, 1, vec![2]));
        desk.answer(&sent[0].0, refused(ErrorCode::OutOfOrderSequenceNumber));
        if renumbered {
            desk.expect_acked(1, 0, &[2]);
        } else {
            let (record, result) = desk.done.pop().unwrap();
            assert_eq!(record, 2);
            assert!(result.unwrap_err().possibly_persisted());
            desk.batch(&[3]);
            desk.expect_acked(1, 0, &[3]);
        }
    }
}

#[test]
fn a_batch_refused_for_good_leaves_no_gap() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    desk.expect_acked(0, 0, &[1]);
    // Alone: the next batch takes its number.
    desk.batch(&[2]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, refused(ErrorCode::InvalidRecord));
    let (_, error) = desk.done.pop().unwrap();
    assert!(!error.unwrap_err().possibly_persisted());
    desk.batch(&[3]);
    desk.expect_acked(0, 1, &[3]);
    // With another behind it: that one is refused, and numbered anew.
    desk.batch(&[4]);
    desk.batch(&[5]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, refused(ErrorCode::InvalidRecord));
    desk.answer(&sent[1].0, refused(ErrorCode::OutOfOrderSequenceNumber));
    desk.expect_acked(1, 0, &[5]);
}

#[test]
fn single_records_to_blame_are_told_from_their_neighbours() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1, 2, 3]);
    let sent = desk.drain();
    let code = ErrorCode::InvalidRecord;
    let failure = Failure::Refused {
        code,
        message: "no key".into(),
        records: vec![1],
    };
    desk.answer(&sent[0].0, Err(failure));
    let errors: Vec<_> = desk
        .done
        .into_iter()
        .map(|(_, result)| result.unwrap_err())
        .collect();
    assert_eq!(errors[0], ProduceError::InvalidNeighbour);
    assert!(matches!(
        errors[1],
        ProduceError::Refused {
            code: ErrorCode::InvalidRecord,
            ..
        }
    ));
    assert_eq!(errors[2], ProduceError::InvalidNeighbour);
}

#[test]
fn a_batch_that_is_too_large_is_split_and_stays_in_order() {
    let mut desk = Desk::new(settings());
    desk.batch(&[0]);
    desk.expect_acked(0, 0, &[0]);
    desk.batch(&[1, 2, 3]);
    desk.batch(&[4]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, refused(ErrorCode::MessageTooLarge));
    assert!(desk.drain().is_empty(), "what follows is still under way");
    desk.answer(&sent[1].0, refused(ErrorCode::OutOfOrderSequenceNumber));
    desk.expect_acked(1, 0, &[1]);
    let sent = desk.drain();
    assert_eq!(sent[0].1, (1, 1, vec![2, 3]));
    desk.answer(&sent[0].0, refused(ErrorCode::MessageTooLarge));
    for (request, _) in &sent[1..] {
        desk.answer(request, refused(ErrorCode::OutOfOrderSequenceNumber));
    }
    desk.expect_acked(2, 0, &[2]);
    desk.expect_acked(2, 1, &[3]);
    desk.expect_acked(2, 2, &[4]);
}

#[test]
fn a_topic_made_again_is_numbered_anew() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    desk.expect_acked(0, 0, &[1]);
    desk.leader.topic_id = TopicId(Uuid::from_u128(8));
    desk.batch(&[2]);
    desk.expect_acked(1, 0, &[2]);
}

#[test]
fn a_deposed_leader_is_not_waited_for() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    let late = desk.drain();
    desk.leader.broker = 2;
    desk.expect_acked(0, 0, &[1]);
    desk.answer(&late[0].0, refused(ErrorCode::NotLeaderOrFollower));
    assert_eq!(desk.done.len(), 1);
    assert!(desk.done[0].1.is_ok());
}

#[test]
fn a_try_without_an_answer_is_not_called_unsent() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, refused(ErrorCode::NotEnoughReplicas));
    desk.wait(150);
    assert_eq!(desk.drain().len(), 1);
    desk.batch(&[2]);
    desk.core.expire(at(200_000), &mut desk.done);
    let said: Vec<String> = desk
        .done
        .drain(..)
        .map(|(_, result)| result.unwrap_err().to_string())
        .collect();
    assert_eq!(
        said,
        [
            "not acknowledged in time (the record may be in the log; last: broker 1 has not answered; before that: \
             NOT_ENOUGH_REPLICAS)",
            "not acknowledged in time (the record is not in the log; last: it was never sent: its partition has no leader, or the leader \
             does not answer)",
        ]
    );
}

#[test]
fn time_runs_out() {
    /// What happened before, whether the record may be in the log, what is said of the last try.
    type Row = (Option<Result<Ack, Failure>>, bool, &'static str);
    let rows: [Row; 4] = [
        (None, true, "broker 1 has not answered"),
        (
            Some(refused(ErrorCode::NotEnoughReplicas)),
            false,
            "NOT_ENOUGH_REPLICAS",
        ),
        (
            Some(refused(ErrorCode::NotEnoughReplicasAfterAppend)),
            true,
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
        (
            Some(Err(Failure::NoAnswer("closed".into()))),
            true,
            "NETWORK_EXCEPTION: closed",
        ),
    ];
    for (answer, expected, said) in rows {
        let mut desk = Desk::new(settings());
        desk.batch(&[1]);
        let sent = desk.drain();
        if let Some(answer) = answer {
            desk.answer(&sent[0].0, answer);
        }
        desk.core.expire(at(119_999), &mut desk.done);
        assert!(desk.done.is_empty());
        desk.core.expire(at(120_000), &mut desk.done);
        let (_, result) = desk.done.pop().unwrap();
        let error = result.unwrap_err();
        let ProduceError::Timeout { last, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(last, said);
        assert_eq!(error.possibly_persisted(), expected);
        desk.answer(&sent[0].0, OK);
        assert!(
            desk.done.is_empty(),
            "an answer that comes later is nobody's"
        );
        assert!(desk.core.is_resolved(u64::MAX));
    }
}

#[test]
fn retries_run_out() {
    let mut desk = Desk::new(Settings {
        idempotent: false,
        retries: 1,
        ..settings()
    });
    desk.batch(&[1]);
    for _ in 0..2 {
        let sent = desk.drain();
        desk.answer(&sent[0].0, refused(ErrorCode::NotEnoughReplicas));
        desk.wait(2000);
    }
    let (_, result) = desk.done.pop().unwrap();
    let code = ErrorCode::NotEnoughReplicas;
    assert!(matches!(result, Err(ProduceError::Refused { code: found, .. }) if found == code));
}

#[test]
fn the_last_epoch_is_followed_by_a_new_identity() {
    let mut desk = Desk::new(settings());
    desk.core
        .set_producer(ProducerId(9999), ProducerEpoch(i16::MAX));
    desk.batch(&[1]);
    desk.expect_acked(i16::MAX, 0, &[1]);
    desk.batch(&[2]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, refused(ErrorCode::OutOfOrderSequenceNumber));
    let drained = desk.core.drain(desk.now, 0, |_| Some(LEADER), |_| true);
    assert!(drained.needs_identity && drained.requests.is_empty());
    desk.core.set_producer(ProducerId(10_000), ProducerEpoch(0));
    desk.expect_acked(0, 0, &[2]);
}

#[test]
fn a_fenced_producer_fails_everything() {
    let mut desk = Desk::new(settings());
    desk.batch(&[1]);
    desk.batch(&[2]);
    let sent = desk.drain();
    desk.answer(&sent[0].0, refused(ErrorCode::InvalidProducerEpoch));
    assert_eq!(desk.done.len(), 2);
    let again = desk
        .core
        .append(&key(), Timestamp(0), None, None, &[], 3, desk.now);
    assert!(matches!(again, Err((3, ProduceError::Fenced(_)))));
}

/// A broker's log of one partition, with the state it keeps of a producer.
#[derive(Default)]
struct Log {
    records: Vec<u32>,
    epoch: i16,
    /// First and last sequence, and base offset, of the last five batches.
    last: VecDeque<(i32, i32, i64)>,
}

impl Log {
    fn append(&mut self, bytes: &Bytes) -> Result<i64, ErrorCode> {
        let (epoch, first, records) = content(bytes);
        let last = BatchView::parse(bytes).unwrap().last_sequence().0;
        let known = !self.last.is_empty();
        if known && epoch < self.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if known && epoch == self.epoch {
            let duplicate = self
                .last
                .iter()
                .find(|batch| (batch.0, batch.1) == (first, last));
            if let Some((_, _, base)) = duplicate {
                return Ok(*base);
            }
            if self.last.back().unwrap().1 + 1 != first {
                return Err(ErrorCode::OutOfOrderSequenceNumber);
            }
        } else if known && first != 0 {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        } else {
            self.last.clear();
        }
        let base = self.records.len() as i64;
        self.records.extend(records);
        self.epoch = epoch;
        self.last.push_back((first, last, base));
        if self.last.len() > 5 {
            self.last.pop_front();
        }
        Ok(base)
    }
}

/// Small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Two brokers that take turns in leading one partition, and a network that loses, delays and breaks.
struct World {
    random: Random,
    now: Monotonic,
    log: Log,
    leader: i32,
    /// Whom the producer believes to lead.
    believed: i32,
    /// Requests on the connection to each broker, in the order in which they were sent.
    wires: BTreeMap<i32, VecDeque<OutRequest>>,
    /// Requests on connections that the producer has given up; a broker may still read them.
    ghosts: BTreeMap<i32, VecDeque<OutRequest>>,
    answers: Vec<(OutRequest, Vec<Result<Ack, Failure>>)>,
    core: Core<u32>,
    done: Done<u32>,
    next_record: u32,
}

impl World {
    fn new(seed: u64, delivery_timeout: Duration) -> Self {
        let mut core = Core::new(Settings {
            batch_size: 90,
            delivery_timeout,
            retry_backoff: ms(10),
            retry_backoff_max: ms(100),
            ..settings()
        });
        core.set_producer(ProducerId(1), ProducerEpoch(0));
        Self {
            random: Random(seed | 1),
            now: at(0),
            log: Log::default(),
            leader: 1,
            believed: 1,
            wires: BTreeMap::from([(1, VecDeque::new()), (2, VecDeque::new())]),
            ghosts: BTreeMap::from([(1, VecDeque::new()), (2, VecDeque::new())]),
            answers: Vec::new(),
            core,
            done: Vec::new(),
            next_record: 0,
        }
    }

    fn step(&mut self, calm: bool) {
        self.now = self.now + ms(1 + self.random.below(10));
        if !calm && self.random.chance(60) {
            let value = self.next_record.to_string();
            let value = Some(value.as_bytes());
            let record = self.next_record;
            self.core
                .append(&key(), Timestamp(0), None, value, &[], record, self.now)
                .unwrap();
            self.next_record += 1;
        }
        if !calm && self.random.chance(2) {
            self.leader = 3 - self.leader;
            // A broker works off what lies in its sockets before it leads again.
            self.ghosts.get_mut(&self.leader).unwrap().clear();
        }
        if calm || self.random.chance(10) {
            self.believed = self.leader;
        }
        self.core.expire(self.now, &mut self.done);
        let leader = Leader {
            broker: self.believed,
            ..LEADER
        };
        for request in self
            .core
            .drain(self.now, 0, |_| Some(leader), |_| true)
            .requests
        {
            self.wires
                .get_mut(&request.broker)
                .unwrap()
                .push_back(request);
        }
        for broker in [1, 2] {
            for _ in 0..self.random.below(4) {
                self.serve(broker, calm);
            }
            if !calm && self.random.chance(3) {
                self.break_connection(broker);
            }
            if self.random.chance(20)
                && let Some(ghost) = self.ghosts.get_mut(&broker).unwrap().pop_front()
            {
                for batch in ghost.batches {
                    if broker == self.leader {
                        let _ = self.log.append(&batch.bytes);
                    }
                }
            }
        }
        while !self.answers.is_empty() && (calm || self.random.chance(50)) {
            let which = self.random.below(self.answers.len() as u64) as usize;
            let (request, results) = self.answers.swap_remove(which);
            self.core.request_done(request.id);
            for (batch, result) in request.batches.iter().zip(results) {
                self.core
                    .on_result(&batch.key, batch.ticket, result, self.now, &mut self.done);
            }
        }
    }

    /// The broker reads one request and answers it.
    fn serve(&mut self, broker: i32, calm: bool) {
        let Some(request) = self.wires.get_mut(&broker).unwrap().pop_front() else {
            return;
        };
        let mut results = Vec::new();
        for batch in &request.batches {
            results.push(if broker != self.leader {
                refused(ErrorCode::NotLeaderOrFollower)
            } else if !calm && self.random.chance(5) {
                refused(ErrorCode::NotEnoughReplicas)
            } else if !calm && self.random.chance(1) {
                refused(ErrorCode::InvalidRecord)
            } else {
                match self.log.append(&batch.bytes) {
                    Err(code) => refused(code),
                    Ok(_) if !calm && self.random.chance(5) => refused(ErrorCode::RequestTimedOut),
                    Ok(base_offset) => Ok(Ack {
                        base_offset,
                        log_append_time: -1,
                    }),
                }
            });
        }
        self.answers.push((request, results));
    }

    /// All that is under way on a connection gets no answer. The broker may have done it, do it later, or never.
    fn break_connection(&mut self, broker: i32) {
        let unread: Vec<_> = self.wires.get_mut(&broker).unwrap().drain(..).collect();
        let (lost, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.answers)
            .into_iter()
            .partition(|(r, _)| r.broker == broker);
        self.answers = kept;
        let read_later = self.random.below(unread.len() as u64 + 1) as usize;
        self.ghosts
            .get_mut(&broker)
            .unwrap()
            .extend(unread[..read_later].iter().cloned());
        for request in lost.into_iter().map(|(request, _)| request).chain(unread) {
            let results = request
                .batches
                .iter()
                .map(|_| Err(Failure::NoAnswer("closed".into())));
            let results = results.collect();
            self.answers.push((request, results));
        }
    }
}

/// No record twice, none before an older one, every acknowledged one at its offset, and none that is said not to be there.
fn check(seed: u64, delivery_timeout: Duration) -> Result<(), TestCaseError> {
    let mut world = World::new(seed, delivery_timeout);
    for _ in 0..400 {
        world.step(false);
    }
    let mut steps = 0;
    while !world.core.is_resolved(u64::MAX) {
        world.step(true);
        steps += 1;
        prop_assert!(steps < 20_000, "it comes to an end");
    }
    while world.ghosts.values().any(|ghosts| !ghosts.is_empty()) {
        world.step(true);
    }
    let log = &world.log.records;
    prop_assert!(
        log.is_sorted_by(|one, two| one < two),
        "twice or out of order: {log:?}"
    );
    let mut outcomes = BTreeSet::new();
    for (record, result) in &world.done {
        prop_assert!(outcomes.insert(*record), "two outcomes for {record}");
        match result {
            Ok(written) => prop_assert_eq!(log[written.offset as usize], *record),
            Err(error) => {
                prop_assert!(!matches!(error, ProduceError::Fenced(_)));
                if !error.possibly_persisted() {
                    prop_assert!(!log.contains(record), "{record} is there: {error}");
                }
            }
        }
    }
    prop_assert_eq!(
        outcomes.len(),
        world.next_record as usize,
        "every record has an outcome"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_written_twice_or_out_of_order(seed in any::<u64>()) {
        check(seed, ms(1_000_000))?;
    }

    #[test]
    fn not_even_when_records_are_given_up(seed in any::<u64>()) {
        check(seed, ms(250))?;
    }
}

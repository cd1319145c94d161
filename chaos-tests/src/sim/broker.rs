//! A broker in the simulation: a disk that outlives processes, and the process of the moment, which carries out what its
//! partitions ask for just as the real shell does.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::random::Random;
use kuorum_broker::partition::{
    Appended, Effects, Fetched, Identity, Isolation, OffsetQuery, Partition, ProduceError,
    ReadError, ReadSpec, Reader,
};
use kuorum_metadata::image::MetadataImage;
use kuorum_metadata::rpc::{HeartbeatRequest, RegisterRequest};
use kuorum_protocol::{
    BrokerEpoch, BrokerId, DirectoryId, ErrorCode, IncarnationId, LeaderEpoch, Now, Offset,
};
use kuorum_replication::acks::Acks;
use kuorum_replication::follower::FetchFailure;
use kuorum_replication::mutation::{self, Mutation};
use kuorum_replication::{Assignment, FollowerStep, IsrReply, Terms, Ticket};
use kuorum_storage::{Dir, FlushJob, Known, Log, LogConfig, LogError, SimDir};

use super::network::{Message, Peer, Read};
use super::plan::Plan;
use super::records;
use super::world::{Happening, World};
use crate::checkers::{Event, Logged, PartitionNumber, ReplicaState};

/// A parked produce: a key into [`Process::parked`].
pub(super) type Token = u64;

/// A machine: its disk and, at times, a process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) disk: SimDir,
    directory: DirectoryId,
    run: u64,
    pub(super) process: Option<Process>,
    paused_until: Duration,
    pub(super) feed_stopped_until: Duration,
    checkpoints: BTreeMap<PartitionNumber, Checkpoint>,
    boot: String,
    /// What the disk held of each replica when the last process ended.
    pub(super) remains: BTreeMap<PartitionNumber, ReplicaState>,
    /// Replicas whose data were taken away, until the controllers know.
    pub(super) lost: BTreeSet<PartitionNumber>,
    /// The disk said no: it needs a power cycle before it is used again.
    disk_failed: bool,
    /// How far its wall clock is off, in milliseconds.
    pub(super) wall_offset: i64,
    /// The last process closed its logs in an orderly way.
    closed: bool,
}

/// What the checkpoint files say of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct Checkpoint {
    log_start: Offset,
    recovery_point: Offset,
    high_watermark: Offset,
}

/// One run of a broker's process.
#[derive(Debug)]
pub(super) struct Process {
    incarnation: IncarnationId,
    broker_epoch: Option<BrokerEpoch>,
    image: MetadataImage,
    pub(super) hosted: BTreeMap<PartitionNumber, Hosted>,
    not_intact: BTreeSet<PartitionNumber>,
    parked: BTreeMap<Token, Parked>,
    next_token: Token,
    next_request: u64,
    leaving: Option<Leaving>,
}

/// A process that was told to end, and asks the controllers for leave.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    since: Duration,
    /// When its successor starts, counted from its end.
    restart: Duration,
    /// Heartbeats that were not answered, one after the other.
    unheard: u32,
}

/// How long a process waits for leave.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(6);
/// So many heartbeats without an answer, and it does not wait for one.
const UNHEARD_MOST: u32 = 15;

/// A replica a process holds.
#[derive(Debug)]
pub(super) struct Hosted {
    pub(super) partition: Partition<SimDir, Token>,
    flush: Option<FlushJob<SimDir>>,
    fetching: Option<u64>,
    altering: Option<u64>,
    /// The last proposal that was sent.
    proposed: Option<u64>,
    led: Option<LeaderEpoch>,
    high_watermark: Offset,
}

/// A produce that waits for the high watermark.
#[derive(Debug)]
struct Parked {
    client: usize,
    attempt: u64,
    values: Vec<u64>,
    producer: Option<u64>,
    appended: Appended,
}

impl Node {
    pub(super) fn new(id: BrokerId, random: &mut Random) -> Self {
        Self {
            id,
            disk: SimDir::new(random.number()),
            directory: DirectoryId(random.uuid()),
            run: 0,
            process: None,
            paused_until: Duration::ZERO,
            feed_stopped_until: Duration::ZERO,
            checkpoints: BTreeMap::new(),
            boot: String::new(),
            remains: BTreeMap::new(),
            lost: BTreeSet::new(),
            disk_failed: false,
            wall_offset: 0,
            closed: false,
        }
    }

    /// The number of the process, counted from 1.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// How long the process will stand still yet.
    pub(super) fn pause_left(&self, elapsed: Duration) -> Option<Duration> {
        self.paused_until
            .checked_sub(elapsed)
            .filter(|left| !left.is_zero())
    }

    pub(super) fn pause_until(&mut self, until: Duration) {
        self.paused_until = until;
    }

    /// The partitions this process holds.
    pub(super) fn hosted(&self) -> Vec<PartitionNumber> {
        self.process
            .as_ref()
            .map_or_else(Vec::new, |process| process.hosted.keys().copied().collect())
    }

    /// The controllers know what this process said of its replicas.
    pub(super) fn registered(&mut self) {
        self.lost.clear();
    }

    /// The image of the process, if it has one.
    pub(super) fn image(&self) -> Option<&MetadataImage> {
        self.process.as_ref().map(|process| &process.image)
    }
}

/// The life of processes.
impl World {
    /// Writes the checkpoint files.
    pub(super) fn checkpoint(&mut self, broker: BrokerId) {
        for number in self.nodes[&broker].hosted() {
            let prepared = self.with_partition(broker, number, |it, _, fx| {
                let point = it.prepare_checkpoint(fx)?;
                let checkpoint = Checkpoint {
                    log_start: it.log().start_offset(),
                    recovery_point: point.offset,
                    high_watermark: it.high_watermark_to_checkpoint(),
                };
                it.checkpointed(point, fx);
                Some(checkpoint)
            });
            if let Some(checkpoint) = prepared.flatten() {
                self.node(broker).checkpoints.insert(number, checkpoint);
            }
        }
    }

    /// Starts a process on `broker`'s machine: it opens what lies on the disk and introduces itself.
    pub(super) fn start_process(&mut self, broker: BrokerId) {
        let now = self.now();
        let incarnation = IncarnationId(self.random.uuid());
        let plan = self.plan.clone();
        let places: BTreeMap<PartitionNumber, Identity> = self.identities(broker);
        let node = self.node(broker);
        if node.disk_failed {
            node.disk.crash();
            node.disk_failed = false;
        }
        node.run += 1;
        node.paused_until = Duration::ZERO;
        let run = node.run;
        let boot = node.disk.boot_id().unwrap_or_default();
        let same_boot = boot == node.boot;
        node.boot = boot;
        let mut process = Process {
            incarnation,
            broker_epoch: None,
            image: MetadataImage::default(),
            hosted: BTreeMap::new(),
            not_intact: BTreeSet::new(),
            parked: BTreeMap::new(),
            next_token: 0,
            next_request: 0,
            leaving: None,
        };
        let clean = std::mem::take(&mut node.closed);
        let mut unreadable = None;
        for (number, checkpoint) in node.checkpoints.clone() {
            let known = Known {
                log_start: checkpoint.log_start,
                recovery_point: checkpoint.recovery_point,
                high_watermark: checkpoint.high_watermark,
                clean,
                same_boot,
            };
            let lost = node.lost.contains(&number);
            let known = if lost { Known::default() } else { known };
            let dir = node.disk.subdirectory(&directory_name(&plan, number));
            match Log::open(dir, log_config(&plan), known, now) {
                Ok((log, recovery)) => {
                    let floor = if lost {
                        Offset::ZERO
                    } else {
                        recovery.high_watermark(checkpoint.high_watermark)
                    };
                    if lost || recovery.corruption.is_some() || log.end_offset() < floor {
                        process.not_intact.insert(number);
                    }
                    let identity = places[&number].clone();
                    let partition = Partition::new(identity, log, terms(&plan, number), floor);
                    process.hosted.insert(number, Hosted::new(partition));
                }
                Err(LogError::Storage(_)) => node.disk_failed = true,
                Err(error) => {
                    unreadable = Some(format!("broker {broker}, partition {number}: {error}"));
                }
            }
        }
        let not_intact = process.not_intact.clone();
        node.remains
            .retain(|number, _| !process.hosted.contains_key(number));
        node.process = Some(process);
        self.tally.restarts += 1;
        self.note(|| format!("broker {broker} starts run {run}, not intact: {not_intact:?}"));
        if let Some(what) = unreadable {
            self.not_healed(what);
        }
        if self.nodes[&broker].disk_failed {
            self.plan_in(
                Duration::from_millis(1),
                Happening::DiskDied { broker, run },
            );
            return;
        }
        let first = self.between(100, 20_000);
        for (delay, happening) in [
            (first, Happening::Register { broker, run }),
            (
                Duration::from_millis(200),
                Happening::Heartbeat { broker, run },
            ),
            (Duration::from_millis(5), Happening::Feed { broker, run }),
            (Duration::from_millis(20), Happening::Tick { broker, run }),
            (
                Duration::from_millis(25),
                Happening::FetchPoll { broker, run },
            ),
            (
                Duration::from_millis(500),
                Happening::Checkpoint { broker, run },
            ),
        ] {
            self.plan_in(delay, happening);
        }
    }

    /// Ends a process. With the power cut, what is not flushed goes with it.
    pub(super) fn end_process(&mut self, broker: BrokerId, power_cut: bool, restart: Duration) {
        let node = self.node(broker);
        if !node.is_up() {
            return;
        }
        let run = node.run;
        let remains = super::view::remains(node, power_cut);
        node.remains.extend(remains);
        node.process = None;
        if power_cut {
            node.disk.crash();
        } else {
            node.disk.kill();
        }
        self.note(|| {
            let how = if power_cut {
                "loses its power"
            } else {
                "is killed"
            };
            format!("broker {broker} {how}")
        });
        self.delay_last_words(broker);
        // A killed process's sockets are closed for it; of a machine without power nobody hears.
        if !power_cut || self.random.below(4) == 0 {
            let delay = self.between(500, 20_000);
            self.plan_in(delay, Happening::ConnectionLost { broker, run });
        }
        self.plan_in(restart, Happening::Restart { broker, run });
    }

    /// SIGTERM: the process asks for leave and goes on until it is given, or until its patience is at an end.
    pub(super) fn ask_to_leave(&mut self, broker: BrokerId, restart: Duration) {
        let since = self.queue.elapsed();
        let Some(process) = &mut self.node(broker).process else {
            return;
        };
        if process.leaving.is_some() {
            return;
        }
        process.leaving = Some(Leaving {
            since,
            restart,
            unheard: 0,
        });
        self.note(|| format!("broker {broker} is told to shut down"));
    }

    /// The end of a process that was told to end: it closes its logs in an orderly way and says goodbye.
    fn leave(&mut self, broker: BrokerId) {
        self.checkpoint(broker);
        let heard = !self.network.is_cut(Peer::Broker(broker), Peer::Controller);
        let node = self.node(broker);
        let run = node.run;
        let Some(mut process) = node.process.take() else {
            return;
        };
        let Some(leaving) = process.leaving else {
            return;
        };
        let mut closed = true;
        let mut remains = BTreeMap::new();
        for (number, hosted) in std::mem::take(&mut process.hosted) {
            remains.insert(number, super::view::left_behind(broker, &hosted));
            if let Some(checkpoint) = node.checkpoints.get_mut(&number) {
                checkpoint.high_watermark = hosted.partition.high_watermark();
            }
            match hosted.partition.into_log().close() {
                Ok(end) => {
                    if let Some(checkpoint) = node.checkpoints.get_mut(&number) {
                        checkpoint.recovery_point = end;
                    }
                }
                Err(_) => closed = false,
            }
        }
        node.remains.extend(remains);
        if closed {
            node.closed = true;
            node.disk.kill();
        } else {
            node.disk_failed = true;
        }
        self.note(|| format!("broker {broker} ends, closed in an orderly way: {closed}"));
        if heard && let Some(broker_epoch) = process.broker_epoch {
            self.controller.goodbye(broker, broker_epoch);
        }
        self.delay_last_words(broker);
        let delay = self.between(500, 20_000);
        self.plan_in(delay, Happening::ConnectionLost { broker, run });
        self.plan_in(leaving.restart, Happening::Restart { broker, run });
    }

    /// What a process has sent outlives it, and now and then arrives when its successor is long there.
    fn delay_last_words(&mut self, broker: BrokerId) {
        if !self.rough || self.random.below(2) == 0 {
            return;
        }
        let late = self.between(200_000, 1_500_000);
        self.queue.put_off(|happening| match happening {
            Happening::Deliver(envelope) if envelope.from == Peer::Broker(broker) => late,
            _ => Duration::ZERO,
        });
    }

    pub(super) fn disk_died(&mut self, broker: BrokerId) {
        self.note(|| format!("broker {broker}: its only disk failed"));
        self.node(broker).disk_failed = true;
        let restart = self.between(300_000, 1_500_000);
        self.end_process(broker, true, restart);
    }

    /// The data of all replicas of a machine are gone; the directory is still the same.
    pub(super) fn wipe(&mut self, broker: BrokerId) {
        let restart = self.between(5_000, 800_000);
        // The worst moment: what it had is on its way to the leader.
        for partition in self.nodes[&broker].hosted() {
            self.fetch_now(broker, partition);
        }
        self.end_process(broker, false, restart);
        let plan = self.plan.clone();
        let node = self.node(broker);
        let numbers: Vec<PartitionNumber> = node.checkpoints.keys().copied().collect();
        for number in numbers {
            let name = directory_name(&plan, number);
            if node.disk.remove_all(&name).is_ok() {
                node.lost.insert(number);
            }
        }
        let _ = node.disk.sync();
        self.note(|| format!("broker {broker} loses its data"));
    }

    /// Nothing holds this machine back any more.
    pub(super) fn mend_node(&mut self, broker: BrokerId) {
        let node = self.node(broker);
        node.paused_until = Duration::ZERO;
        node.feed_stopped_until = Duration::ZERO;
        let run = node.run;
        if !node.is_up() {
            let delay = self.between(10_000, 400_000);
            self.plan_in(delay, Happening::Restart { broker, run });
        }
    }

    pub(super) fn register(&mut self, broker: BrokerId, run: u64) {
        let partitions = self.partitions.clone();
        let node = self.node(broker);
        let directory = node.directory;
        let Some(process) = &node.process else {
            return;
        };
        if process.broker_epoch.is_some() {
            return;
        }
        let request = RegisterRequest {
            broker_id: broker,
            incarnation_id: process.incarnation,
            listeners: Vec::new(),
            http: String::new(),
            rack: None,
            directories: vec![directory],
            version: "sim".to_owned(),
            not_intact: process
                .not_intact
                .iter()
                .map(|number| partitions[*number])
                .collect(),
        };
        self.send(
            Peer::Broker(broker),
            Peer::Controller,
            None,
            Message::Register { run, request },
        );
        self.plan_in(
            Duration::from_millis(150),
            Happening::Register { broker, run },
        );
    }

    pub(super) fn heartbeat(&mut self, broker: BrokerId, run: u64) {
        let elapsed = self.queue.elapsed();
        let Some(process) = &mut self.node(broker).process else {
            return;
        };
        let mut interval = Duration::from_millis(200);
        if let Some(leaving) = &mut process.leaving {
            interval = Duration::from_millis(100);
            leaving.unheard += 1;
            let enough = leaving.unheard > UNHEARD_MOST
                || elapsed >= leaving.since + SHUTDOWN_PATIENCE
                || process.broker_epoch.is_none();
            if enough || leads_in_vain(broker, process) {
                return self.leave(broker);
            }
        }
        let leaving = process.leaving.is_some();
        self.plan_in(interval, Happening::Heartbeat { broker, run });
        let Some(process) = &self.nodes[&broker].process else {
            return;
        };
        let Some(broker_epoch) = process.broker_epoch else {
            return;
        };
        let request = HeartbeatRequest {
            broker_id: broker,
            broker_epoch,
            metadata_offset: process.image.offset(),
            want_fence: false,
            want_shut_down: leaving,
            offline_directories: Vec::new(),
        };
        self.send(
            Peer::Broker(broker),
            Peer::Controller,
            None,
            Message::Heartbeat { run, request },
        );
    }

    /// The metadata log reaches the process, some of it or all.
    pub(super) fn feed(&mut self, broker: BrokerId, run: u64) {
        let again = self.between(3_000, 20_000);
        self.plan_in(again, Happening::Feed { broker, run });
        let elapsed = self.queue.elapsed();
        if self.nodes[&broker].feed_stopped_until > elapsed
            || self.network.is_cut(Peer::Controller, Peer::Broker(broker))
        {
            return;
        }
        let end = self.controller.end();
        let Some(process) = self
            .nodes
            .get_mut(&broker)
            .and_then(|node| node.process.as_mut())
        else {
            return;
        };
        let from = process.image.offset() + 1;
        if from >= end {
            return;
        }
        let count = if self.random.below(4) == 0 {
            1 + self.random.below((end - from) as usize) as i64
        } else {
            end - from
        };
        for (offset, batch) in self.controller.entries(from).take(count as usize) {
            let _ = process.image.apply_batch(offset, batch);
        }
        // Until its own registration is in the image, the image may show what another process was.
        let registered = process
            .broker_epoch
            .is_some_and(|epoch| process.image.offset() >= epoch.0);
        if registered || mutation::off(Mutation::RestartedLeaderResumes) {
            self.act_on_image(broker);
        }
    }

    fn act_on_image(&mut self, broker: BrokerId) {
        let now = self.now();
        let plan = self.plan.clone();
        let identities = self.identities(broker);
        for number in 0..self.partitions.len() {
            let (topic, index) = self.partitions[number];
            let node = self
                .nodes
                .get_mut(&broker)
                .expect("every broker that is named is one of the plan's");
            let Some(process) = &mut node.process else {
                return;
            };
            let Some(image) = process.image.partition(topic, index) else {
                continue;
            };
            if !image.replicas.contains(&broker) {
                continue;
            }
            let assignment = Assignment::of(&process.image, image);
            if let Entry::Vacant(place) = process.hosted.entry(number) {
                let dir = node.disk.subdirectory(&directory_name(&plan, number));
                let opened = Log::open(dir, log_config(&plan), Known::default(), now);
                let Ok((log, _)) = opened else {
                    let run = node.run;
                    let delay = Duration::from_millis(1);
                    self.plan_in(delay, Happening::DiskDied { broker, run });
                    return;
                };
                let identity = identities[&number].clone();
                let partition = Partition::new(identity, log, terms(&plan, number), Offset::ZERO);
                place.insert(Hosted::new(partition));
                node.checkpoints.insert(number, Checkpoint::default());
            }
            self.with_partition(broker, number, |it, now, fx| {
                it.apply(&assignment, now, fx);
            });
        }
    }

    fn identities(&self, broker: BrokerId) -> BTreeMap<PartitionNumber, Identity> {
        self.partitions
            .iter()
            .enumerate()
            .map(|(number, (topic_id, index))| {
                let identity = Identity {
                    topic: self.plan.topic_of(number).name.into(),
                    topic_id: *topic_id,
                    index: *index,
                    me: broker,
                };
                (number, identity)
            })
            .collect()
    }
}

/// What is said to a process.
impl World {
    pub(super) fn broker_hears(&mut self, broker: BrokerId, from: Peer, message: Message) {
        match message {
            Message::RegisterAnswer { broker_epoch } => {
                if let Some(process) = &mut self.node(broker).process
                    && process.broker_epoch.is_none()
                {
                    process.broker_epoch = broker_epoch;
                }
            }
            Message::HeartbeatAnswer { may_shut_down } => {
                let Some(process) = &mut self.node(broker).process else {
                    return;
                };
                if let Some(leaving) = &mut process.leaving {
                    leaving.unheard = 0;
                    if may_shut_down {
                        self.leave(broker);
                    }
                }
            }
            Message::Metadata { client, partition } => {
                let (topic, index) = self.partitions[partition];
                let leader = self.nodes[&broker]
                    .image()
                    .and_then(|image| image.partition(topic, index))
                    .and_then(|partition| Some((partition.leader?, partition.leader_epoch)));
                self.send(
                    Peer::Broker(broker),
                    Peer::Client(client),
                    None,
                    Message::MetadataAnswer { leader },
                );
            }
            Message::AlterAnswer {
                partition,
                number,
                reply,
            } => {
                if let Some(hosted) = self.hosted(broker, partition)
                    && hosted.altering == Some(number)
                {
                    hosted.altering = None;
                }
                self.note(|| {
                    format!("broker {broker}, partition {partition}: proposal {number}: {reply:?}")
                });
                self.with_partition(broker, partition, |it, now, fx| {
                    it.isr_decided(number, reply, now, fx);
                });
            }
            Message::Fetch {
                partition,
                run,
                broker_epoch,
                offset,
                last_fetched_epoch,
                current_leader_epoch,
                ticket,
                request,
            } => {
                let Peer::Broker(follower) = from else {
                    return;
                };
                let spec = ReadSpec {
                    from: offset,
                    max_bytes: 200 + self.random.below(2_000),
                    at_least_one: true,
                    current_leader_epoch: Some(current_leader_epoch),
                    last_fetched_epoch,
                    reader: Reader::Replica {
                        broker: follower,
                        broker_epoch,
                    },
                };
                let result = match self
                    .with_partition(broker, partition, |it, now, fx| it.read(spec, now, fx))
                {
                    Some(Ok(outcome)) => Ok(Fetched {
                        records: outcome.records,
                        high_watermark: outcome.high_watermark,
                        log_start: outcome.log_start,
                        diverging: outcome.diverging,
                    }),
                    Some(Err(error)) => Err(code_and_start(&error)),
                    None => Err((ErrorCode::NotLeaderOrFollower, None)),
                };
                self.answer(
                    broker,
                    from,
                    run,
                    Message::FetchAnswer {
                        partition,
                        ticket,
                        request,
                        result,
                    },
                );
            }
            Message::FetchAnswer {
                partition,
                ticket,
                request,
                result,
            } => self.fetched(broker, partition, &ticket, request, result),
            Message::EpochEnd {
                partition,
                run,
                epoch,
                current_leader_epoch,
                ticket,
                request,
            } => {
                let result = match self.with_partition(broker, partition, |it, _, _| {
                    it.end_offset_for_epoch(Some(current_leader_epoch), epoch)
                }) {
                    Some(Ok(found)) => Ok(found),
                    Some(Err(error)) => Err(ErrorCode::from(&error)),
                    None => Err(ErrorCode::NotLeaderOrFollower),
                };
                self.answer(
                    broker,
                    from,
                    run,
                    Message::EpochEndAnswer {
                        partition,
                        ticket,
                        request,
                        result,
                    },
                );
            }
            Message::EpochEndAnswer {
                partition,
                ticket,
                request,
                result,
            } => {
                self.request_ended(broker, partition, request);
                self.note(|| {
                    format!(
                        "broker {broker}, partition {partition}: epoch {} ends: {result:?}",
                        ticket.epoch
                    )
                });
                self.with_partition(broker, partition, |it, now, fx| match result {
                    Ok(found) => it.on_epoch_end(&ticket, found, now, fx),
                    Err(code) => {
                        let failure = FetchFailure::from_error(code as i16, None);
                        it.on_fetch_error(&ticket, failure, now, fx);
                    }
                });
            }
            Message::Produce {
                client,
                attempt,
                partition,
                acks,
                batch,
                values,
                producer,
            } => {
                let parked = Parking {
                    client,
                    attempt,
                    acks,
                    values,
                    producer,
                };
                self.append(broker, partition, &batch, parked);
            }
            Message::Consume {
                client,
                attempt,
                partition,
                from: offset,
                current_leader_epoch,
                last_fetched_epoch,
            } => {
                let spec = ReadSpec {
                    from: offset,
                    max_bytes: 100 + self.random.below(4_000),
                    at_least_one: true,
                    current_leader_epoch: Some(current_leader_epoch),
                    last_fetched_epoch,
                    reader: Reader::Consumer {
                        isolation: Isolation::ReadUncommitted,
                    },
                };
                let answer = self.with_partition(broker, partition, |it, now, fx| {
                    (it.leader_hint().leader_epoch, it.read(spec, now, fx))
                });
                let (answered_under, result) = match answer {
                    Some((epoch, Ok(outcome))) => {
                        let read = Read {
                            records: outcome.records,
                            diverging: outcome.diverging,
                        };
                        (epoch, Ok(read))
                    }
                    Some((epoch, Err(error))) => (epoch, Err(code_and_start(&error))),
                    None => (
                        LeaderEpoch::UNKNOWN,
                        Err((ErrorCode::NotLeaderOrFollower, None)),
                    ),
                };
                self.send(
                    Peer::Broker(broker),
                    Peer::Client(client),
                    None,
                    Message::ConsumeAnswer {
                        attempt,
                        broker,
                        answered_under,
                        result,
                    },
                );
            }
            Message::Latest {
                client,
                attempt,
                partition,
                current_leader_epoch,
            } => {
                let reader = Reader::Consumer {
                    isolation: Isolation::ReadUncommitted,
                };
                let answer = self.with_partition(broker, partition, |it, _, fx| {
                    let epoch = it.leader_hint().leader_epoch;
                    let latest =
                        it.list_offset(OffsetQuery::Latest, Some(current_leader_epoch), reader, fx);
                    (epoch, latest)
                });
                let (answered_under, result) = match answer {
                    Some((epoch, Ok(found))) => (
                        epoch,
                        found
                            .map(|found| found.offset)
                            .ok_or(ErrorCode::UnknownServerError),
                    ),
                    Some((epoch, Err(error))) => (epoch, Err(ErrorCode::from(&error))),
                    None => (LeaderEpoch::UNKNOWN, Err(ErrorCode::NotLeaderOrFollower)),
                };
                self.send(
                    Peer::Broker(broker),
                    Peer::Client(client),
                    None,
                    Message::LatestAnswer {
                        attempt,
                        answered_under,
                        result,
                    },
                );
            }
            _ => {}
        }
    }

    fn answer(&mut self, broker: BrokerId, to: Peer, to_run: u64, message: Message) {
        self.send(Peer::Broker(broker), to, Some(to_run), message);
    }

    fn append(&mut self, broker: BrokerId, number: PartitionNumber, batch: &[u8], asked: Parking) {
        let deadline = self.now().monotonic + Duration::from_millis(600);
        let appended = self.with_partition(broker, number, |it, now, fx| {
            it.admit(asked.acks)?;
            let mut bytes = batch.to_vec();
            it.append(&mut bytes, now, fx)
        });
        let appended = match appended {
            Some(Ok(appended)) => appended,
            Some(Err(error)) => {
                let code = ErrorCode::from(&error);
                return self.answer_producer(broker, asked.client, asked.attempt, Err(code));
            }
            None => {
                let code = ErrorCode::NotLeaderOrFollower;
                return self.answer_producer(broker, asked.client, asked.attempt, Err(code));
            }
        };
        let parked = Parked {
            client: asked.client,
            attempt: asked.attempt,
            values: asked.values,
            producer: asked.producer,
            appended,
        };
        if asked.acks == Acks::Leader {
            self.acknowledged(broker, number, &parked, false);
            let offset = parked.appended.base_offset;
            self.answer_producer(broker, parked.client, parked.attempt, Ok(offset));
            return;
        }
        let Some(process) = &mut self.node(broker).process else {
            return;
        };
        let token = process.next_token;
        process.next_token += 1;
        process.parked.insert(token, parked);
        self.with_partition(broker, number, |it, _, fx| {
            it.park(appended.until, deadline, token, fx);
        });
    }

    fn answer_producer(
        &mut self,
        broker: BrokerId,
        client: usize,
        attempt: u64,
        result: Result<Offset, ErrorCode>,
    ) {
        self.send(
            Peer::Broker(broker),
            Peer::Client(client),
            None,
            Message::ProduceAnswer { attempt, result },
        );
    }

    fn acknowledged(
        &mut self,
        broker: BrokerId,
        partition: PartitionNumber,
        parked: &Parked,
        all: bool,
    ) {
        let led_under = self
            .hosted(broker, partition)
            .and_then(|hosted| hosted.partition.leader())
            .map(|leader| leader.leader_epoch());
        for (place, value) in parked.values.iter().enumerate() {
            self.tally.acked += 1;
            let offset = parked.appended.base_offset.plus(place as i64);
            self.digest(&[1, broker.0 as u64, offset.0 as u64, *value]);
            self.note(|| {
                format!("broker {broker}, partition {partition}: acknowledges {value} at {offset}, all: {all}")
            });
            self.checkers.event(&Event::Acked {
                partition,
                broker,
                producer: parked.producer,
                value: *value,
                offset,
                all,
                appended_under: parked.appended.leader_epoch,
                led_under,
            });
        }
    }

    fn fetched(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        ticket: &Ticket,
        request: u64,
        result: Result<Fetched, (ErrorCode, Option<Offset>)>,
    ) {
        self.request_ended(broker, number, request);
        let more = matches!(&result, Ok(fetched) if !fetched.records.is_empty() || fetched.diverging.is_some());
        if !matches!(&result, Ok(fetched) if fetched.records.is_empty() && fetched.diverging.is_none())
        {
            self.note(|| {
                let told = match &result {
                    Ok(fetched) => format!(
                        "{} bytes, high watermark {}, diverging {:?}",
                        fetched.records.len(),
                        fetched.high_watermark,
                        fetched.diverging
                    ),
                    Err(error) => format!("{error:?}"),
                };
                format!(
                    "broker {broker}, partition {number}: fetched from {} in epoch {}: {told}",
                    ticket.offset, ticket.leader_epoch
                )
            });
        }
        self.with_partition(broker, number, |it, now, fx| match result {
            Ok(fetched) => {
                it.on_fetched(ticket, &fetched, now, fx);
                fx.fetcher_ready &= more;
            }
            Err((code, start)) => {
                let failure = FetchFailure::from_error(code as i16, start);
                it.on_fetch_error(ticket, failure, now, fx);
            }
        });
    }

    /// Asks the leader what the follower wants to know, unless a question is under way.
    pub(super) fn fetch_now(&mut self, broker: BrokerId, number: PartitionNumber) {
        let now = self.now();
        let node = self.node(broker);
        let run = node.run;
        let Some(process) = &mut node.process else {
            return;
        };
        let broker_epoch = process.broker_epoch.unwrap_or(BrokerEpoch::UNKNOWN);
        let Some(hosted) = process.hosted.get_mut(&number) else {
            return;
        };
        if hosted.fetching.is_some() {
            return;
        }
        let request = process.next_request;
        let (leader, ticket, message) = match hosted.partition.next_step(now) {
            FollowerStep::EpochEnd {
                leader,
                epoch,
                current_leader_epoch,
                ticket,
            } => {
                let message = Message::EpochEnd {
                    partition: number,
                    run,
                    epoch,
                    current_leader_epoch,
                    ticket,
                    request,
                };
                (leader, ticket, message)
            }
            FollowerStep::Fetch {
                leader,
                offset,
                last_fetched_epoch,
                current_leader_epoch,
                ticket,
                ..
            } => {
                let message = Message::Fetch {
                    partition: number,
                    run,
                    broker_epoch,
                    offset,
                    last_fetched_epoch,
                    current_leader_epoch,
                    ticket,
                    request,
                };
                (leader, ticket, message)
            }
            FollowerStep::Nothing => return,
        };
        process.next_request += 1;
        hosted.fetching = Some(request);
        self.send(Peer::Broker(broker), Peer::Broker(leader), None, message);
        let patience = self.between(80_000, 300_000);
        self.plan_in(
            patience,
            Happening::FetchTimeout {
                broker,
                run,
                partition: number,
                request,
                ticket,
            },
        );
    }

    pub(super) fn fetch_timed_out(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        request: u64,
        ticket: &Ticket,
    ) {
        if self.request_ended(broker, number, request) {
            self.with_partition(broker, number, |it, now, fx| {
                it.on_fetch_error(ticket, FetchFailure::Retry, now, fx);
            });
        }
    }

    /// Whether that request was still under way.
    fn request_ended(&mut self, broker: BrokerId, number: PartitionNumber, request: u64) -> bool {
        let Some(hosted) = self.hosted(broker, number) else {
            return false;
        };
        let current = hosted.fetching == Some(request);
        if current {
            hosted.fetching = None;
        }
        current
    }

    pub(super) fn flush_done(&mut self, broker: BrokerId, number: PartitionNumber) {
        let Some(job) = self
            .hosted(broker, number)
            .and_then(|hosted| hosted.flush.take())
        else {
            return;
        };
        let result = job.run();
        self.with_partition(broker, number, |it, now, fx| {
            it.finish_flush(job, result, now, fx);
        });
    }

    pub(super) fn alter_timed_out(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        proposal: u64,
    ) {
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        if hosted.altering == Some(proposal) {
            hosted.altering = None;
            self.with_partition(broker, number, |it, now, fx| {
                it.isr_decided(proposal, IsrReply::Unanswered, now, fx);
            });
        }
    }

    pub(super) fn hosted(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
    ) -> Option<&mut Hosted> {
        self.node(broker).process.as_mut()?.hosted.get_mut(&number)
    }

    /// Runs `act` on a replica and carries out what it asks for. `None` if the process holds no such replica.
    pub(super) fn with_partition<R>(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        act: impl FnOnce(&mut Partition<SimDir, Token>, Now, &mut Effects<Token>) -> R,
    ) -> Option<R> {
        let mut now = self.now();
        now.wall.0 += self.nodes[&broker].wall_offset;
        let mut fx = Effects::default();
        let hosted = self.hosted(broker, number)?;
        let result = act(&mut hosted.partition, now, &mut fx);
        self.watch_leader(broker, number);
        self.carry_out(broker, number, fx);
        Some(result)
    }

    fn carry_out(&mut self, broker: BrokerId, number: PartitionNumber, fx: Effects<Token>) {
        let run = self.nodes[&broker].run;
        for (token, result) in fx.completed {
            self.produce_ended(broker, number, token, result);
        }
        if let Some(proposal) = fx.propose_isr {
            self.note(|| format!("broker {broker}, partition {number}: proposes {proposal:?}"));
            let Some(process) = &mut self.node(broker).process else {
                return;
            };
            let broker_epoch = process.broker_epoch.unwrap_or(BrokerEpoch::UNKNOWN);
            // Whom the controllers have left in the ISR may stay there; only new members are asked about.
            let hosted = process.hosted.get(&number);
            let committed =
                hosted.and_then(|hosted| Some(hosted.partition.leader()?.isr().committed()));
            let not_admissible = proposal
                .new_isr
                .iter()
                .map(|(member, _)| *member)
                .filter(|member| committed.is_none_or(|isr| !isr.contains(member)))
                .filter(|member| !process.image.is_active(*member))
                .collect();
            let mut again = false;
            if let Some(hosted) = process.hosted.get_mut(&number) {
                hosted.altering = Some(proposal.number);
                again = hosted.proposed.replace(proposal.number) == Some(proposal.number);
            }
            // A proposal that is sent again may have been decided already: it must not be another one.
            if !again {
                self.checkers.event(&Event::IsrProposed {
                    partition: number,
                    leader: broker,
                    not_admissible,
                });
            }
            let patience = self.between(300_000, 800_000);
            self.plan_in(
                patience,
                Happening::AlterTimeout {
                    broker,
                    run,
                    partition: number,
                    number: proposal.number,
                },
            );
            self.send(
                Peer::Broker(broker),
                Peer::Controller,
                None,
                Message::Alter {
                    partition: number,
                    run,
                    broker_epoch,
                    proposal,
                },
            );
        }
        if let Some(truncation) = fx.truncated {
            self.tally.truncations += 1;
            self.digest(&[2, broker.0 as u64, truncation.to.0 as u64]);
            self.cut_off.push((number, broker, truncation));
            self.note(|| format!("broker {broker}, partition {number}: {truncation:?}"));
        }
        if let Some(misfit) = fx.misfit {
            self.note(|| format!("broker {broker}, partition {number}: {misfit}"));
        }
        if fx.log_dirty {
            self.begin_flush(broker, number, run);
        }
        if fx.fetcher_ready {
            self.fetch_now(broker, number);
        }
        if let Some(failure) = fx.storage_failed {
            self.note(|| format!("broker {broker}, partition {number}: {failure}"));
            let delay = self.between(100, 10_000);
            self.plan_in(delay, Happening::DiskDied { broker, run });
        }
    }

    fn begin_flush(&mut self, broker: BrokerId, number: PartitionNumber, run: u64) {
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        if hosted.flush.is_some() {
            return;
        }
        hosted.flush = hosted.partition.begin_flush();
        if hosted.flush.is_none() {
            return;
        }
        let slow = self.rough && self.random.below(100) == 0;
        let delay = if slow {
            self.between(20_000, 700_000)
        } else {
            self.between(200, 4_000)
        };
        self.plan_in(
            delay,
            Happening::FlushDone {
                broker,
                run,
                partition: number,
            },
        );
    }

    fn produce_ended(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        token: Token,
        result: Result<(), ProduceError>,
    ) {
        let Some(parked) = self
            .node(broker)
            .process
            .as_mut()
            .and_then(|process| process.parked.remove(&token))
        else {
            return;
        };
        if result.is_ok() {
            self.acknowledged(broker, number, &parked, true);
        }
        let result = result
            .map(|()| parked.appended.base_offset)
            .map_err(|error| ErrorCode::from(&error));
        self.answer_producer(broker, parked.client, parked.attempt, result);
    }

    /// Tells the checkers when a replica begins to lead and when its high watermark moves.
    fn watch_leader(&mut self, broker: BrokerId, number: PartitionNumber) {
        let run = self.nodes[&broker].run;
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        let Some(leader) = hosted.partition.leader() else {
            hosted.led = None;
            return;
        };
        let leader_epoch = leader.leader_epoch();
        let committed_isr = leader.isr().committed().len();
        let min_isr = leader.min_isr();
        let high_watermark = hosted.partition.high_watermark();
        let began = hosted.led != Some(leader_epoch);
        let before = if began {
            Offset::ZERO
        } else {
            hosted.high_watermark
        };
        hosted.led = Some(leader_epoch);
        hosted.high_watermark = high_watermark;
        if began {
            self.note(|| {
                format!("broker {broker}, partition {number}: leads in epoch {leader_epoch}, high watermark {high_watermark}")
            });
            self.checkers.event(&Event::Led {
                partition: number,
                broker,
                run,
                leader_epoch,
            });
            return;
        }
        if before == high_watermark {
            return;
        }
        self.digest(&[3, broker.0 as u64, high_watermark.0 as u64]);
        let holders = self.holders(broker, number, high_watermark);
        self.checkers.event(&Event::HighWatermark {
            partition: number,
            broker,
            leader_epoch,
            from: before,
            to: high_watermark,
            committed_isr,
            min_isr,
            holders,
        });
        self.write_ledger(broker, number, leader_epoch, high_watermark);
    }

    /// Notes what has become visible. What was visible before must be the same.
    /// What leaders say whom an unclean election has replaced counts only as far as that election has kept it.
    fn write_ledger(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        leader_epoch: LeaderEpoch,
        end: Offset,
    ) {
        let from = self.ledgers[number].end();
        let end = end.min(self.ledgers[number].cuts().firm_below(leader_epoch));
        if end <= from {
            return;
        }
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        let (log_start, epoch) = {
            let log = hosted.partition.log();
            let start = log.start_offset();
            (start, log.leader_epochs().epoch_at(start))
        };
        let given_up = !self.ledgers[number].cuts().is_empty();
        if from < log_start && given_up {
            // An unclean leader whose log begins beyond all that was kept: nobody will ever see what lies between.
            let gone = Logged {
                epoch: epoch.unwrap_or(leader_epoch),
                value: u64::MAX,
            };
            while self.ledgers[number].end() < log_start.min(end) {
                self.ledgers[number].push(gone);
            }
            self.deleted[number] = self.deleted[number].max(log_start.min(end));
            return self.write_ledger(broker, number, leader_epoch, end);
        }
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        let found = match records::read_log(hosted.partition.log(), from, end) {
            Ok(found) => found,
            Err(what) => {
                self.not_healed(format!(
                    "broker {broker}, partition {number}: what became visible in [{from}, {end}) cannot be read: {what}"
                ));
                return;
            }
        };
        for (offset, record) in found {
            if offset == self.ledgers[number].end() && offset < end {
                self.ledgers[number].push(record);
                self.checkers.event(&Event::Committed {
                    partition: number,
                    broker,
                    leader_epoch,
                    offset,
                    record,
                });
            }
        }
    }
}

/// What a produce asked for.
struct Parking {
    client: usize,
    attempt: u64,
    acks: Acks,
    values: Vec<u64>,
    producer: Option<u64>,
}

impl Hosted {
    fn new(partition: Partition<SimDir, Token>) -> Self {
        Self {
            partition,
            flush: None,
            fetching: None,
            altering: None,
            proposed: None,
            led: None,
            high_watermark: Offset::ZERO,
        }
    }
}

fn code_and_start(error: &ReadError) -> (ErrorCode, Option<Offset>) {
    let start = match error {
        ReadError::OffsetOutOfRange { log_start, .. } => Some(*log_start),
        _ => None,
    };
    (ErrorCode::from(error), start)
}

/// Whether a process leads partitions, and none of them has another replica in service that might take over.
fn leads_in_vain(me: BrokerId, process: &Process) -> bool {
    let image = &process.image;
    let mut led = image
        .partitions()
        .filter(|(_, _, partition)| partition.leader == Some(me))
        .peekable();
    led.peek().is_some()
        && led.all(|(_, _, partition)| {
            let mut others = partition.replicas.iter().filter(|replica| **replica != me);
            !others.any(|replica| image.is_active(*replica))
        })
}

fn directory_name(plan: &Plan, number: PartitionNumber) -> String {
    format!("{}-{number}", plan.topic_of(number).name)
}

fn terms(plan: &Plan, number: PartitionNumber) -> Terms {
    Terms {
        min_insync_replicas: plan.topic_of(number).min_isr,
        durability: plan.durability,
        replica_lag_time_max: plan.replica_lag_time_max,
        isr_retry_backoff: Duration::from_millis(50),
    }
}

fn log_config(plan: &Plan) -> LogConfig {
    LogConfig {
        segment_bytes: plan.segment_bytes,
        retention_ms: None,
        preallocate: false,
        ..LogConfig::default()
    }
}

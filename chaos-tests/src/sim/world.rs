//! The world of one run: everything in it, what may happen next, and the four acts.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::random::Random;
use kuorum_broker::partition::Truncation;
use kuorum_metadata::image::{MetadataImage, PartitionImage};
use kuorum_metadata::record::{MetadataRecord, RecordBatch};
use kuorum_metadata::rpc::{AlterPartition, AlterPartitionRequest};
use kuorum_protocol::{BrokerId, LeaderEpoch, Now, Offset, PartitionIndex, TopicId};
use kuorum_replication::Ticket;

use super::broker::Node;
use super::clients::Clients;
use super::controller::Controller;
use super::network::{Envelope, Message, Network, Peer};
use super::plan::{Plan, TELEMETRY};
use super::queue::Queue;
use super::{Options, Outcome, Tally};
use crate::checkers::{Checkers, Event, Ledger, NOT_SEEN, PartitionNumber, converged};

/// How long the cluster may take to come up, or to come together after everything is mended.
const PATIENCE: Duration = Duration::from_secs(40);
/// How many of the last events a trace keeps.
const TRACE_LENGTH: usize = 400;

/// What may happen.
#[derive(Debug)]
pub(super) enum Happening {
    Deliver(Envelope),
    /// A process looks for something to fetch.
    FetchPoll {
        broker: BrokerId,
        run: u64,
    },
    FetchTimeout {
        broker: BrokerId,
        run: u64,
        partition: PartitionNumber,
        request: u64,
        ticket: Ticket,
    },
    FlushDone {
        broker: BrokerId,
        run: u64,
        partition: PartitionNumber,
    },
    AlterTimeout {
        broker: BrokerId,
        run: u64,
        partition: PartitionNumber,
        number: u64,
    },
    Tick {
        broker: BrokerId,
        run: u64,
    },
    Register {
        broker: BrokerId,
        run: u64,
    },
    Heartbeat {
        broker: BrokerId,
        run: u64,
    },
    Feed {
        broker: BrokerId,
        run: u64,
    },
    Checkpoint {
        broker: BrokerId,
        run: u64,
    },
    DiskDied {
        broker: BrokerId,
        run: u64,
    },
    Restart {
        broker: BrokerId,
        run: u64,
    },
    ConnectionLost {
        broker: BrokerId,
        run: u64,
    },
    ControllerTick,
    ControllerBack,
    /// A deposed controller learns that it is one.
    FormerLearns,
    Produce {
        client: usize,
    },
    ProduceTimeout {
        client: usize,
        attempt: u64,
    },
    Consume {
        client: usize,
    },
    Fault,
    Mend {
        from: Peer,
        to: Peer,
    },
    /// A move of replicas is in its middle.
    HurtMove {
        partition: PartitionNumber,
    },
}

/// One run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) queue: Queue<Happening>,
    pub(super) random: Random,
    pub(super) network: Network,
    pub(super) controller: Controller,
    pub(super) nodes: BTreeMap<BrokerId, Node>,
    pub(super) clients: Clients,
    /// The partitions of all topics, by number; empty until they are created.
    pub(super) partitions: Vec<(TopicId, PartitionIndex)>,
    pub(super) ledgers: Vec<Ledger>,
    /// Where each partition has been cut off at its beginning, on request.
    pub(super) deleted: Vec<Offset>,
    pub(super) checkers: Checkers,
    pub(super) tally: Tally,
    /// Whether faults still happen.
    pub(super) rough: bool,
    /// What is decided now, somebody has asked for by hand.
    pub(super) by_hand: bool,
    /// Every end of a log that was cut off.
    pub(super) cut_off: Vec<(PartitionNumber, BrokerId, Truncation)>,
    digest: u64,
    options: Options,
    trace: Trace,
}

/// The last events, kept outside of the world so that they outlive a panic in it.
pub(super) type Trace = Rc<RefCell<VecDeque<String>>>;

impl World {
    /// The world of a plan, before the first event.
    pub(super) fn new(plan: Plan, options: Options, trace: Trace) -> Self {
        let queue = Queue::new();
        let controller = Controller::new(&plan, queue.now());
        let mut random = Random::new(plan.seed);
        let nodes = (1..=plan.brokers as i32)
            .map(|id| (BrokerId(id), Node::new(BrokerId(id), &mut random)))
            .collect();
        Self {
            queue,
            network: Network::new(plan.network),
            controller,
            nodes,
            clients: Clients::new(&plan),
            partitions: Vec::new(),
            ledgers: Vec::new(),
            deleted: Vec::new(),
            checkers: Checkers::default(),
            tally: Tally::default(),
            rough: false,
            by_hand: false,
            cut_off: Vec::new(),
            digest: 0xcbf2_9ce4_8422_2325,
            options,
            trace,
            random,
            plan,
        }
    }

    /// Plays all four acts, or up to the first violation.
    pub(super) fn play(mut self) -> Outcome {
        let acts = [Self::come_up, Self::be_hurt, Self::heal, Self::be_probed];
        for act in acts {
            if self.checkers.found().is_none() {
                act(&mut self);
            }
        }
        self.tally.deposed = self.controller.skipped;
        Outcome {
            seed: self.plan.seed,
            plan: self.plan.to_string(),
            tally: self.tally,
            digest: self.digest,
            violation: self.checkers.found().cloned(),
            trace: Vec::new(),
        }
    }

    /// Act one: brokers register, the topic is created, replication begins.
    pub(super) fn come_up(&mut self) {
        let brokers: Vec<BrokerId> = self.nodes.keys().copied().collect();
        for broker in brokers {
            self.start_process(broker);
        }
        self.plan_in(Duration::from_millis(10), Happening::ControllerTick);
        let up = self.run_until(PATIENCE, |world| {
            let image = world.controller.image();
            world.nodes.keys().all(|id| image.is_active(*id))
        });
        if !up {
            return self.not_healed("the brokers did not come up".to_owned());
        }
        let now = self.now();
        let random = &mut self.random;
        if !self.controller.create_topics(&self.plan, random, now) {
            return self.not_healed("a topic was refused".to_owned());
        }
        let image = self.controller.image();
        self.partitions = self
            .plan
            .topic_of_partitions()
            .filter_map(|(topic, index)| Some((image.topic(topic.name)?.id, index)))
            .collect();
        self.ledgers = self.partitions.iter().map(|_| Ledger::default()).collect();
        self.deleted = self.partitions.iter().map(|_| Offset::ZERO).collect();
        self.start_clients();
        self.await_convergence("the topic did not come up");
    }

    /// Act two: load and faults.
    fn be_hurt(&mut self) {
        self.resume_producers();
        self.rough = true;
        self.network.set_rough(true);
        self.plan_fault();
        self.run_for(self.plan.rough);
    }

    /// Act three: everything is mended, and must come together.
    fn heal(&mut self) {
        self.rough = false;
        self.network.set_rough(false);
        self.network.mend_all();
        let now = self.now();
        self.controller.former_learns();
        if !self.controller.is_active() {
            self.controller.take_office(now);
            self.look();
        }
        if self.plan.faults.wipe > 0 || self.random.below(2) == 0 {
            // What lost its last replica can be led again only at a loss.
            self.set_policy(TELEMETRY, true);
        }
        let brokers: Vec<BrokerId> = self.nodes.keys().copied().collect();
        for broker in brokers {
            self.set_draining(broker, false);
            self.mend_node(broker);
        }
        self.run_for(Duration::from_secs(2));
        self.await_convergence("the cluster did not heal");
    }

    /// Stops the producers and waits until all of them are answered and all replicas are alike.
    pub(super) fn await_convergence(&mut self, otherwise: &str) {
        self.clients.stop_producing();
        let mut last = String::new();
        let mut next_look = Duration::ZERO;
        let together = self.run_until(PATIENCE, |world| {
            if world.queue.elapsed() < next_look {
                return false;
            }
            next_look = world.queue.elapsed() + Duration::from_millis(50);
            if let Some(waiting) = world.clients.waiting() {
                last = format!("a producer still waits: {waiting}");
                return false;
            }
            match converged(&world.state(false)) {
                Ok(()) => true,
                Err(what) => {
                    last = what;
                    false
                }
            }
        });
        if !together && self.checkers.found().is_none() {
            self.not_healed(format!("{otherwise}: {last}"));
        }
    }

    pub(super) fn not_healed(&mut self, what: String) {
        self.checkers.event(&Event::NotHealed { what });
    }

    /// Lets things happen for `span`.
    pub(super) fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Lets things happen until `done`, for `span` at most, or until a violation. Whether `done` was reached.
    pub(super) fn run_until(
        &mut self,
        span: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let until = self.queue.elapsed() + span;
        loop {
            if self.checkers.found().is_some() {
                return false;
            }
            if done(self) {
                return true;
            }
            let Some(happening) = self.queue.next(until) else {
                return false;
            };
            self.tally.events += 1;
            self.digest_event(&happening);
            self.happen(happening);
            if self.tally.events.is_multiple_of(97) {
                self.look();
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some((broker, run)) = process_of(&happening) {
            let node = &self.nodes[&broker];
            if node.run() != run || !node.is_up() {
                return; // that process is gone
            }
            if let Some(pause) = node.pause_left(self.queue.elapsed()) {
                self.queue.plan(pause, happening);
                return;
            }
        }
        match happening {
            Happening::Deliver(envelope) => self.deliver(envelope),
            Happening::FetchPoll { broker, run } => {
                let again = self.between(15_000, 35_000);
                self.plan_in(again, Happening::FetchPoll { broker, run });
                for partition in self.nodes[&broker].hosted() {
                    self.fetch_now(broker, partition);
                }
            }
            Happening::FetchTimeout {
                broker,
                partition,
                request,
                ticket,
                ..
            } => self.fetch_timed_out(broker, partition, request, &ticket),
            Happening::FlushDone {
                broker, partition, ..
            } => self.flush_done(broker, partition),
            Happening::AlterTimeout {
                broker,
                partition,
                number,
                ..
            } => self.alter_timed_out(broker, partition, number),
            Happening::Tick { broker, run } => {
                self.plan_in(Duration::from_millis(20), Happening::Tick { broker, run });
                for partition in self.nodes[&broker].hosted() {
                    self.with_partition(broker, partition, |it, now, fx| it.tick(now, fx));
                }
            }
            Happening::Register { broker, run } => self.register(broker, run),
            Happening::Heartbeat { broker, run } => self.heartbeat(broker, run),
            Happening::Feed { broker, run } => self.feed(broker, run),
            Happening::Checkpoint { broker, run } => {
                self.plan_in(
                    Duration::from_millis(500),
                    Happening::Checkpoint { broker, run },
                );
                self.checkpoint(broker);
            }
            Happening::DiskDied { broker, .. } => self.disk_died(broker),
            Happening::Restart { broker, run } => {
                let node = &self.nodes[&broker];
                if node.run() == run && !node.is_up() {
                    self.start_process(broker);
                }
            }
            Happening::ConnectionLost { broker, run } => {
                let now = self.now();
                self.controller.connection_lost(broker, run, now);
            }
            Happening::ControllerTick => {
                self.plan_in(Duration::from_millis(20), Happening::ControllerTick);
                let now = self.now();
                self.decided(|controller, _| controller.former_ticks(now));
                self.look_for_missing(now);
                self.decided(|controller, _| controller.tick(now));
            }
            Happening::FormerLearns => self.controller.former_learns(),
            Happening::ControllerBack => {
                let now = self.now();
                if !self.controller.is_active() {
                    self.note(|| "another controller takes office".to_owned());
                    self.decided(|controller, _| controller.take_office(now));
                }
            }
            Happening::Produce { client } => self.produce(client),
            Happening::ProduceTimeout { client, attempt } => {
                self.produce_timed_out(client, attempt)
            }
            Happening::Consume { client } => self.consume(client),
            Happening::Fault => self.fault(),
            Happening::Mend { from, to } => self.network.mend(from, to),
            Happening::HurtMove { partition } => self.hurt_move(partition),
        }
    }

    /// Lets the controllers decide something, and looks at what they decided.
    pub(super) fn decided<R>(
        &mut self,
        decide: impl FnOnce(&mut Controller, &mut Random) -> R,
    ) -> R {
        let before = self.controller.image().clone();
        let end = self.controller.end();
        let result = decide(&mut self.controller, &mut self.random);
        if self.controller.end() == end {
            return result;
        }
        for (number, (topic, index)) in self.partitions.clone().into_iter().enumerate() {
            let image = self.controller.image();
            let (Some(old), Some(new)) = (
                before.partition(topic, index).cloned(),
                image.partition(topic, index).cloned(),
            ) else {
                continue;
            };
            if old.last_unclean_epoch != new.last_unclean_epoch {
                self.elected_uncleanly(number, &before, &new);
            }
            if old.leader_epoch != new.leader_epoch {
                self.tally.elections += 1;
                let cause = self.controller.causes(end, topic, index);
                self.note(|| {
                    format!(
                        "decided: partition {number} led by {:?} in epoch {}, ISR {:?} ({cause})",
                        new.leader, new.leader_epoch, new.isr
                    )
                });
            }
            if old.isr != new.isr {
                self.tally.isr_changes += 1;
                let cause = self.controller.causes(end, topic, index);
                self.note(|| {
                    format!(
                        "decided: partition {number} ISR {:?} -> {:?} ({cause})",
                        old.isr, new.isr
                    )
                });
                // Whoever was in the ELR is elected from there, and needs nobody's leave. Two whose sessions end in one tick are
                // fenced one after the other, and the second may have been elected in between.
                let image = self.controller.image();
                let not_admissible = new
                    .isr
                    .iter()
                    .copied()
                    .filter(|member| !old.isr.contains(member))
                    .filter(|member| !image.is_active(*member) && !before.is_active(*member))
                    .collect();
                self.checkers.event(&Event::IsrChanged {
                    partition: number,
                    from: old.isr.clone(),
                    to: new.isr.clone(),
                    not_admissible,
                    cause,
                });
            }
        }
        self.watch_moves(before, end);
        self.look();
        result
    }

    /// Tells the checkers of every change of a partition's replicas in the entries from `from` on.
    fn watch_moves(&mut self, mut image: MetadataImage, from: i64) {
        let entries: Vec<(i64, RecordBatch)> = self
            .controller
            .entries(from)
            .map(|(offset, batch)| (offset, batch.clone()))
            .collect();
        let moves = |record: &MetadataRecord| match record {
            MetadataRecord::PartitionChange(change) => change.replicas.is_some(),
            _ => false,
        };
        if !entries
            .iter()
            .any(|(_, batch)| batch.records.iter().any(moves))
        {
            return;
        }
        for (offset, batch) in entries {
            let before = image.clone();
            let _ = image.apply_batch(offset, &batch);
            for number in 0..self.partitions.len() {
                let (topic, index) = self.partitions[number];
                let (Some(old), Some(new)) = (
                    before.partition(topic, index),
                    image.partition(topic, index),
                ) else {
                    continue;
                };
                if old.replicas == new.replicas && old.is_reassigning() == new.is_reassigning() {
                    continue;
                }
                let name = self.plan.topic_of(number).name;
                let cancelled = self
                    .controller
                    .causes(offset, topic, index)
                    .contains("cancelled");
                let event = Event::ReplicasChanged {
                    partition: number,
                    before: Arc::clone(old),
                    after: Arc::clone(new),
                    cancelled,
                    may_lose: image.unclean_election_allowed(name),
                };
                self.note(|| {
                    format!(
                        "decided: partition {number} on {:?} of {:?}, in epoch {}",
                        new.target_replicas(),
                        new.replicas,
                        new.leader_epoch
                    )
                });
                if old.is_reassigning() && !new.is_reassigning() {
                    match cancelled {
                        true => self.tally.taken_back += 1,
                        false => self.tally.moves += 1,
                    }
                }
                self.checkers.event(&event);
            }
        }
    }

    /// The controllers have elected a leader that may lack records.
    fn elected_uncleanly(
        &mut self,
        number: PartitionNumber,
        before: &MetadataImage,
        new: &PartitionImage,
    ) {
        let (Some(leader), Some(leader_epoch)) = (new.leader, new.last_unclean_epoch) else {
            return;
        };
        let name = self.plan.topic_of(number).name;
        let allowed = self.by_hand
            || before.unclean_election_allowed(name)
            || self.controller.image().unclean_election_allowed(name);
        let keeps = self.held_by(number, leader);
        let end = self.ledgers[number].end();
        self.note(|| {
            format!("decided: partition {number} is led uncleanly by {leader} in epoch {leader_epoch}, which keeps {keeps} of {end}")
        });
        self.tally.unclean_elections += 1;
        self.tally.given_up += (end.0 - keeps.0) as u64;
        let kept = keeps.max(self.deleted[number]);
        let gives_up = (kept.0..end.0)
            .filter_map(|offset| Some((Offset(offset), self.ledgers[number].get(Offset(offset))?)))
            .filter(|(_, record)| record.value != NOT_SEEN)
            .collect();
        self.ledgers[number].abandon(leader_epoch, keeps);
        self.deleted[number] = self.deleted[number].min(keeps);
        self.checkers.event(&Event::UncleanElection {
            partition: number,
            leader,
            leader_epoch,
            keeps,
            gives_up,
            allowed,
        });
    }

    /// Shows the checkers how things stand.
    pub(super) fn look(&mut self) {
        if self.partitions.is_empty() {
            return;
        }
        let state = state_of(
            &self.plan,
            &self.controller,
            &mut self.nodes,
            &self.partitions,
            &self.ledgers,
            &self.deleted,
            false,
        );
        self.checkers.state(&state);
    }

    /// Sends a message.
    pub(super) fn send(&mut self, from: Peer, to: Peer, to_run: Option<u64>, message: Message) {
        let envelope = Envelope {
            from,
            to,
            to_run,
            message,
        };
        for delay in self.network.arrivals(from, to, &mut self.random) {
            self.tally.messages += 1;
            self.queue.plan(delay, Happening::Deliver(envelope.clone()));
        }
    }

    fn deliver(&mut self, envelope: Envelope) {
        match envelope.to {
            Peer::Broker(broker) => {
                let node = &self.nodes[&broker];
                if !node.is_up() || envelope.to_run.is_some_and(|run| run != node.run()) {
                    return;
                }
                if let Some(pause) = node.pause_left(self.queue.elapsed()) {
                    self.queue.plan(pause, Happening::Deliver(envelope));
                    return;
                }
                self.broker_hears(broker, envelope.from, envelope.message);
            }
            Peer::Controller => self.controller_hears(envelope.from, envelope.message),
            Peer::Client(client) => self.client_hears(client, envelope.message),
        }
    }

    /// A host that can be reached and whose process is gone refuses connections; a paused process does not.
    fn look_for_missing(&mut self, now: Now) {
        for (broker, epoch) in self.controller.missing(now) {
            let (here, there) = (Peer::Controller, Peer::Broker(broker));
            let cut = self.network.is_cut(here, there) || self.network.is_cut(there, here);
            if !cut && !self.nodes[&broker].is_up() {
                self.controller.refused(broker, epoch, now);
            }
        }
    }

    fn controller_hears(&mut self, from: Peer, message: Message) {
        let Peer::Broker(broker) = from else {
            return;
        };
        let now = self.now();
        let answer = match message {
            Message::Register { run, request } => {
                let node = &self.nodes[&broker];
                if node.run() != run || !node.is_up() {
                    return; // its connection died with it
                }
                let broker_epoch = self.decided(|controller, _| controller.register(&request, now));
                if broker_epoch.is_some() {
                    self.node(broker).registered();
                }
                Some((run, Message::RegisterAnswer { broker_epoch }))
            }
            Message::Heartbeat { run, request } => {
                let node = &self.nodes[&broker];
                if node.run() != run || !node.is_up() {
                    return;
                }
                let reply = self.decided(|controller, _| controller.heartbeat(run, &request, now));
                let may_shut_down = match reply {
                    Ok(reply) => reply.may_shut_down,
                    Err(code) => {
                        self.note(|| {
                            format!("broker {broker}: its heartbeat is refused, {code:?}")
                        });
                        false
                    }
                };
                if may_shut_down {
                    self.leave_given(broker);
                }
                Some((run, Message::HeartbeatAnswer { may_shut_down }))
            }
            Message::Alter {
                partition,
                run,
                broker_epoch,
                proposal,
            } => {
                let (topic_id, index) = self.partitions[partition];
                let request = AlterPartitionRequest {
                    broker_id: broker,
                    broker_epoch,
                    partitions: vec![AlterPartition {
                        topic_id,
                        partition: index,
                        leader_epoch: proposal.leader_epoch,
                        partition_epoch: proposal.partition_epoch,
                        new_isr: proposal.new_isr.clone(),
                        leader_recovery_state: proposal.leader_recovery_state,
                    }],
                };
                if self.controller.has_former() && self.random.below(2) == 0 {
                    self.decided(|controller, _| controller.former_alters(&request));
                    return; // he never answers
                }
                let reply = self.decided(|controller, _| controller.alter(&request));
                let number = proposal.number;
                Some((
                    run,
                    Message::AlterAnswer {
                        partition,
                        number,
                        reply,
                    },
                ))
            }
            _ => None,
        };
        if let Some((run, answer)) = answer {
            self.send(Peer::Controller, Peer::Broker(broker), Some(run), answer);
        }
    }

    /// The controllers have let a broker go.
    fn leave_given(&mut self, broker: BrokerId) {
        let image = self.controller.image();
        let numbered: Vec<(PartitionNumber, PartitionImage)> = self
            .partitions
            .iter()
            .enumerate()
            .filter_map(|(number, (topic, index))| {
                let partition = image.partition(*topic, *index)?;
                Some((number, PartitionImage::clone(partition)))
            })
            .collect();
        let those = |chosen: &dyn Fn(&PartitionImage) -> bool| {
            let chosen = numbered.iter().filter(|(_, partition)| chosen(partition));
            chosen.map(|(number, _)| *number).collect()
        };
        let leads = those(&|partition| partition.leader == Some(broker));
        let in_sync = those(&|partition| {
            partition.leader.is_some_and(|leader| leader != broker)
                && partition.isr.contains(&broker)
        });
        self.tally.leaves += 1;
        self.checkers.event(&Event::LeaveGiven {
            broker,
            leads,
            in_sync,
        });
    }

    pub(super) fn now(&self) -> Now {
        self.queue.now()
    }

    pub(super) fn plan_in(&mut self, delay: Duration, happening: Happening) {
        self.queue.plan(delay, happening);
    }

    pub(super) fn node(&mut self, broker: BrokerId) -> &mut Node {
        self.nodes
            .get_mut(&broker)
            .expect("every broker that is named is one of the plan's")
    }

    /// A random span between two, in microseconds.
    pub(super) fn between(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.random.below((to - from) as usize) as u64)
    }

    /// Notes what happens, for the trace and for the digest of the run.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if !self.options.trace {
            return;
        }
        let mut trace = self.trace.borrow_mut();
        if trace.len() == TRACE_LENGTH {
            trace.pop_front();
        }
        let at = self.queue.elapsed();
        trace.push_back(format!("{:>10.6} {}", at.as_secs_f64(), what()));
    }

    /// Mixes something that happened into the digest of the run.
    pub(super) fn digest(&mut self, parts: &[u64]) {
        for part in parts {
            self.digest = (self.digest ^ part).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Mixes an event into the digest: when it happens, to whom, and how much chance has been used so far.
    fn digest_event(&mut self, happening: &Happening) {
        let whom = match (happening, process_of(happening)) {
            (Happening::Deliver(envelope), _) => {
                peer_number(envelope.from) << 32 | peer_number(envelope.to)
            }
            (_, Some((broker, run))) => (broker.0 as u64) << 32 | run,
            _ => 0,
        };
        let at = self.queue.elapsed().as_nanos() as u64;
        self.digest(&[at, whom, self.random.state()]);
    }

    /// The epoch and end of everything visible, for probes.
    pub(super) fn visible(
        &self,
        partition: PartitionNumber,
    ) -> (Vec<(LeaderEpoch, Offset)>, Offset) {
        let ledger = &self.ledgers[partition];
        (ledger.epochs().to_vec(), ledger.end())
    }

    pub(super) fn state(&mut self, with_records: bool) -> crate::checkers::State<'_> {
        state_of(
            &self.plan,
            &self.controller,
            &mut self.nodes,
            &self.partitions,
            &self.ledgers,
            &self.deleted,
            with_records,
        )
    }

    /// The last look, at every record.
    pub(super) fn look_at_rest(&mut self) {
        let state = state_of(
            &self.plan,
            &self.controller,
            &mut self.nodes,
            &self.partitions,
            &self.ledgers,
            &self.deleted,
            true,
        );
        self.checkers.rest(&state);
    }
}

use super::view::state_of;

fn peer_number(peer: Peer) -> u64 {
    match peer {
        Peer::Controller => 0,
        Peer::Broker(broker) => 1 + broker.0 as u64,
        Peer::Client(client) => 1_000 + client as u64,
    }
}

/// The process something happens to, if it happens to one.
fn process_of(happening: &Happening) -> Option<(BrokerId, u64)> {
    match happening {
        Happening::FetchPoll { broker, run }
        | Happening::FetchTimeout { broker, run, .. }
        | Happening::FlushDone { broker, run, .. }
        | Happening::AlterTimeout { broker, run, .. }
        | Happening::Tick { broker, run }
        | Happening::Register { broker, run }
        | Happening::Heartbeat { broker, run }
        | Happening::Feed { broker, run }
        | Happening::Checkpoint { broker, run }
        | Happening::DiskDied { broker, run } => Some((*broker, *run)),
        _ => None,
    }
}

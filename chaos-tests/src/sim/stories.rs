//! Runs that are told instead of drawn: each step is asked for by name, between the steps things take their course, and
//! every checker looks on as ever.

use std::time::Duration;

use kuorum_broker::partition::Truncation;
use kuorum_metadata::image::PartitionImage;
use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::network::Peer;
use super::plan::Plan;
use super::world::{Trace, World};
use super::{Options, Tally};
use crate::checkers::{Logged, PartitionNumber};

/// Longer than any story.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A cluster in the middle of its story.
#[derive(Debug)]
pub struct Story {
    world: World,
    trace: Trace,
}

impl Story {
    /// A cluster that has just come up, with its topics.
    #[must_use]
    pub fn begin(plan: Plan) -> Self {
        let trace = Trace::default();
        let options = Options {
            trace: true,
            without: None,
        };
        let mut world = World::new(plan, options, Trace::clone(&trace));
        world.come_up();
        Self { world, trace }
    }

    /// Lets things happen.
    pub fn wait(&mut self, span: Duration) {
        self.world.run_for(span);
    }

    /// One batch of so many records, acks=all. The offset of the first, or why it was not acknowledged in time.
    ///
    /// # Errors
    /// The last answer, or `RequestTimedOut` if there was none.
    pub fn produce(
        &mut self,
        partition: PartitionNumber,
        records: u64,
        patience: Duration,
    ) -> Result<Offset, ErrorCode> {
        let Some(client) = self.world.producer_of(partition) else {
            return Err(ErrorCode::UnknownTopicOrPartition);
        };
        let until = self.world.queue.elapsed() + patience;
        loop {
            self.world.send_at_once(client, records);
            let left = until.saturating_sub(self.world.queue.elapsed());
            self.world
                .run_until(left, |world| world.is_answered(client));
            match self.world.last_answer(client) {
                None => return Err(ErrorCode::RequestTimedOut),
                // What it knew of its sequence is gone with an unclean election: the same as another producer.
                Some(Err(ErrorCode::OutOfOrderSequenceNumber)) if !left.is_zero() => {}
                Some(answer) => return answer,
            }
        }
    }

    /// The producer of a partition sends what comes next to that broker.
    pub fn mislead(&mut self, partition: PartitionNumber, broker: i32) {
        if let Some(client) = self.world.producer_of(partition) {
            self.world.mislead(client, BrokerId(broker));
        }
    }

    /// It and the controllers do not hear each other from now on.
    pub fn cut_off_from_controllers(&mut self, broker: i32) {
        let broker = Peer::Broker(BrokerId(broker));
        self.world.network.cut(broker, Peer::Controller);
        self.world.network.cut(Peer::Controller, broker);
    }

    /// Neither hears the other from now on.
    pub fn part(&mut self, one: i32, other: i32) {
        let (one, other) = (Peer::Broker(BrokerId(one)), Peer::Broker(BrokerId(other)));
        self.world.network.cut(one, other);
        self.world.network.cut(other, one);
    }

    /// Every link is whole again.
    pub fn mend(&mut self) {
        self.world.network.mend_all();
    }

    /// SIGKILL.
    pub fn kill(&mut self, broker: i32) {
        self.world.end_process(BrokerId(broker), false, NEVER);
    }

    /// The power goes, and with it what was not flushed.
    pub fn cut_power(&mut self, broker: i32) {
        self.world.end_process(BrokerId(broker), true, NEVER);
    }

    /// SIGTERM; the process ends when it is let go.
    pub fn shut_down(&mut self, broker: i32) {
        self.world.ask_to_leave(BrokerId(broker), NEVER);
    }

    /// Whether a process runs there.
    #[must_use]
    pub fn is_up(&self, broker: i32) -> bool {
        self.world.nodes[&BrokerId(broker)].is_up()
    }

    /// Starts a broker that is down.
    pub fn start(&mut self, broker: i32) {
        if !self.is_up(broker) {
            self.world.start_process(BrokerId(broker));
        }
    }

    /// DeleteRecords at the leader: where its log begins then.
    pub fn delete_records(&mut self, partition: PartitionNumber, before: i64) -> Option<Offset> {
        let leader = self.decided(partition).leader?;
        self.world
            .delete_records_at(leader, partition, Offset(before))
    }

    /// Changes a topic's unclean.leader.election.enable.
    pub fn allow_unclean(&mut self, topic: &str, allowed: bool) {
        self.world.set_policy(topic, allowed);
    }

    /// Elects by hand leaders that may lack records, where `topic` has none.
    pub fn elect_uncleanly(&mut self, topic: &str) {
        self.world.elect_uncleanly_by_hand(topic);
    }

    /// Moves a partition to other brokers; whether that was granted.
    pub fn reassign(&mut self, partition: PartitionNumber, replicas: &[i32]) -> bool {
        let replicas = replicas.iter().copied().map(BrokerId).collect();
        self.world.reassign(partition, Some(replicas))
    }

    /// Takes a move back; whether that was granted.
    pub fn cancel(&mut self, partition: PartitionNumber) -> bool {
        self.world.reassign(partition, None)
    }

    /// Nobody decides from now on.
    pub fn depose(&mut self) {
        self.world.controller.leave_office(true);
    }

    /// Another controller takes office.
    pub fn take_office(&mut self) {
        let now = self.world.now();
        self.world
            .decided(|controller, _| controller.take_office(now));
    }

    /// What is set aside: broker, first offset and end of each item.
    pub fn salvaged(&mut self, partition: PartitionNumber) -> Vec<(i32, i64, i64)> {
        let state = self.world.state(true);
        let items = state.partitions[partition].salvaged.iter();
        items
            .map(|item| (item.broker.0, item.first.0, item.end.0))
            .collect()
    }

    /// The brokers that have a log of it, dead ones left out.
    #[must_use]
    pub fn holders(&self, partition: PartitionNumber) -> Vec<i32> {
        let nodes = self.world.nodes.values();
        nodes
            .filter(|node| node.holds(partition))
            .map(|node| node.id.0)
            .collect()
    }

    /// How the controllers have decided it.
    #[must_use]
    pub fn decided(&self, partition: PartitionNumber) -> PartitionImage {
        let (topic, index) = self.world.partitions[partition];
        let image = self.world.controller.image();
        image
            .partition(topic, index)
            .map(|partition| PartitionImage::clone(partition))
            .expect("the partitions of a story are never deleted")
    }

    /// The number of the broker that leads, as decided.
    #[must_use]
    pub fn leader(&self, partition: PartitionNumber) -> Option<i32> {
        self.decided(partition).leader.map(|leader| leader.0)
    }

    /// Where each broker's log ends, dead ones as their disks have it.
    pub fn log_ends(&mut self, partition: PartitionNumber) -> Vec<(i32, i64)> {
        let state = self.world.state(false);
        let mut ends: Vec<(i32, i64)> = state.partitions[partition]
            .replicas
            .iter()
            .map(|replica| (replica.broker.0, replica.log_end.0))
            .collect();
        ends.sort_unstable();
        ends
    }

    /// The records of one broker's replica.
    pub fn records(&mut self, partition: PartitionNumber, broker: i32) -> Vec<(Offset, Logged)> {
        let state = self.world.state(true);
        state.partitions[partition]
            .replicas
            .iter()
            .find(|replica| replica.broker.0 == broker)
            .map_or_else(Vec::new, |replica| replica.records.clone())
    }

    /// Where the epoch of the present leader begins, as that leader has it.
    pub fn epoch_start(&mut self, partition: PartitionNumber) -> Option<(LeaderEpoch, Offset)> {
        let leader = self.decided(partition).leader?;
        let hosted = self.world.hosted(leader, partition)?;
        let leader = hosted.partition.leader()?;
        Some((leader.leader_epoch(), leader.epoch_start()))
    }

    /// What was cut off so far: partition, broker, and from where to where.
    #[must_use]
    pub fn cut_off(&self) -> Vec<(PartitionNumber, i32, Truncation)> {
        let cuts = self.world.cut_off.iter();
        cuts.map(|(partition, broker, cut)| (*partition, broker.0, *cut))
            .collect()
    }

    /// Starts whoever is down, mends every link, and waits until everything has come together.
    pub fn heal(&mut self) {
        self.mend();
        let brokers: Vec<i32> = self.world.nodes.keys().map(|broker| broker.0).collect();
        for broker in brokers {
            self.start(broker);
        }
        self.settle();
    }

    /// Waits until everything has come together.
    pub fn settle(&mut self) {
        self.world
            .await_convergence("the story did not come to rest");
    }

    /// The last look at every record, and the end.
    ///
    /// # Errors
    /// What a checker found, with the last events.
    pub fn end(mut self) -> Result<Tally, String> {
        self.world.run_for(Duration::from_secs(3));
        self.world.look_at_rest();
        match self.world.checkers.found() {
            None => Ok(self.world.tally),
            Some(violation) => {
                let trace = self.trace.borrow();
                let from = trace.len().saturating_sub(60);
                let last: Vec<&str> = trace.iter().skip(from).map(String::as_str).collect();
                Err(format!("{violation}\n{}", last.join("\n")))
            }
        }
    }
}

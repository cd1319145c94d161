//! What a process says to the controllers of itself: that it is there, that it lives, that it wants to leave.

use std::time::Duration;

use kuorum_metadata::rpc::{HeartbeatRequest, RegisterRequest};
use kuorum_protocol::BrokerId;

use super::{Process, SHUTDOWN_PATIENCE, UNHEARD_MOST};
use crate::sim::network::{Message, Peer};
use crate::sim::world::{Happening, World};

impl World {
    pub(in crate::sim) fn register(&mut self, broker: BrokerId, run: u64) {
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

    pub(in crate::sim) fn heartbeat(&mut self, broker: BrokerId, run: u64) {
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

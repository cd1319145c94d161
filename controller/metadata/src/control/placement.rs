//! Where the replicas of new partitions go.
//! Law: deterministic given the image and the seed. No two replicas of a partition share a broker; they share a rack only
//! when there are more replicas than racks; brokers that are fenced or leaving are a last resort and never lead.

use std::collections::BTreeMap;

use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;

use super::{Random, Refusal};
use crate::image::MetadataImage;

/// How much every broker holds, kept up as new partitions are placed.
#[derive(Clone, Debug)]
pub struct Placer {
    brokers: Vec<Candidate>,
}

#[derive(Clone, Debug)]
struct Candidate {
    id: BrokerId,
    rack: Option<String>,
    active: bool,
    /// Partitions of which it is the preferred leader.
    leads: usize,
    /// Partitions of which it has a replica.
    holds: usize,
}

impl Placer {
    /// Counts what the brokers hold. Equals are taken in an order drawn from `random`.
    pub fn new(image: &MetadataImage, random: &mut Random) -> Self {
        let mut counts: BTreeMap<BrokerId, (usize, usize)> = BTreeMap::new();
        for (_, _, partition) in image.partitions() {
            for (place, replica) in partition.replicas.iter().enumerate() {
                let (leads, holds) = counts.entry(*replica).or_default();
                *leads += usize::from(place == 0);
                *holds += 1;
            }
        }
        let mut brokers: Vec<Candidate> = image
            .brokers()
            .map(|broker| {
                let (leads, holds) = counts.get(&broker.id).copied().unwrap_or_default();
                Candidate {
                    id: broker.id,
                    rack: broker.rack.clone(),
                    active: broker.is_active(),
                    leads,
                    holds,
                }
            })
            .collect();
        for last in (1..brokers.len()).rev() {
            brokers.swap(last, random.below(last + 1));
        }
        Self { brokers }
    }

    /// Places one partition: the leader where fewest are led, the others in other racks where fewest are held.
    pub fn place(&mut self, replication_factor: usize) -> Result<Vec<BrokerId>, Refusal> {
        let registered = self.brokers.len();
        if replication_factor > registered {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                format!(
                    "{replication_factor} replicas need as many brokers, and only {registered} are registered"
                ),
            ));
        }
        let leader = (0..registered)
            .filter(|place| self.brokers[*place].active)
            .min_by_key(|place| {
                let broker = &self.brokers[*place];
                (broker.leads, broker.holds)
            });
        let Some(leader) = leader else {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                "no broker is alive to lead a new partition",
            ));
        };
        // Which follower comes first must change from one partition of a leader to the next: it inherits the leadership.
        let turn = self.brokers[leader].leads;
        let mut chosen = vec![leader];
        while chosen.len() < replication_factor {
            let next = (0..registered)
                .filter(|place| !chosen.contains(place))
                .min_by_key(|place| self.preference(*place, leader, turn, &chosen))
                .expect("there are more brokers than replicas chosen");
            chosen.push(next);
        }
        self.brokers[leader].leads += 1;
        for place in &chosen {
            self.brokers[*place].holds += 1;
        }
        Ok(chosen
            .into_iter()
            .map(|place| self.brokers[place].id)
            .collect())
    }

    /// The smaller, the sooner: alive, in a rack of its own, with little to hold, and then by turns.
    fn preference(
        &self,
        place: usize,
        leader: usize,
        turn: usize,
        chosen: &[usize],
    ) -> (bool, usize, usize, usize) {
        let broker = &self.brokers[place];
        let same_rack = chosen
            .iter()
            .filter(|other| broker.rack.is_some() && self.brokers[**other].rack == broker.rack)
            .count();
        let others = self.brokers.len() - 1;
        let distance = (place + self.brokers.len() - leader - 1) % self.brokers.len();
        let by_turns = (distance + others - turn % others) % others;
        (!broker.active, same_rack, broker.holds, by_turns)
    }
}

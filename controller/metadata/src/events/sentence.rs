//! An event as one sentence for people.
//! Law: it says what happened and to whom; why is told beside it.

use std::fmt;

use kuorum_protocol::BrokerId;

use super::{Event, EventKind};
use crate::record::ConfigResource;

impl fmt::Display for Event {
    /// One sentence for people, without the cause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.topic, self.topic_id, self.partition, self.broker) {
            (Some(topic), _, Some(partition), _) => write!(f, "{topic}-{partition}: ")?,
            (None, Some(id), Some(partition), _) => write!(f, "deleted topic {id}-{partition}: ")?,
            (Some(topic), _, None, _) => write!(f, "topic {topic}: ")?,
            (None, _, _, Some(broker)) => write!(f, "broker {broker}: ")?,
            _ => {}
        }
        self.what.sentence(f, self.broker)
    }
}

impl EventKind {
    fn sentence(&self, f: &mut fmt::Formatter<'_>, broker: Option<BrokerId>) -> fmt::Result {
        let broker = broker.unwrap_or(BrokerId(-1));
        match self {
            Self::ControllerChanged {
                controller_id,
                controller_epoch,
                ..
            } => write!(
                f,
                "controller {controller_id} is active in epoch {controller_epoch}"
            ),
            Self::FeatureFinalized { name, level, .. } => write!(f, "{name} is {level}"),
            Self::BrokerRegistered { broker_epoch, .. } => {
                write!(f, "registered in epoch {broker_epoch}")
            }
            Self::BrokerUnregistered { .. } => write!(f, "unregistered"),
            Self::BrokerFenced { .. } => write!(f, "fenced"),
            Self::BrokerUnfenced { .. } => write!(f, "unfenced"),
            Self::ControlledShutdownStarted { .. } => write!(f, "hands over its leaderships"),
            Self::DrainStarted => write!(f, "is drained of leadership"),
            Self::DrainEnded => write!(f, "may lead again"),
            Self::LogDirectoriesOffline {
                offline, online, ..
            } => write!(
                f,
                "{} offline, {} left",
                Counted(offline.len(), "log directory", "log directories"),
                online.len()
            ),
            Self::TopicCreated {
                partitions,
                replication_factor,
                ..
            } => write!(
                f,
                "created, {}, {} each",
                Counted(*partitions, "partition", "partitions"),
                Counted(*replication_factor, "replica", "replicas")
            ),
            Self::TopicDeleted { partitions } => write!(
                f,
                "deleted, {}",
                Counted(*partitions, "partition", "partitions")
            ),
            Self::PartitionsAdded {
                partitions,
                previous_partitions,
            } => write!(
                f,
                "grew from {previous_partitions} to {partitions} partitions"
            ),
            Self::ConfigChanged {
                resource,
                name,
                value,
                previous_value,
            } => {
                match resource {
                    ConfigResource::ClusterDefault => write!(f, "cluster default ")?,
                    ConfigResource::ControllerFile => write!(f, "controllers' file ")?,
                    ConfigResource::Topic(_) | ConfigResource::Broker(_) => {}
                }
                let shown = |value: &Option<String>| {
                    value.clone().unwrap_or_else(|| "(default)".to_owned())
                };
                write!(
                    f,
                    "{name} = {}, was {}",
                    shown(value),
                    shown(previous_value)
                )
            }
            Self::LeaderChanged {
                leader,
                previous_leader,
                leader_epoch,
                ..
            } => {
                match leader {
                    Some(leader) => write!(f, "broker {leader} leads in epoch {leader_epoch}")?,
                    None => write!(f, "nobody leads, epoch {leader_epoch}")?,
                }
                match previous_leader {
                    Some(previous) => write!(f, ", before it {previous}"),
                    None => write!(f, ", before it nobody"),
                }
            }
            Self::UncleanElection {
                leader,
                leader_epoch,
                lost_isr,
                ..
            } => write!(
                f,
                "broker {leader} was elected uncleanly in epoch {leader_epoch}, in sync were {}",
                List(lost_isr)
            ),
            Self::LeaderRecovered { leader_epoch } => {
                write!(f, "the leader of epoch {leader_epoch} has recovered")
            }
            Self::IsrShrunk(change) | Self::IsrExpanded(change) | Self::IsrChanged(change) => {
                write!(
                    f,
                    "in sync {}, was {}",
                    List(&change.isr),
                    List(&change.previous_isr)
                )
            }
            Self::ElrChanged { elr, previous_elr } => {
                write!(f, "eligible {}, was {}", List(elr), List(previous_elr))
            }
            Self::ReassignmentStarted {
                adding, removing, ..
            } => write!(
                f,
                "reassignment adds {} and removes {}",
                List(adding),
                List(removing)
            ),
            Self::ReassignmentCompleted { replicas, .. } => {
                write!(f, "reassigned to {}", List(replicas))
            }
            Self::ReassignmentCancelled { replicas, .. } => {
                write!(f, "reassignment cancelled, replicas {}", List(replicas))
            }
            Self::ReplicaTruncated {
                from, to, records, ..
            } => write!(f, "broker {broker} cut {records} offsets, [{to}, {from})"),
            Self::ReplicaRestarted { from, to, .. } => write!(
                f,
                "broker {broker} began anew at {to}, its log had ended at {from}"
            ),
            Self::SalvageSetAside {
                item,
                first_offset,
                end_offset,
                complete,
                ..
            } => {
                write!(
                    f,
                    "broker {broker} set aside [{first_offset}, {end_offset}) as {item}"
                )?;
                match complete {
                    true => Ok(()),
                    false => write!(f, ", not all of what it cut"),
                }
            }
            Self::SalvageDeleted { item, records, .. } => {
                write!(f, "broker {broker} no longer keeps {item}")?;
                match records {
                    Some(records) => write!(f, ", {records} records"),
                    None => Ok(()),
                }
            }
            Self::SalvageReplayStarted { item } => write!(f, "{item} is being replayed"),
            Self::SalvageReplayed { item, records } => {
                write!(f, "{item} was replayed, {records} records")
            }
            Self::Gap { missing } => write!(f, "{missing} more events are not listed"),
        }
    }
}

/// `1 partition`, `2 partitions`.
struct Counted(usize, &'static str, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => write!(f, "1 {}", self.1),
            count => write!(f, "{count} {}", self.2),
        }
    }
}

/// Brokers as `1,2,3`, none as `nobody`.
struct List<'a>(&'a [BrokerId]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nobody");
        }
        for (place, broker) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{broker}")?;
        }
        Ok(())
    }
}

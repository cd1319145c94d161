//! The life of a broker: registered, unfenced, shutting down, fenced, forgotten (KIP-631).
//! Law: a new incarnation never keeps the roles of the one before. An intact replica keeps its place in the ISR only
//! while nobody live leads, and otherwise goes to the ELR where that is; one that is not intact leaves both at once, even
//! as the last member.

use std::collections::BTreeSet;

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, DirectoryId, Now, PartitionIndex, TopicId};

use super::command::Outcome;
use super::election::{self, Standing, Terms};
use super::heartbeats::{Heartbeats, Silence};
use super::{Decision, Refusal};
use crate::image::{BrokerImage, MetadataImage, PartitionImage};
use crate::mutation::{self, Mutation};
use crate::record::{MetadataRecord, RegisterBroker};
use crate::rpc::{AssignDirectoriesRequest, HeartbeatReply, HeartbeatRequest, RegisterRequest};

/// Registers a broker. It starts fenced; its epoch is in the image once the decision is applied, and is then to be told
/// to [`Heartbeats::registered`].
///
/// The same incarnation asking again keeps its epoch. A new one on the same directory is accepted as soon as its
/// predecessor's session stream has ended: the directory's lock proves that predecessor dead, and whose stream is still
/// open runs on a copy of the directory. On another directory it is accepted only when the predecessor's session is over.
pub fn register(
    image: &MetadataImage,
    soft: &Heartbeats,
    request: &RegisterRequest,
    now: Now,
) -> Result<Decision<()>, Refusal> {
    check_registration(image, request)?;
    let Some(known) = image.broker(request.broker_id) else {
        // It may have been forgotten, and its replicas not.
        let mut records = take_roles(image, soft, None, request);
        records.push(introduce(request, None));
        return Ok(decided(records));
    };
    if known.incarnation_id == request.incarnation_id {
        let again = introduce(request, Some(known));
        let mut after = image.clone();
        after.apply_records(image.offset(), std::slice::from_ref(&again));
        let is_news = after.broker(request.broker_id) != Some(known);
        return Ok(decided(if is_news { vec![again] } else { Vec::new() }));
    }
    let same_place = known
        .directories
        .iter()
        .any(|directory| request.directories.contains(directory));
    let is_taken = match same_place {
        true => soft.has_open_session(request.broker_id, now),
        false => soft.has_valid_session(request.broker_id, now),
    };
    if is_taken {
        let place = match same_place {
            true => "a copy of this directory",
            false => "another directory",
        };
        return Err(Refusal::new(
            ErrorCode::DuplicateBrokerRegistration,
            format!(
                "another broker {} is running from {place}; stop it, give this one another node.id and a directory \
                 of its own, or wait until its session is over",
                request.broker_id
            ),
        ));
    }
    let mut records = take_roles(image, soft, Some(known), request);
    records.push(introduce(request, None));
    Ok(decided(records))
}

fn check_registration(image: &MetadataImage, request: &RegisterRequest) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidRegistration, message));
    if request.broker_id.0 < 0 {
        return refuse(format!("{} is not a broker's number", request.broker_id));
    }
    let distinct: BTreeSet<&DirectoryId> = request.directories.iter().collect();
    let has_zero = distinct.contains(&DirectoryId::ZERO);
    if distinct.is_empty() || has_zero || distinct.len() != request.directories.len() {
        return refuse(
            "a broker needs at least one log directory, each with its own id".to_owned(),
        );
    }
    let mut others = image
        .brokers()
        .filter(|broker| broker.id != request.broker_id);
    let shared = others.find(|broker| broker.directories.iter().any(|id| distinct.contains(id)));
    if let Some(other) = shared {
        return refuse(format!(
            "a log directory of broker {} is registered by broker {}: was it copied?",
            request.broker_id, other.id
        ));
    }
    Ok(())
}

/// The record by which a broker becomes known; of the same incarnation with the epoch and state it already has.
fn introduce(
    request: &RegisterRequest,
    known: Option<&std::sync::Arc<BrokerImage>>,
) -> MetadataRecord {
    MetadataRecord::RegisterBroker(RegisterBroker {
        broker_id: request.broker_id,
        incarnation_id: request.incarnation_id,
        broker_epoch: known.map(|known| known.epoch),
        listeners: request.listeners.clone(),
        http: request.http.clone(),
        rack: request.rack.clone(),
        directories: request.directories.clone(),
        fenced: known.is_none_or(|known| known.fenced),
        in_controlled_shutdown: known.is_some_and(|known| known.in_controlled_shutdown),
        version: request.version.clone(),
        last_report: 0,
    })
}

/// Takes from an earlier incarnation what a new one must not have.
fn take_roles(
    image: &MetadataImage,
    soft: &Heartbeats,
    known: Option<&BrokerImage>,
    request: &RegisterRequest,
) -> Vec<MetadataRecord> {
    let id = request.broker_id;
    let not_intact: BTreeSet<(TopicId, PartitionIndex)> =
        request.not_intact.iter().copied().collect();
    let mut records = Vec::new();
    for (topic, index, partition) in image.partitions() {
        if !partition.replicas.contains(&id) {
            continue;
        }
        let intact = (!not_intact.contains(&(topic.id, index))
            && is_still_there(partition, known, request))
            || mutation::off(Mutation::WipedCountsAsIntact);
        let mut before = PartitionImage::clone(partition);
        if !intact {
            before.isr.retain(|member| *member != id);
            before.elr.retain(|member| *member != id);
        }
        let standing = |replica| match (replica == id, intact) {
            (true, true) => Standing::Returning,
            (true, false) => Standing::Out,
            (false, _) => {
                let standing = |replica| soft.standing(image, replica);
                election::standing_of_replica(image, partition, replica, standing)
            }
        };
        let terms = Terms::of(image, topic, partition);
        let elected = election::elect(&before, standing, terms);
        let cause = match intact {
            true => "broker restarted",
            false => "replica not intact",
        };
        let Some(mut change) = election::change(topic.id, index, partition, &elected, cause) else {
            continue;
        };
        if !intact && elected.leader.is_none() {
            // For the operator to know who had all there was; the last to lose its place comes last.
            let mut last_known = partition.last_known_elr.clone();
            last_known.retain(|member| *member != id);
            last_known.push(id);
            change.last_known_elr = Some(last_known);
        }
        records.push(MetadataRecord::PartitionChange(change));
    }
    records
}

/// Whether the directory that holds a broker's replica came back with it. One that was lost had nothing in it. Where the broker never said which one that is,
/// all it had must have come back; of a broker that was forgotten nobody knows what that was.
fn is_still_there(
    partition: &PartitionImage,
    known: Option<&BrokerImage>,
    request: &RegisterRequest,
) -> bool {
    match (partition.directory(request.broker_id), known) {
        (Some(DirectoryId::LOST), _) => true,
        (Some(directory), _) => request.directories.contains(&directory),
        (None, Some(known)) => known
            .directories
            .iter()
            .all(|directory| request.directories.contains(directory)),
        (None, None) => false,
    }
}

/// Answers a heartbeat, and decides what it asks for: to be fenced, unfenced, or let go.
pub fn heartbeat(
    image: &MetadataImage,
    soft: &mut Heartbeats,
    request: &HeartbeatRequest,
    now: Now,
) -> Result<Decision<HeartbeatReply>, Refusal> {
    let id = request.broker_id;
    let broker = known_incarnation(image, id, request.broker_epoch)?;
    soft.heard(id, request.broker_epoch, request.metadata_offset, now);
    let caught_up = request.metadata_offset >= broker.epoch.0;

    let mut records = Vec::new();
    let mut online = broker.directories.clone();
    online.retain(|directory| !request.offline_directories.contains(directory));
    if online != broker.directories {
        records.push(MetadataRecord::BrokerRegistrationChange {
            broker_id: id,
            broker_epoch: broker.epoch,
            fenced: None,
            in_controlled_shutdown: None,
            online_directories: Some(online),
            cause: String::new(),
        });
    }

    let mut reply = HeartbeatReply {
        fenced: broker.fenced,
        caught_up,
        may_shut_down: false,
    };
    let cause = if request.want_shut_down {
        if broker.fenced {
            reply.may_shut_down = !is_counted_on(image, id);
        } else if !broker.in_controlled_shutdown {
            records.push(state_change(broker, None, Some(true)));
        } else if may_go(image, soft, id) {
            records.push(state_change(broker, Some(true), None));
            reply.fenced = true;
            reply.may_shut_down = true;
        }
        "controlled shutdown"
    } else if request.want_fence && !broker.fenced {
        records.push(state_change(broker, Some(true), None));
        reply.fenced = true;
        "broker fenced: on its own wish"
    } else if !request.want_fence
        && broker.fenced
        && caught_up
        && !broker.in_controlled_shutdown
        && !broker.directories.is_empty()
        && !soft.is_gone(id, now)
    {
        soft.forgive(id);
        records.push(state_change(broker, Some(false), None));
        reply.fenced = false;
        "broker unfenced"
    } else {
        "log directory offline"
    };
    Ok(Decision {
        records: with_consequences(image, soft, records, id, cause),
        response: reply,
    })
}

/// Whether another leader has this broker in its ISR.
fn is_counted_on(image: &MetadataImage, id: BrokerId) -> bool {
    let mut partitions = image.partitions();
    let counted_on = partitions.any(|(_, _, partition)| {
        partition.leader.is_some_and(|leader| leader != id) && partition.isr.contains(&id)
    });
    counted_on && !mutation::off(Mutation::LetGoWhileCountedOn)
}

/// Whether a broker that is shutting down leads nothing, no leader counts on it, and every active broker has learnt that.
/// A leader this controller has not heard from yet, as it has just taken office, still counts on it: its ISR is not
/// changed over its head, and its writes would wait for one that is gone.
fn may_go(image: &MetadataImage, soft: &mut Heartbeats, id: BrokerId) -> bool {
    let leads = image
        .partitions()
        .any(|(_, _, partition)| partition.leader == Some(id));
    if leads || is_counted_on(image, id) {
        return false;
    }
    let offset = soft.shutdown_offset(id, image.offset());
    image
        .brokers()
        .filter(|broker| broker.id != id)
        .filter(|broker| {
            let standing = soft.standing(image, broker.id);
            matches!(standing, Standing::Active | Standing::Draining)
        })
        .all(|broker| soft.metadata_offset(broker.id) >= offset)
}

/// Fences a broker that has been silent for too long: it leads nothing any more and leaves the ISRs of live leaders.
pub fn fence(
    image: &MetadataImage,
    soft: &Heartbeats,
    id: BrokerId,
    silence: Silence,
    now: Now,
) -> Decision<()> {
    let Some(broker) = image.broker(id).filter(|broker| !broker.fenced) else {
        return Decision::unchanged(());
    };
    let records = vec![state_change(broker, Some(true), None)];
    // Who is due as well gets nothing: least of all an unclean election, that would give up what this one has.
    let standing = |after: &MetadataImage, other| match soft.is_due(after, other, now) {
        true => Standing::Suspect,
        false => soft.standing(after, other),
    };
    decided(with_elections(
        image,
        records,
        standing,
        id,
        silence.cause(),
    ))
}

/// Forgets a broker that is gone. One that lives would only register again, and one that replicas are assigned to is waited for.
pub fn unregister(
    image: &MetadataImage,
    soft: &Heartbeats,
    id: BrokerId,
    now: Now,
) -> Decision<Outcome> {
    let broker = match registered(image, id) {
        Ok(broker) => broker,
        Err(refusal) => return Decision::unchanged(refusal.into()),
    };
    if !broker.fenced && soft.has_valid_session(id, now) {
        let refusal = Refusal::new(
            ErrorCode::InvalidRequest,
            format!("broker {id} is alive and would register again; stop it first"),
        );
        return Decision::unchanged(refusal.into());
    }
    let partitions = image.partitions();
    let held = partitions.filter(|(_, _, partition)| partition.replicas.contains(&id));
    let held = held.count();
    if held > 0 {
        let refusal = Refusal::new(
            ErrorCode::InvalidRequest,
            format!("broker {id} has replicas of {held} partitions; reassign them to others first"),
        );
        return Decision::unchanged(refusal.into());
    }
    let records = vec![MetadataRecord::UnregisterBroker {
        broker_id: id,
        broker_epoch: broker.epoch,
    }];
    Decision {
        records: with_consequences(image, soft, records, id, "broker unregistered"),
        response: Outcome::ok(),
    }
}

/// Takes leadership from a broker, and keeps it away until told otherwise; it stays in sync. Leadership moves within the
/// ISR only: what nobody else in it can lead stays where it is until somebody can.
pub fn drain(
    image: &MetadataImage,
    soft: &Heartbeats,
    id: BrokerId,
    draining: bool,
) -> Decision<Outcome> {
    let broker = match registered(image, id) {
        Ok(broker) => broker,
        Err(refusal) => return Decision::unchanged(refusal.into()),
    };
    if broker.draining == draining {
        return Decision::unchanged(Outcome::ok());
    }
    let records = vec![MetadataRecord::BrokerDrain {
        broker_id: id,
        draining,
    }];
    let cause = match draining {
        true => "broker drained",
        false => "broker no longer drained",
    };
    Decision {
        records: with_consequences(image, soft, records, id, cause),
        response: Outcome::ok(),
    }
}

/// Records in which directories a broker has placed its replicas, partitions it holds no replica of passed over. In a directory that is not
/// online, one that failed before anybody heard of the replica, it is of no use: somebody else leads.
pub fn assign_directories(
    image: &MetadataImage,
    soft: &Heartbeats,
    request: &AssignDirectoriesRequest,
) -> Result<Decision<()>, Refusal> {
    let id = request.broker_id;
    let broker = known_incarnation(image, id, request.broker_epoch)?;
    let mut after = image.clone();
    let mut records = Vec::new();
    let mut all_online = true;
    for (topic_id, index, directory) in &request.assignments {
        let Some(partition) = after.partition(*topic_id, *index) else {
            continue;
        };
        let Some(place) = partition.replicas.iter().position(|replica| *replica == id) else {
            continue;
        };
        if directory.is_zero() || partition.directory(id) == Some(*directory) {
            continue;
        }
        all_online &= broker.directories.contains(directory);
        let mut directories = partition.directories.clone();
        directories.resize(partition.replicas.len(), DirectoryId::ZERO);
        directories[place] = *directory;
        let mut change = crate::record::PartitionChange::of(
            *topic_id,
            *index,
            partition.partition_epoch.next(),
            "directory assigned",
        );
        change.directories = Some(directories);
        let record = MetadataRecord::PartitionChange(change);
        after.apply_records(image.offset(), std::slice::from_ref(&record));
        records.push(record);
    }
    Ok(decided(match all_online {
        true => records,
        false => with_consequences(image, soft, records, id, "log directory offline"),
    }))
}

/// The broker, if one is registered under this id.
pub(super) fn registered(image: &MetadataImage, id: BrokerId) -> Result<&BrokerImage, Refusal> {
    let broker = image.broker(id).map(|broker| &**broker);
    broker.ok_or_else(|| {
        Refusal::new(
            ErrorCode::BrokerIdNotRegistered,
            format!("broker {id} is not registered"),
        )
    })
}

/// The broker, if the request comes from its registered incarnation.
pub(super) fn known_incarnation(
    image: &MetadataImage,
    id: BrokerId,
    epoch: kuorum_protocol::BrokerEpoch,
) -> Result<&BrokerImage, Refusal> {
    let broker = registered(image, id)?;
    if broker.epoch != epoch {
        return Err(Refusal::new(
            ErrorCode::StaleBrokerEpoch,
            format!(
                "broker {id} is registered with epoch {}, not {epoch}",
                broker.epoch
            ),
        ));
    }
    Ok(broker)
}

/// A broker's change of state with its cause, followed by what it means for the partitions it has replicas of.
fn with_consequences(
    image: &MetadataImage,
    soft: &Heartbeats,
    records: Vec<MetadataRecord>,
    id: BrokerId,
    cause: &str,
) -> Vec<MetadataRecord> {
    let standing = |after: &MetadataImage, other| soft.standing(after, other);
    with_elections(image, records, standing, id, cause)
}

fn with_elections(
    image: &MetadataImage,
    mut records: Vec<MetadataRecord>,
    standing: impl Fn(&MetadataImage, BrokerId) -> Standing,
    id: BrokerId,
    cause: &str,
) -> Vec<MetadataRecord> {
    if records.is_empty() {
        return records;
    }
    for record in &mut records {
        if let MetadataRecord::BrokerRegistrationChange { cause: why, .. } = record {
            cause.clone_into(why);
        }
    }
    let mut after = image.clone();
    after.apply_records(image.offset(), &records);
    let standing = |other| standing(&after, other);
    records.extend(election::reconcile(&after, standing, Some(id), cause));
    records
}

fn state_change(
    broker: &BrokerImage,
    fenced: Option<bool>,
    in_controlled_shutdown: Option<bool>,
) -> MetadataRecord {
    MetadataRecord::BrokerRegistrationChange {
        broker_id: broker.id,
        broker_epoch: broker.epoch,
        fenced,
        in_controlled_shutdown,
        online_directories: None,
        cause: String::new(),
    }
}

fn decided(records: Vec<MetadataRecord>) -> Decision<()> {
    Decision {
        records,
        response: (),
    }
}

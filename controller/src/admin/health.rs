//! `GET /cluster/health`: whether all is well, and if not, why and what to do.
//! Law: counts are complete, samples are short. What is chosen is a note and makes nothing unhealthy. A controller that is not active and cannot reach the active one says so
//! itself.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use kuorum_admin_api::durability::{ACKS_DURABILITY, PAGE_CACHE, survives};
use kuorum_admin_api::{Health, HealthNote, HealthReason};
use kuorum_metadata::config_def::Durability;
use kuorum_metadata::control::election::effective_min_isr;
use kuorum_metadata::{MetadataImage, PartitionImage};
use kuorum_protocol::{BrokerId, DirectoryId};

use super::{Admin, quorum};

/// How many things a reason shows.
const SAMPLE: usize = 10;

/// The state of the cluster.
#[utoipa::path(get, operation_id = "getHealth", tag = "health", path = "/api/v1/cluster/health", responses((status = 200, body = Health)))]
pub(super) async fn get(State(admin): State<Admin>) -> Json<Health> {
    let mut reasons = Vec::new();
    let silent_ids = quorum::silent(&admin).await;
    let voters = &admin.config.voters;
    let silent = voters
        .iter()
        .filter(|voter| silent_ids.contains(&voter.id))
        .map(|voter| format!("controller-{} at {}", voter.id, voter.address));
    reasons.extend(of_quorum(
        admin.active.may_decide(),
        admin.quorum.is_initialised(),
        voters.len(),
        silent.collect(),
    ));
    let image = admin.quorum.image();
    reasons.extend(of_image(&image));
    Json(Health {
        healthy: reasons.is_empty(),
        reasons,
        notes: notes(&image),
    })
}

/// Why there is no quorum before a cluster has been founded.
pub(super) fn unfounded(voters: usize) -> String {
    format!(
        "this controller belongs to no quorum yet: a new cluster is founded when all {voters} controllers are up and \
         answer each other, not by a majority"
    )
}

/// What is wrong with the controllers.
fn of_quorum(
    in_office: bool,
    founded: bool,
    voters: usize,
    silent: Vec<String>,
) -> Vec<HealthReason> {
    let mut reasons = Vec::new();
    if !in_office {
        let (cause, cure) = match founded {
            true => (
                match voters - silent.len() > voters / 2 {
                    true => "no controller is in office: an election is under way".to_owned(),
                    false => format!(
                        "no controller is in office: {} of {voters} controllers do not answer",
                        silent.len()
                    ),
                },
                match voters - silent.len() > voters / 2 {
                    true => "wait: it takes a second or two; if it lasts, the controllers' logs say why",
                    false => "start controllers until a majority is up; nothing is elected, fenced or created before",
                }
                .to_owned(),
            ),
            false => (
                format!(
                    "{}; {} of {voters} do not answer",
                    unfounded(voters),
                    silent.len()
                ),
                format!("start all {voters} controllers; from then on a majority is enough"),
            ),
        };
        reasons.push(HealthReason {
            code: "NO_ACTIVE_CONTROLLER".to_owned(),
            count: 1,
            sample: silent.clone(),
            cause,
            cure,
        });
    }
    if !silent.is_empty() {
        let (cause, until) = match founded {
            true => (
                "a controller is stopped, paused or cut off, or has lost its directory and was formatted anew",
                "the quorum works as long as a majority answers. One that was formatted anew is not taken back",
            ),
            false => (
                "a controller is stopped, paused or cut off",
                "a new cluster needs all of them once",
            ),
        };
        reasons.push(HealthReason {
            code: "CONTROLLERS_UNREACHABLE".to_owned(),
            count: silent.len(),
            sample: silent,
            cause: cause.to_owned(),
            cure: format!("start it again, or restore its network; {until}"),
        });
    }
    reasons
}

/// What the metadata says is wrong.
fn of_image(image: &MetadataImage) -> Vec<HealthReason> {
    let mut reasons = Vec::new();
    if !image.brokers().any(|broker| broker.is_active()) {
        reasons.push(reason(
            "NO_ACTIVE_BROKER",
            vec!["cluster".to_owned()],
            "no broker is registered and unfenced",
            "start a broker; if one runs, its log says why it is not admitted",
        ));
    }
    let fenced = image.brokers().filter(|broker| broker.fenced);
    reasons.push(reason(
        "FENCED_BROKERS",
        fenced.map(|broker| format!("broker-{}", broker.id)),
        "a broker is stopped, cut off, or not caught up yet",
        "start it again, or restore its network; its log says why it is not admitted",
    ));
    reasons.push(reason(
        "OFFLINE_LOG_DIRECTORIES",
        offline_directories(image),
        "a log directory has failed or did not come back with its broker: its replicas are out of sync and cannot lead",
        "repair or replace the disk and start the broker again; the broker's log says what went wrong with it",
    ));
    reasons.extend(offline_partitions(image));
    reasons.extend(under_min_isr(image));
    let under_replicated = || {
        let partitions = image.partitions();
        partitions.filter(|(_, _, found)| found.isr.len() < found.replication_factor())
    };
    let cure = cure(
        image,
        under_replicated().map(|(_, _, partition)| &**partition),
    );
    reasons.push(reason(
        "UNDER_REPLICATED_PARTITIONS",
        under_replicated().map(|(topic, index, _)| format!("{}-{index}", topic.name)),
        "a replica is down or too far behind",
        cure,
    ));
    reasons.retain(|reason| reason.count > 0);
    reasons
}

/// What somebody has chosen and others should know.
fn notes(image: &MetadataImage) -> Vec<HealthNote> {
    let relaxed: Vec<_> = image
        .topics()
        .filter(|topic| image.durability(&topic.name) == Durability::PageCache)
        .collect();
    if relaxed.is_empty() {
        return Vec::new();
    }
    let partitions: usize = relaxed.iter().map(|topic| topic.partitions.len()).sum();
    let survives = survives(PAGE_CACHE, 1, false).expect("it is one of the values");
    vec![HealthNote {
        code: "PAGE_CACHE_DURABILITY".to_owned(),
        count: relaxed.len(),
        sample: relaxed
            .iter()
            .take(SAMPLE)
            .map(|topic| format!("{} ({} partition(s))", topic.name, topic.partitions.len()))
            .collect(),
        meaning: format!(
            "{} topic(s) with {partitions} partition(s) in all have {ACKS_DURABILITY}={PAGE_CACHE}: an acknowledged record \
             survives {survives}",
            relaxed.len()
        ),
    }]
}

fn reason(
    code: &str,
    found: impl IntoIterator<Item = String>,
    cause: impl Into<String>,
    cure: impl Into<String>,
) -> HealthReason {
    let found: Vec<String> = found.into_iter().collect();
    HealthReason {
        code: code.to_owned(),
        count: found.len(),
        sample: found.into_iter().take(SAMPLE).collect(),
        cause: cause.into(),
        cure: cure.into(),
    }
}

/// What brings these partitions back into sync: those that are down are to be started, those that run only take time.
fn cure<'a>(image: &MetadataImage, partitions: impl Iterator<Item = &'a PartitionImage>) -> String {
    let (mut down, mut behind) = (BTreeSet::new(), BTreeSet::new());
    for partition in partitions {
        for replica in &partition.replicas {
            if !image.is_active(*replica) {
                down.insert(*replica);
            } else if !partition.isr.contains(replica) {
                behind.insert(*replica);
            }
        }
    }
    let down: Vec<String> = down
        .into_iter()
        .map(|broker| format!("{broker} {}", standing(image, broker)))
        .collect();
    let down = down.join(", ");
    let behind: Vec<BrokerId> = behind.into_iter().collect();
    let behind = list(&behind);
    match (down.is_empty(), behind.is_empty()) {
        (false, true) => {
            format!("start the brokers that are down ({down}) and wait until they have caught up")
        }
        (false, false) => format!(
            "start the brokers that are down ({down}), and wait until they and those that run out of sync ({behind}) have \
             caught up"
        ),
        (true, _) => format!(
            "wait until the brokers that run out of sync ({behind}) have caught up; if they do not, their logs say why"
        ),
    }
}

/// Why a broker is not active, in a word or two.
fn standing(image: &MetadataImage, broker: BrokerId) -> &'static str {
    match image.broker(broker) {
        None => "not registered",
        Some(broker) if broker.fenced => "fenced",
        Some(broker) if broker.directories.is_empty() => "without a working log directory",
        Some(_) => "shutting down",
    }
}

/// Directories that replicas are in and their brokers do not have online.
fn offline_directories(image: &MetadataImage) -> Vec<String> {
    let mut offline: BTreeMap<(BrokerId, DirectoryId), usize> = BTreeMap::new();
    for (_, _, partition) in image.partitions() {
        for replica in &partition.replicas {
            if let Some(directory) = partition.directory(*replica)
                && let Some(broker) = image.broker(*replica)
                && !broker.directories.contains(&directory)
            {
                *offline.entry((*replica, directory)).or_default() += 1;
            }
        }
    }
    offline
        .into_iter()
        .map(|((broker, directory), replicas)| {
            match directory {
                DirectoryId::LOST => format!("broker-{broker}, a directory that failed before anything was in it: {replicas} replica(s)"),
                _ => format!("broker-{broker}, directory {directory}: {replicas} replica(s)"),
            }
        })
        .collect()
}

/// Why partitions have no leader; those in the same situation are one reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Situation {
    // All but `last_known` by number: in which order they would lead does not matter here.
    isr: Vec<BrokerId>,
    elr: Vec<BrokerId>,
    last_known: Vec<BrokerId>,
    replicas: Vec<BrokerId>,
    unclean: bool,
    page_cache: bool,
}

fn offline_partitions(image: &MetadataImage) -> Vec<HealthReason> {
    let mut situations: BTreeMap<Situation, Vec<(String, i32)>> = BTreeMap::new();
    for (topic, index, partition) in image.partitions() {
        if partition.leader.is_some() {
            continue;
        }
        let by_number = |members: &[BrokerId]| {
            let mut members = members.to_vec();
            members.sort_unstable();
            members
        };
        let situation = Situation {
            isr: by_number(&partition.isr),
            elr: by_number(&partition.elr),
            last_known: partition.last_known_elr.clone(),
            replicas: by_number(&partition.replicas),
            unclean: image.unclean_election_allowed(&topic.name),
            page_cache: image.durability(&topic.name) == Durability::PageCache,
        };
        let place = (topic.name.clone(), index);
        situations.entry(situation).or_default().push(place);
    }
    let more = situations.len().saturating_sub(SAMPLE);
    let mut rest = Vec::new();
    let mut reasons = Vec::new();
    for (place, (situation, found)) in situations.into_iter().enumerate() {
        if more > 0 && place >= SAMPLE {
            rest.extend(found);
            continue;
        }
        reasons.push(situation.told(image, &found));
    }
    reasons.push(reason(
        "LEADERLESS_PARTITIONS",
        rest.into_iter()
            .map(|(topic, index)| format!("{topic}-{index}")),
        "nobody who has all of their records is alive",
        "start the brokers in their isr and elr",
    ));
    reasons
}

impl Situation {
    fn told(&self, image: &MetadataImage, found: &[(String, i32)]) -> HealthReason {
        let complete: Vec<BrokerId> = self.isr.iter().chain(&self.elr).copied().collect();
        let down: Vec<String> = complete
            .iter()
            .map(|member| format!("broker {member} {}", why_out(image, *member)))
            .collect();
        let (topic, index) = &found[0];
        let partition = image.topic(topic).and_then(|topic| topic.partition(*index));
        let could_lead =
            |replica: &&BrokerId| image.is_active(**replica) && !complete.contains(replica);
        // As an unclean election would choose.
        let heir = self
            .last_known
            .iter()
            .rev()
            .find(could_lead)
            .or_else(|| partition?.replicas.iter().find(could_lead));
        let policy = match self.unclean {
            true => "unclean.leader.election.enable is true, and no other replica is alive",
            false => "unclean.leader.election.enable is false, so nobody else is elected",
        };
        let cause = match complete.is_empty() {
            false => format!(
                "everybody who has all records is out: isr [{}], elr [{}]; {}; {policy}",
                list(&self.isr),
                list(&self.elr),
                down.join(", ")
            ),
            true => {
                let lost = match self.page_cache {
                    true => "lost what was only in its page cache (acks.durability=page.cache)",
                    false => "came back without all it had promised",
                };
                format!(
                    "nobody is known to have all records: every replica that had them {lost}, the last of them on broker \
                     [{}]; {policy}",
                    list(&self.last_known)
                )
            }
        };
        let start = match &complete[..] {
            [] => String::new(),
            [one] => format!("start broker {one}: it leads, and nothing is lost. "),
            _ => format!(
                "start one of the brokers {}: the first to return leads, and nothing is lost. ",
                list(&complete)
            ),
        };
        let force = match heir {
            None => "Until then no replica is alive that could lead.".to_owned(),
            Some(heir) => {
                let risk = match self.last_known.last() == Some(heir) {
                    true => {
                        "it was the last to have everything; what it lost with its power or its disk stays lost"
                    }
                    false => "it lacks what was acknowledged while it was out of sync",
                };
                format!(
                    "To have broker {heir} lead at once and accept the loss ({risk}): kuorum elect-leaders --type unclean \
                     --topic {topic} --partition {index}"
                )
            }
        };
        let names = found
            .iter()
            .map(|(topic, index)| format!("{topic}-{index}"));
        reason("LEADERLESS_PARTITIONS", names, cause, start + &force)
    }
}

fn why_out(image: &MetadataImage, broker: BrokerId) -> &'static str {
    match image.broker(broker) {
        None => "is not registered",
        Some(broker) if broker.fenced => "is fenced (stopped, cut off, or starting)",
        Some(broker) if broker.directories.is_empty() => "has no working log directory",
        Some(broker) if broker.in_controlled_shutdown => "is shutting down",
        Some(_) => "is not heard from, or its log directory is offline",
    }
}

/// Partitions that have a leader and too few in sync: where availability was preferred, half of it is missing.
fn under_min_isr(image: &MetadataImage) -> [HealthReason; 2] {
    let under = |unclean: bool| {
        image.partitions().filter(move |(topic, _, partition)| {
            let min = effective_min_isr(image, topic, partition);
            let under = partition.leader.is_some() && partition.isr.len() < min;
            under && image.unclean_election_allowed(&topic.name) == unclean
        })
    };
    let found = |unclean: bool| {
        under(unclean).map(|(topic, index, partition)| {
            let min = effective_min_isr(image, topic, partition);
            let wanted = image.min_insync_replicas(&topic.name);
            let capped = match wanted > min {
                true => format!("; min.insync.replicas={wanted} means all of its replicas"),
                false => String::new(),
            };
            let in_sync = partition.isr.len();
            format!(
                "{}-{index} ({in_sync} of {min} in sync{capped})",
                topic.name
            )
        })
    };
    let start = |unclean: bool| cure(image, under(unclean).map(|(_, _, partition)| &**partition));
    [
        reason(
            "UNDER_MIN_ISR_PARTITIONS",
            found(false),
            "fewer replicas are in sync than min.insync.replicas: acks=all is refused and nothing new becomes readable",
            start(false),
        ),
        reason(
            "UNDER_MIN_ISR_PARTITIONS",
            found(true),
            "unclean.leader.election.enable=true keeps a leader, but fewer replicas are in sync than min.insync.replicas: \
             acks=all is refused all the same (NOT_ENOUGH_REPLICAS) and nothing new becomes readable",
            format!(
                "{}; to take writes from fewer replicas lower min.insync.replicas of the topic as well, at the price that \
                 one more failure loses them",
                start(true)
            ),
        ),
    ]
}

fn list(brokers: &[BrokerId]) -> String {
    let texts: Vec<String> = brokers.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use kuorum_metadata::record::{
        ConfigResource, MetadataRecord, PartitionRecord, RegisterBroker,
    };
    use kuorum_protocol::{IncarnationId, TopicId};
    use uuid::Uuid;

    use super::*;

    fn ids(text: &str) -> Vec<BrokerId> {
        let ids = text.split(',').filter(|id| !id.is_empty());
        ids.map(|id| BrokerId(id.parse().expect("a number")))
            .collect()
    }

    fn directory(broker: i32) -> DirectoryId {
        DirectoryId(Uuid::from_u128(100 + broker as u128))
    }

    /// Brokers 1, 2 and 3, of which `alive` are; topic `t` with one partition as the words say.
    fn image(words: &str) -> MetadataImage {
        let get = |key: &str| {
            let mut words = words.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let members = |key: &str| ids(get(key).unwrap_or_default());
        let topic_id = TopicId(Uuid::from_u128(7));
        let mut records: Vec<MetadataRecord> = (1..=3)
            .map(|id| {
                MetadataRecord::RegisterBroker(RegisterBroker {
                    broker_id: BrokerId(id),
                    incarnation_id: IncarnationId(Uuid::from_u128(1)),
                    broker_epoch: None,
                    listeners: Vec::new(),
                    http: String::new(),
                    rack: None,
                    directories: vec![directory(id)],
                    fenced: !members("alive").contains(&BrokerId(id)),
                    in_controlled_shutdown: false,
                    version: String::new(),
                    last_report: 0,
                })
            })
            .collect();
        records.push(MetadataRecord::Topic {
            name: "t".to_owned(),
            topic_id,
        });
        let mut directories: Vec<DirectoryId> = (1..=3).map(directory).collect();
        if get("lost").is_some() {
            directories[2] = directory(9);
        }
        records.push(MetadataRecord::Partition(PartitionRecord {
            directories,
            isr: members("isr"),
            leader: members("leader").first().copied(),
            elr: members("elr"),
            last_known_elr: members("known"),
            ..PartitionRecord::of(topic_id, 0, ids("1,2,3"))
        }));
        for (key, name) in [
            ("unclean", "unclean.leader.election.enable"),
            ("min", "min.insync.replicas"),
            ("durability", "acks.durability"),
        ] {
            records.extend(get(key).map(|value| MetadataRecord::Config {
                resource: ConfigResource::Topic("t".to_owned()),
                name: name.to_owned(),
                value: Some(value.to_owned()),
            }));
        }
        MetadataImage::from_records(0, &records)
    }

    #[test]
    fn what_is_said() {
        let force = "kuorum elect-leaders --type unclean --topic t --partition 0";
        let rows: &[(&str, &str, &[&str])] = &[
            ("alive=1,2,3 leader=1 isr=1,2,3", "", &[]),
            (
                "alive=2,3 isr=1",
                "LEADERLESS_PARTITIONS",
                &[
                    "isr [1], elr []",
                    "broker 1 is fenced",
                    "enable is false",
                    "start broker 1: it leads",
                    "broker 2 lead",
                    force,
                ],
            ),
            (
                "alive=3 isr=1 elr=2 min=2",
                "LEADERLESS_PARTITIONS",
                &[
                    "isr [1], elr [2]",
                    "broker 2 is fenced",
                    "brokers 1, 2: the first to return leads",
                    "broker 3 lead",
                    "out of sync",
                ],
            ),
            (
                "alive= isr=1 unclean=true",
                "LEADERLESS_PARTITIONS",
                &["enable is true, and no other", "no replica is alive"],
            ),
            (
                "alive=1,2,3 isr= known=2,1 durability=page.cache",
                "LEADERLESS_PARTITIONS",
                &[
                    "page cache (acks.durability=page.cache)",
                    "broker [2, 1]",
                    "broker 1 lead",
                    "last to have everything",
                    force,
                ],
            ),
            (
                "alive=1 leader=1 isr=1 min=2",
                "UNDER_MIN_ISR_PARTITIONS",
                &[
                    "acks=all is refused",
                    "start the brokers that are down (2 fenced, 3 fenced) and wait",
                ],
            ),
            (
                "alive=1 leader=1 isr=1,2 min=5",
                "UNDER_MIN_ISR_PARTITIONS",
                &["2 of 3 in sync; min.insync.replicas=5 means all"],
            ),
            (
                "alive=1,2 leader=1 isr=1,2",
                "UNDER_REPLICATED_PARTITIONS",
                &["start the brokers that are down (3 fenced) and wait until they"],
            ),
            (
                "alive=3 isr=1,2",
                "UNDER_REPLICATED_PARTITIONS",
                &[
                    "down (1 fenced, 2 fenced), and wait",
                    "those that run out of sync (3)",
                ],
            ),
            (
                "alive=1,2,3 leader=1 isr=1",
                "UNDER_REPLICATED_PARTITIONS",
                &["wait until the brokers that run out of sync (2, 3) have caught up"],
            ),
            (
                "alive=1 leader=1 isr=1 min=2 unclean=true",
                "UNDER_MIN_ISR_PARTITIONS",
                &[
                    "keeps a leader",
                    "NOT_ENOUGH_REPLICAS",
                    "lower min.insync.replicas",
                ],
            ),
            (
                "alive=1,2,3 leader=1 isr=1,2 lost=3",
                "OFFLINE_LOG_DIRECTORIES",
                &["failed or did not come back"],
            ),
        ];
        for (words, code, parts) in rows {
            let reasons = of_image(&image(words));
            if code.is_empty() {
                assert_eq!(reasons, [], "{words}");
                continue;
            }
            let found: Vec<_> = reasons
                .iter()
                .filter(|reason| reason.code == *code)
                .collect();
            assert_eq!(found.len(), 1, "{words}: {reasons:?}");
            let sample = found[0].sample.join(", ");
            let text = format!("{} {} {sample}", found[0].cause, found[0].cure);
            for part in *parts {
                assert!(
                    text.contains(part),
                    "{words}: {part:?} is missing in {text}"
                );
            }
            assert_eq!(found[0].count, 1, "{words}");
        }
    }

    #[test]
    fn what_is_chosen_is_a_note_and_makes_nothing_unhealthy() {
        let well = "alive=1,2,3 leader=1 isr=1,2,3";
        for (words, noted) in [
            ("", false),
            ("durability=flushed", false),
            ("durability=page.cache", true),
        ] {
            let image = image(&format!("{well} {words}"));
            assert_eq!(of_image(&image), [], "{words}");
            let notes = notes(&image);
            if !noted {
                assert_eq!(notes, [], "{words}");
                continue;
            }
            let [note] = &notes[..] else {
                panic!("{words}: {notes:?}")
            };
            assert_eq!(note.code, "PAGE_CACHE_DURABILITY");
            assert_eq!(
                (note.count, &note.sample[..]),
                (1, &["t (1 partition(s))".to_owned()][..])
            );
            let survives = survives(PAGE_CACHE, 1, false).expect("a value");
            assert!(note.meaning.contains(&survives), "{}", note.meaning);
            assert!(
                note.meaning.contains("1 partition(s) in all"),
                "{}",
                note.meaning
            );
        }
    }

    #[test]
    fn what_is_said_of_controllers() {
        /// In office, founded, how many are silent; then the codes and what is said.
        type Row = (
            bool,
            bool,
            usize,
            &'static [&'static str],
            &'static [&'static str],
        );
        let rows: [Row; 5] = [
            (true, true, 0, &[], &[]),
            (
                false,
                true,
                1,
                &["NO_ACTIVE_CONTROLLER", "CONTROLLERS_UNREACHABLE"],
                &["an election is under way", "wait: "],
            ),
            (
                true,
                true,
                1,
                &["CONTROLLERS_UNREACHABLE"],
                &["as long as a majority answers"],
            ),
            (
                false,
                true,
                2,
                &["NO_ACTIVE_CONTROLLER", "CONTROLLERS_UNREACHABLE"],
                &["2 of 3 controllers do not answer", "until a majority is up"],
            ),
            (
                false,
                false,
                1,
                &["NO_ACTIVE_CONTROLLER", "CONTROLLERS_UNREACHABLE"],
                &[
                    "all 3 controllers are up",
                    "not by a majority",
                    "start all 3",
                    "all of them once",
                ],
            ),
        ];
        for (in_office, founded, silent, codes, parts) in rows {
            let silent: Vec<String> = (0..silent).map(|id| format!("controller-{id}")).collect();
            let reasons = of_quorum(in_office, founded, 3, silent);
            let found: Vec<_> = reasons.iter().map(|reason| &reason.code).collect();
            assert_eq!(found, codes, "{reasons:?}");
            let text: String = reasons
                .iter()
                .map(|reason| format!("{} {} ", reason.cause, reason.cure))
                .collect();
            for part in parts {
                assert!(text.contains(part), "{part:?} is missing in {text}");
            }
        }
    }
}

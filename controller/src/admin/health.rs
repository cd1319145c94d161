//! `GET /cluster/health`: whether all is well, and if not, why and what to do.
//! Law: counts are complete, samples are short. A controller that is not active and cannot reach the active one says so
//! itself.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use kuorum_admin_api::{Health, HealthReason};
use kuorum_metadata::{MetadataImage, PartitionImage};

use super::Admin;

/// How many things a reason shows.
const SAMPLE: usize = 10;
/// How long another controller has to answer.
const DEADLINE: Duration = Duration::from_millis(500);

/// The state of the cluster.
#[utoipa::path(get, path = "/api/v1/cluster/health", responses((status = 200, body = Health)))]
pub(super) async fn get(State(admin): State<Admin>) -> Json<Health> {
    let mut reasons = Vec::new();
    let silent = silent_controllers(&admin).await;
    let voters = admin.config.voters.len();
    if !admin.active.may_decide() {
        reasons.push(HealthReason {
            code: "NO_ACTIVE_CONTROLLER".to_owned(),
            count: 1,
            sample: silent.clone(),
            cause: format!(
                "no controller is in office: {} of {voters} controllers do not answer, or an election is under way",
                silent.len()
            ),
            cure: "start controllers until a majority is up; nothing is elected, fenced or created before".to_owned(),
        });
    }
    if !silent.is_empty() {
        reasons.push(HealthReason {
            code: "CONTROLLERS_UNREACHABLE".to_owned(),
            count: silent.len(),
            sample: silent,
            cause: "a controller is stopped, paused or cut off".to_owned(),
            cure: "start it again, or restore its network; the quorum works as long as a majority answers".to_owned(),
        });
    }
    reasons.extend(of_image(&admin.quorum.image()));
    Json(Health {
        healthy: reasons.is_empty(),
        reasons,
    })
}

/// The controllers that do not answer this one.
async fn silent_controllers(admin: &Admin) -> Vec<String> {
    let me = admin.quorum.identity().controller_id;
    let questions = admin
        .config
        .voters
        .iter()
        .filter(|voter| voter.id != me)
        .map(|voter| async move {
            let address = voter.address.to_string();
            let answers = admin.quorum.answers(&address, DEADLINE).await;
            (!answers).then(|| format!("controller-{} at {address}", voter.id))
        });
    join_all(questions).await.into_iter().flatten().collect()
}

/// What the metadata says is wrong.
fn of_image(image: &MetadataImage) -> Vec<HealthReason> {
    let mut reasons = Vec::new();
    let brokers = |wanted: &dyn Fn(&kuorum_metadata::BrokerImage) -> bool| {
        image
            .brokers()
            .filter(|broker| wanted(broker))
            .map(|broker| format!("broker-{}", broker.id))
            .collect::<Vec<_>>()
    };
    let partitions = |wanted: &dyn Fn(&str, &PartitionImage) -> bool| {
        image
            .partitions()
            .filter(|(topic, _, partition)| wanted(&topic.name, partition))
            .map(|(topic, index, _)| format!("{}-{index}", topic.name))
            .collect::<Vec<_>>()
    };
    let mut add = |code: &str, found: Vec<String>, cause: &str, cure: &str| {
        if !found.is_empty() {
            reasons.push(HealthReason {
                code: code.to_owned(),
                count: found.len(),
                sample: found.into_iter().take(SAMPLE).collect(),
                cause: cause.to_owned(),
                cure: cure.to_owned(),
            });
        }
    };
    if !image.brokers().any(|broker| broker.is_active()) {
        add(
            "NO_ACTIVE_BROKER",
            vec!["cluster".to_owned()],
            "no broker is registered and unfenced",
            "start a broker; if one runs, its log says why it is not admitted",
        );
    }
    add(
        "FENCED_BROKERS",
        brokers(&|broker| broker.fenced),
        "a broker is stopped, cut off, or not caught up yet",
        "start it again, or restore its network; its log says why it is not admitted",
    );
    add(
        "LEADERLESS_PARTITIONS",
        partitions(&|_, partition| partition.leader.is_none()),
        "every in-sync replica is on a broker that is down",
        "start one of the brokers in the partition's isr; an unclean election would lose records",
    );
    add(
        "UNDER_MIN_ISR_PARTITIONS",
        partitions(&|topic, partition| {
            let min = image
                .min_insync_replicas(topic)
                .min(partition.replication_factor());
            partition.leader.is_some() && partition.isr.len() < min
        }),
        "fewer replicas are in sync than min.insync.replicas: acks=all is refused and nothing new becomes readable",
        "start the brokers in the partition's osr",
    );
    add(
        "UNDER_REPLICATED_PARTITIONS",
        partitions(&|_, partition| partition.isr.len() < partition.replication_factor()),
        "a replica is down or too far behind",
        "start the brokers in the partition's osr and wait until they have caught up",
    );
    reasons
}

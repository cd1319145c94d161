//! `POST /elections`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use kuorum_admin_api::{
    ElectionOutcome, ElectionReport, ElectionRequest, ElectionType, Loss, Problem,
};
use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::command::{ElectLeaders, ElectionType as Kind};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_protocol::PartitionIndex;
use kuorum_protocol::error_code::ErrorCode;

use super::problem::{Body, Refused};
use super::{Admin, mismatched};
use crate::fleet::{Known, PartitionReport};

const PATH: &str = "/api/v1/elections";
/// How long the new leaders of an unclean election have to say where they begin.
const LOSS_DEADLINE: Duration = Duration::from_secs(2);
/// How often they are asked.
const LOSS_INTERVAL: Duration = Duration::from_millis(50);

/// Elects leaders. Answers 200 if anything was elected or nothing needed to be, with what became of each partition. An
/// unclean election is of one topic, whose name is repeated in `confirm`; the answer says what is known to be lost.
#[utoipa::path(post, operation_id = "electLeaders", tag = "elections", path = "/api/v1/elections", request_body = ElectionRequest, responses(
    (status = 200, body = ElectionReport),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn elect(
    State(admin): State<Admin>,
    Body(request): Body<ElectionRequest>,
) -> Result<Json<ElectionReport>, Refused> {
    if request.kind == ElectionType::Unclean {
        let refuse = |code: ErrorCode, why: &str| {
            Err(Refused::kafka(code, why).in_field("/partitions").at(PATH))
        };
        let named = request.partitions.as_deref().unwrap_or_default();
        let Some(first) = named.first() else {
            return refuse(
                ErrorCode::InvalidRequest,
                "an unclean election names its partitions",
            );
        };
        if named.iter().any(|other| other.topic != first.topic) {
            return refuse(
                ErrorCode::InvalidRequest,
                "an unclean election is of one topic, whose name confirms it",
            );
        }
        if request.confirm.as_deref() != Some(first.topic.as_str()) {
            return Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "CONFIRMATION_REQUIRED",
                "an unclean election loses every record that the new leader does not have, acknowledged or not: \
                 repeat the topic's name in confirm",
            )
            .field("/confirm", format!("must be {:?}", first.topic))
            .at(PATH));
        }
    }
    let is_unclean = request.kind == ElectionType::Unclean;
    let mut known = BTreeMap::new();
    if is_unclean {
        // Asked before anything changes: the new leaders will soon be all there is to remember.
        let image = admin.quorum.image();
        for named in request.partitions.iter().flatten() {
            let topic_id = image.topic(&named.topic).map(|topic| topic.id);
            let last = topic_id.and_then(|id| admin.fleet.last_known(id, named.partition));
            known.extend(last.map(|last| (named.partition, last)));
        }
    }
    let partitions = request.partitions.map(|partitions| {
        partitions
            .into_iter()
            .map(|named| (named.topic, named.partition))
            .collect()
    });
    let command = Command::ElectLeaders(ElectLeaders {
        election: match request.kind {
            ElectionType::Preferred => Kind::Preferred,
            ElectionType::Unclean => Kind::Unclean,
        },
        partitions,
    });
    let CommandReply::ElectLeaders(results) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let fine = |code: ErrorCode| matches!(code, ErrorCode::None | ErrorCode::ElectionNotNeeded);
    if let Some(first) = results.first()
        && !results.iter().any(|result| fine(result.outcome.code()))
    {
        let alone = results.len() == 1;
        let mut refused = match alone {
            true => Refused::outcome(&first.outcome),
            false => Refused::kafka(first.outcome.code(), "no partition was given a leader"),
        }
        .at(PATH);
        for (index, result) in results.iter().enumerate() {
            let why = result.outcome.message.clone();
            let why = why.unwrap_or_else(|| result.outcome.code().name().to_owned());
            let why = match alone {
                true => why,
                false => format!("{}-{}: {why}", result.topic, result.partition),
            };
            refused = refused.field(format!("/partitions/{index}"), why);
        }
        return Err(refused);
    }
    let image = admin.quorum.image();
    let mut items: Vec<ElectionOutcome> = results
        .into_iter()
        .map(|result| {
            let code = result.outcome.code();
            let elected = code == ErrorCode::None;
            let topic = image.topic(&result.topic);
            let now = topic
                .and_then(|topic| topic.partition(result.partition))
                .filter(|_| elected);
            ElectionOutcome {
                elected,
                error: (!elected).then(|| code.name().to_owned()),
                message: result.outcome.message,
                leader: now.and_then(|now| now.leader).map(|leader| leader.0),
                leader_epoch: now.map(|now| now.leader_epoch.0),
                loss: None,
                topic: result.topic,
                partition: result.partition,
            }
        })
        .collect();
    if is_unclean {
        tell_losses(&admin, &image, &mut items, &known).await;
    }
    Ok(Json(ElectionReport { items }))
}

/// Asks the new leaders where they begin, and holds that against what the leaders before last said.
async fn tell_losses(
    admin: &Admin,
    image: &MetadataImage,
    items: &mut [ElectionOutcome],
    known: &BTreeMap<PartitionIndex, Known>,
) {
    let elected: Vec<PartitionIndex> = items
        .iter()
        .filter(|item| item.elected)
        .map(|item| item.partition)
        .collect();
    let Some(topic) = items.first().and_then(|first| image.topic(&first.topic)) else {
        return;
    };
    let mut starts: BTreeMap<PartitionIndex, i64> = BTreeMap::new();
    let asking = async {
        loop {
            let survey = admin.fleet.survey(image, topic.id, &elected).await;
            for (index, (report, _)) in survey.reports {
                let epoch = topic
                    .partition(index)
                    .map(|partition| partition.leader_epoch.0);
                // Until the broker has heard of its election it says nothing of the partition.
                if epoch.is_some_and(|epoch| report.leader_epoch >= epoch) {
                    starts.extend(report.leader_epoch_start_offset.map(|start| (index, start)));
                }
            }
            if elected.iter().all(|index| starts.contains_key(index)) {
                return;
            }
            admin.clock.sleep(LOSS_INTERVAL).await;
        }
    };
    tokio::select! {
        () = asking => {}
        () = admin.clock.sleep(LOSS_DEADLINE) => {}
    }
    let now = admin.clock.now().monotonic;
    for item in items.iter_mut().filter(|item| item.elected) {
        let known = known.get(&item.partition);
        let ms_ago = known.map(|known| now.since(known.at).as_millis() as u64);
        let start = starts.get(&item.partition).copied();
        item.loss = Some(loss(start, known.map(|known| &known.report), ms_ago));
    }
}

/// What is known to be lost when a log that ends at `start` takes the place of one of which `known` is the last report.
fn loss(start: Option<i64>, known: Option<&PartitionReport>, ms_ago: Option<u64>) -> Loss {
    let known_end_offset = known.and_then(|known| known.log_end_offset);
    let known_high_watermark = known.and_then(|known| known.high_watermark);
    let beyond = |end: Option<i64>| Some(end?.saturating_sub(start?).max(0));
    let (records, acknowledged) = (beyond(known_end_offset), beyond(known_high_watermark));
    let summary = match (start, records, acknowledged, ms_ago) {
        (None, ..) => {
            "how much is lost is not known: the new leader has not said yet where it begins"
                .to_owned()
        }
        (Some(start), Some(records), Some(acknowledged), Some(ms_ago)) => format!(
            "as known {} ago, at least {records} record(s) are lost, {acknowledged} of them below the high watermark, \
             and whatever was written after that is lost too: the new leader begins at offset {start}",
            age(ms_ago)
        ),
        (Some(start), ..) => format!(
            "the new leader begins at offset {start}; how much the leader before had beyond that is not known: nobody \
             had asked it"
        ),
    };
    Loss {
        elected_end_offset: start,
        known_end_offset,
        known_high_watermark,
        known_ms_ago: ms_ago,
        records,
        acknowledged,
        summary,
    }
}

/// `43 s`, or `120 ms` where that is less than a second.
fn age(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => format!("{} s", ms / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_be_lost() {
        let report = |end: Option<i64>, high_watermark: Option<i64>| PartitionReport {
            topic: "t".to_owned(),
            partition: 0,
            leader_epoch: 3,
            leader_epoch_start_offset: Some(0),
            log_start_offset: Some(0),
            high_watermark,
            last_stable_offset: None,
            log_end_offset: end,
            size_bytes: None,
            replicas: Vec::new(),
        };
        for (start, known, records, acknowledged, words) in [
            (
                Some(80),
                Some(report(Some(100), Some(100))),
                Some(20),
                Some(20),
                "as known 43 s ago, at least 20 record(s)",
            ),
            (
                Some(80),
                Some(report(Some(100), Some(90))),
                Some(20),
                Some(10),
                "10 of them below",
            ),
            (
                Some(120),
                Some(report(Some(100), Some(90))),
                Some(0),
                Some(0),
                "as known 43 s ago, at least 0 record(s)",
            ),
            // What a broker says is not trusted to be sound.
            (
                Some(i64::MIN),
                Some(report(Some(i64::MAX), Some(0))),
                Some(i64::MAX),
                Some(i64::MAX),
                "record(s)",
            ),
            (Some(80), Some(report(None, None)), None, None, "not known"),
            (Some(80), None, None, None, "not known"),
            (
                None,
                Some(report(Some(100), Some(100))),
                None,
                None,
                "not known",
            ),
        ] {
            let loss = loss(start, known.as_ref(), known.as_ref().map(|_| 43_210));
            assert_eq!(
                (loss.records, loss.acknowledged),
                (records, acknowledged),
                "{loss:?}"
            );
            assert!(loss.summary.contains(words), "{loss:?}");
        }
    }
}

//! `POST /elections`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use kuorum_admin_api::{ElectionOutcome, ElectionReport, ElectionRequest, ElectionType, Problem};
use kuorum_metadata::control::command::{ElectLeaders, ElectionType as Kind};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_protocol::error_code::ErrorCode;

use super::problem::{Body, Refused};
use super::{Admin, mismatched};

const PATH: &str = "/api/v1/elections";
/// The word that says one knows what an unclean election costs.
const CONFIRMATION: &str = "unclean";

/// Elects leaders. Answers 200 if anything was elected or nothing needed to be, with what became of each partition.
#[utoipa::path(post, path = "/api/v1/elections", request_body = ElectionRequest, responses(
    (status = 200, body = ElectionReport),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn elect(
    State(admin): State<Admin>,
    Body(request): Body<ElectionRequest>,
) -> Result<Json<ElectionReport>, Refused> {
    if request.kind == ElectionType::Unclean {
        if request.partitions.is_none() {
            return Err(Refused::kafka(
                ErrorCode::InvalidRequest,
                "an unclean election names its partitions",
            )
            .in_field("/partitions")
            .at(PATH));
        }
        if request.confirm.as_deref() != Some(CONFIRMATION) {
            return Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "CONFIRMATION_REQUIRED",
                "an unclean election loses every record that the new leader does not have, acknowledged or not",
            )
            .field("/confirm", format!("must be {CONFIRMATION:?}"))
            .at(PATH));
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
        let mut refused = Refused::outcome(&first.outcome).at(PATH);
        for (index, result) in results.iter().enumerate() {
            let why = result.outcome.message.clone();
            let why = why.unwrap_or_else(|| result.outcome.code().name().to_owned());
            refused = refused.field(format!("/partitions/{index}"), why);
        }
        return Err(refused);
    }
    Ok(Json(ElectionReport {
        items: results
            .into_iter()
            .map(|result| {
                let code = result.outcome.code();
                ElectionOutcome {
                    topic: result.topic,
                    partition: result.partition,
                    elected: code == ErrorCode::None,
                    error: (code != ErrorCode::None).then(|| code.name().to_owned()),
                    message: result.outcome.message,
                }
            })
            .collect(),
    }))
}

//! `GET|PATCH /topics/{t}/configs`, `GET|PATCH /cluster/configs`.

use axum::Json;
use axum::extract::State;
use kuorum_admin_api::{ConfigEntry, ConfigPatch, ConfigSource, Page, PageQuery, Problem};
use kuorum_metadata::control::command::{
    AlterConfigs, AlterConfigsResource, ConfigOp, ConfigOpKind,
};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_metadata::image::{ConfigSource as Origin, EffectiveValue};
use kuorum_metadata::record::ConfigResource;
use kuorum_protocol::error_code::ErrorCode;

use super::page::page;
use super::problem::{Body, Path, Query, Refused};
use super::topics::{config_pointer, unknown};
use super::{Admin, mismatched};

/// What is in force for a topic.
#[utoipa::path(get, path = "/api/v1/topics/{topic}/configs", params(("topic" = String, Path), PageQuery), responses(
    (status = 200, body = Page<ConfigEntry>), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_topic(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    let image = admin.quorum.image();
    image.topic(&name).ok_or_else(|| unknown(&name))?;
    entries(
        &query,
        &format!("topics/{name}/configs"),
        image.describe_topic(&name),
    )
}

/// Changes a topic's overrides, all of them or none.
#[utoipa::path(patch, path = "/api/v1/topics/{topic}/configs", params(("topic" = String, Path)),
    request_body = ConfigPatch, responses((status = 200, body = Page<ConfigEntry>),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn patch_topic(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Body(patch): Body<ConfigPatch>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    let path = format!("/api/v1/topics/{name}/configs");
    alter(&admin, ConfigResource::Topic(name.clone()), patch, &path).await?;
    let values = admin.quorum.image().describe_topic(&name);
    entries(&PageQuery::default(), &path, values)
}

/// What topics get that say nothing themselves, and what the controllers decide by.
#[utoipa::path(get, path = "/api/v1/cluster/configs", params(PageQuery), responses(
    (status = 200, body = Page<ConfigEntry>)))]
pub(super) async fn get_cluster(
    State(admin): State<Admin>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    entries(
        &query,
        "cluster/configs",
        admin.quorum.image().describe_cluster(),
    )
}

/// Changes the cluster's defaults while it runs.
#[utoipa::path(patch, path = "/api/v1/cluster/configs", request_body = ConfigPatch, responses(
    (status = 200, body = Page<ConfigEntry>),
    (status = 400, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn patch_cluster(
    State(admin): State<Admin>,
    Body(patch): Body<ConfigPatch>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    alter(
        &admin,
        ConfigResource::ClusterDefault,
        patch,
        "/api/v1/cluster/configs",
    )
    .await?;
    let values = admin.quorum.image().describe_cluster();
    entries(&PageQuery::default(), "cluster/configs", values)
}

async fn alter(
    admin: &Admin,
    resource: ConfigResource,
    patch: ConfigPatch,
    path: &str,
) -> Result<(), Refused> {
    if let Some(twice) = patch.set.keys().find(|key| patch.unset.contains(*key)) {
        return Err(Refused::kafka(
            ErrorCode::InvalidRequest,
            format!("{twice} cannot be set and unset at once"),
        )
        .in_field(config_pointer("/set", std::slice::from_ref(twice), twice))
        .at(path));
    }
    let set_keys: Vec<String> = patch.set.keys().cloned().collect();
    let unset_keys: Vec<String> = patch.unset.iter().cloned().collect();
    let set = patch.set.into_iter().map(|(name, value)| ConfigOp {
        name,
        kind: ConfigOpKind::Set,
        value: Some(value),
    });
    let unset = patch.unset.into_iter().map(|name| ConfigOp {
        name,
        kind: ConfigOpKind::Delete,
        value: None,
    });
    let command = Command::AlterConfigs(AlterConfigs {
        resources: vec![AlterConfigsResource {
            resource,
            ops: set.chain(unset).collect(),
        }],
        validate_only: patch.dry_run,
    });
    let CommandReply::AlterConfigs(mut results) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let result = results.pop().ok_or_else(mismatched)?;
    if result.outcome.is_ok() {
        return Ok(());
    }
    let refused = Refused::outcome(&result.outcome).at(path);
    if refused.kafka_code() != Some(ErrorCode::InvalidConfig) {
        return Err(refused);
    }
    let sentence = result.outcome.message.unwrap_or_default();
    let place = unset_keys
        .iter()
        .position(|key| sentence.contains(key.as_str()));
    let set_at_fault = set_keys.iter().any(|key| sentence.contains(key.as_str()));
    Err(refused.in_field(match place {
        Some(index) if !set_at_fault => format!("/unset/{index}"),
        _ => config_pointer("/set", &set_keys, &sentence),
    }))
}

fn entries(
    query: &PageQuery,
    list: &str,
    mut values: Vec<EffectiveValue>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    values.sort_by_key(|value| value.key.name);
    let entries = values.into_iter().map(|value| ConfigEntry {
        name: value.key.name.to_owned(),
        source: source(value.source),
        // The key's own: the synonyms may count in other units, `log.retention.hours` for one.
        default: value.key.default_value().map(str::to_owned),
        value: value.value,
        read_only: value.read_only,
        doc: value.key.doc.to_owned(),
    });
    page(query, list, entries, |entry| entry.name.clone()).map(Json)
}

fn source(origin: Origin) -> ConfigSource {
    match origin {
        Origin::Topic => ConfigSource::Topic,
        Origin::Broker => ConfigSource::Broker,
        Origin::ClusterDefault => ConfigSource::ClusterDefault,
        Origin::File => ConfigSource::ControllerFile,
        Origin::BuiltIn => ConfigSource::Default,
    }
}

//! `GET|PATCH /topics/{t}/configs`, `GET|PATCH /cluster/configs`.

use axum::Json;
use axum::extract::State;
use kuorum_admin_api::{ConfigEntry, ConfigPatch, ConfigSource, Page, PageQuery, Problem};
use kuorum_metadata::MetadataImage;
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
#[utoipa::path(get, operation_id = "getTopicConfigs", tag = "configs", path = "/api/v1/topics/{topic}/configs", params(("topic" = String, Path), PageQuery), responses(
    (status = 200, body = Page<ConfigEntry>), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_topic(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    let image = admin.quorum.image();
    image.topic(&name).ok_or_else(|| unknown(&image, &name))?;
    entries(
        &query,
        &format!("topics/{name}/configs"),
        of_topic(&image, &name),
    )
}

/// Changes a topic's overrides, all of them or none.
#[utoipa::path(patch, operation_id = "changeTopicConfigs", tag = "configs", path = "/api/v1/topics/{topic}/configs", params(("topic" = String, Path)),
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
    let values = of_topic(&admin.quorum.image(), &name);
    entries(&PageQuery::default(), &path, values)
}

/// What topics get that say nothing themselves, and what the controllers decide by.
#[utoipa::path(get, operation_id = "getClusterConfigs", tag = "configs", path = "/api/v1/cluster/configs", params(PageQuery), responses(
    (status = 200, body = Page<ConfigEntry>)))]
pub(super) async fn get_cluster(
    State(admin): State<Admin>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    entries(&query, "cluster/configs", of_cluster(&admin.quorum.image()))
}

/// Changes the cluster's defaults while it runs.
#[utoipa::path(patch, operation_id = "changeClusterConfigs", tag = "configs", path = "/api/v1/cluster/configs", request_body = ConfigPatch, responses(
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
    let values = of_cluster(&admin.quorum.image());
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

/// A value in force, and what it would be without the override of the resource that was asked for.
type WithFallback = (EffectiveValue, Option<String>);

fn of_topic(image: &MetadataImage, name: &str) -> Vec<WithFallback> {
    let values = image.describe_topic(name).into_iter();
    let with_fallback = values.map(|value| {
        let fallback = match value.read_only {
            true => value.value.clone(),
            // No topic has an empty name: it has what those have that say nothing, in the key's own unit.
            false => image.effective_topic_value("", value.key.name),
        };
        (value, fallback)
    });
    with_fallback.collect()
}

fn of_cluster(image: &MetadataImage) -> Vec<WithFallback> {
    let values = image.describe_cluster().into_iter();
    let with_fallback = values.map(|value| {
        let mut weaker = value.synonyms.iter();
        let weaker = weaker.find(|synonym| synonym.source != Origin::ClusterDefault);
        let fallback = weaker.map(|synonym| synonym.value.clone());
        (value, fallback)
    });
    with_fallback.collect()
}

fn entries(
    query: &PageQuery,
    list: &str,
    mut values: Vec<WithFallback>,
) -> Result<Json<Page<ConfigEntry>>, Refused> {
    values.sort_by_key(|(value, _)| value.key.name);
    let entries = values.into_iter().map(|(value, fallback)| ConfigEntry {
        name: value.key.name.to_owned(),
        source: source(value.source),
        // The key's own: the synonyms may count in other units, `log.retention.hours` for one.
        default: value.key.default_value().map(str::to_owned),
        fallback,
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

#[cfg(test)]
mod tests {
    use kuorum_metadata::record::MetadataRecord;
    use kuorum_protocol::TopicId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_a_value_goes_back_to_is_what_the_cluster_says() {
        let set = |resource: ConfigResource, value: &str| MetadataRecord::Config {
            resource,
            name: "min.insync.replicas".to_owned(),
            value: Some(value.to_owned()),
        };
        let topic = MetadataRecord::Topic {
            name: "t".to_owned(),
            topic_id: TopicId(Uuid::from_u128(7)),
        };
        let of_the_topic = set(ConfigResource::Topic("t".to_owned()), "3");
        let of_the_cluster = set(ConfigResource::ClusterDefault, "2");
        let of_the_file = set(ConfigResource::ControllerFile, "4");
        // (what is set, then what the topic's value and the cluster's go back to)
        let rows = [
            (vec![], "1", "1"),
            (vec![of_the_topic.clone()], "1", "1"),
            (vec![of_the_topic.clone(), of_the_cluster.clone()], "2", "1"),
            (vec![of_the_topic, of_the_cluster, of_the_file], "2", "4"),
        ];
        for (records, topic_falls_to, cluster_falls_to) in rows {
            let records = [vec![topic.clone()], records].concat();
            let image = MetadataImage::from_records(0, &records);
            let fallback = |values: Vec<WithFallback>| {
                let mut values = values.into_iter();
                let found = values.find(|(value, _)| value.key.name == "min.insync.replicas");
                found.and_then(|(_, fallback)| fallback)
            };
            let found = (
                fallback(of_topic(&image, "t")),
                fallback(of_cluster(&image)),
            );
            let expected = (
                Some(topic_falls_to.to_owned()),
                Some(cluster_falls_to.to_owned()),
            );
            assert_eq!(found, expected, "{records:?}");
        }
    }
}

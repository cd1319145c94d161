//! `GET /openapi.json`: this API, described by the code that serves it.

use axum::Json;
use utoipa::OpenApi;

/// Every path, from the handlers' own attributes.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Kuorum admin API",
        description = "Every controller answers; the active one decides. Offsets are JSON integers up to 2^53-1."
    ),
    paths(
        super::brokers::list,
        super::brokers::get,
        super::brokers::drain,
        super::brokers::undrain,
        super::brokers::unregister,
        super::topics::list,
        super::topics::get,
        super::topics::create,
        super::topics::delete,
        super::topics::add_partitions,
        super::configs::get_topic,
        super::configs::patch_topic,
        super::configs::get_cluster,
        super::configs::patch_cluster,
        super::partitions::list,
        super::partitions::get,
        super::epochs::list,
        super::events::list,
        super::elections::elect,
        super::reassignments::list,
        super::reassignments::run,
        super::reassignments::cancel,
        super::salvage::list,
        super::salvage::get,
        super::salvage::records,
        super::salvage::segment,
        super::salvage::replay,
        super::salvage::delete,
        super::quorum::get,
        super::health::get,
    )
)]
struct Description;

pub(super) async fn get() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own_and_a_plain_tag() {
        let document = serde_json::to_value(Description::openapi()).expect("it is JSON");
        let paths = document["paths"].as_object().expect("there are paths");
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().expect("operations by method") {
                let place = format!("{method} {path}");
                let id = operation["operationId"].as_str().expect(&place).to_owned();
                let tags = operation["tags"].as_array().expect(&place);
                let plain = |text: &str| text.chars().all(|letter| letter.is_ascii_alphabetic());
                assert!(plain(&id), "{place}: {id:?}");
                assert!(
                    tags.len() == 1 && tags[0].as_str().is_some_and(plain),
                    "{place}: {tags:?}"
                );
                if let Some(other) = known.insert(id.clone(), place.clone()) {
                    panic!("{place} and {other} are both {id}");
                }
            }
        }
        assert!(known.len() > 20, "{known:?}");
    }
}

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

//! A controller takes office: the first batch of its epoch.
//! Law: the epoch is the image's plus one, so of two that try at once the log's order lets one through; the other's batch
//! is skipped, and it learns that it is not the controller.

use std::collections::BTreeMap;

use kuorum_protocol::{ControllerEpoch, Timestamp};

use crate::image::{METADATA_VERSION, MetadataImage};
use crate::record::{ConfigResource, MetadataRecord, RecordBatch};

/// The level of `metadata.version` this build writes and the highest it understands (Kafka's 4.0-IV3).
pub const METADATA_VERSION_LEVEL: i16 = 25;

/// The batch by which a controller takes office: in a new cluster first the level of `metadata.version`, then its epoch,
/// then what its file says of values the whole cluster shares, where that differs from what is recorded.
///
/// `file` is [`crate::config_def::ControllerConfig::recorded_values`]. Whoever proposes the batch notes the time in it.
#[must_use = "a batch that is not proposed never happens"]
pub fn take_office(
    image: &MetadataImage,
    controller_id: u64,
    file: &BTreeMap<String, String>,
) -> RecordBatch {
    let controller_epoch = ControllerEpoch(image.controller_epoch().0 + 1);
    let mut records = Vec::new();
    if image.feature(METADATA_VERSION) == 0 {
        records.push(MetadataRecord::FeatureLevel {
            name: METADATA_VERSION.to_owned(),
            level: METADATA_VERSION_LEVEL,
        });
    }
    records.push(MetadataRecord::ControllerEpoch {
        epoch: controller_epoch,
        controller_id,
    });
    let recorded = image.configs_of(&ConfigResource::ControllerFile);
    let set = |name: &str, value: Option<&String>| MetadataRecord::Config {
        resource: ConfigResource::ControllerFile,
        name: name.to_owned(),
        value: value.cloned(),
    };
    for (name, value) in file {
        if recorded.and_then(|recorded| recorded.get(name)) != Some(value) {
            records.push(set(name, Some(value)));
        }
    }
    for name in recorded.into_iter().flat_map(|recorded| recorded.keys()) {
        if !file.contains_key(name) {
            records.push(set(name, None));
        }
    }
    RecordBatch {
        controller_epoch,
        decided_at: Timestamp::NONE,
        records,
    }
}

/// Whether this build understands what the cluster has finalized; if not, the sentence to stop with.
pub fn check_understood(image: &MetadataImage) -> Result<(), String> {
    let level = image.feature(METADATA_VERSION);
    if level <= METADATA_VERSION_LEVEL {
        return Ok(());
    }
    Err(format!(
        "the cluster has finalized {METADATA_VERSION} {level}, this build understands up to {METADATA_VERSION_LEVEL}: \
         install a newer one"
    ))
}

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
    let set = |difference: Difference| MetadataRecord::Config {
        resource: ConfigResource::ControllerFile,
        name: difference.name,
        value: difference.file,
    };
    records.extend(differences(image, file).into_iter().map(set));
    RecordBatch {
        controller_epoch,
        decided_at: Timestamp::NONE,
        records,
    }
}

/// A value the whole cluster shares, of which a process's file says something else than what is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub name: String,
    /// What the file says, if anything.
    pub file: Option<String>,
    /// What the active controller has recorded of its own file, if anything.
    pub recorded: Option<String>,
}

/// Where a file and what is recorded differ. `file` is what it says of values that the whole cluster shares.
pub fn differences(image: &MetadataImage, file: &BTreeMap<String, String>) -> Vec<Difference> {
    let recorded = image.configs_of(&ConfigResource::ControllerFile);
    let recorded = |name: &str| recorded.and_then(|recorded| recorded.get(name)).cloned();
    let given = file.iter().map(|(name, value)| Difference {
        name: name.clone(),
        file: Some(value.clone()),
        recorded: recorded(name),
    });
    let names = image.configs_of(&ConfigResource::ControllerFile);
    let names = names.into_iter().flat_map(|recorded| recorded.keys());
    let left_out = names
        .filter(|name| !file.contains_key(*name))
        .map(|name| Difference {
            name: name.clone(),
            file: None,
            recorded: recorded(name),
        });
    let mut differences: Vec<Difference> = given.collect();
    differences.retain(|difference| difference.file != difference.recorded);
    differences.extend(left_out);
    differences
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

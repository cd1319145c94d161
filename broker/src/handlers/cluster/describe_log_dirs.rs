//! DescribeLogDirs: what this broker's directories hold, and how much room is left (API 35, KIP-113).

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use kuorum_protocol::DirectoryId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};

use crate::context::Context;

/// Answers from the replicas themselves.
pub async fn describe_log_dirs(
    cx: &Context,
    request: DescribeLogDirsRequest,
    _version: i16,
) -> DescribeLogDirsResponse {
    let wanted: Option<HashSet<(&str, i32)>> = request.topics.as_ref().map(|topics| {
        topics
            .iter()
            .flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(|index| (topic.topic.as_str(), *index))
            })
            .collect()
    });
    let mut found: BTreeMap<DirectoryId, BTreeMap<String, Vec<DescribeLogDirsPartition>>> =
        BTreeMap::new();
    for hosted in cx.replicas.all() {
        if wanted
            .as_ref()
            .is_some_and(|wanted| !wanted.contains(&(&*hosted.topic, hosted.index)))
        {
            continue;
        }
        let (size, lag) = hosted.with(|partition, _| {
            let log = partition.log();
            (
                log.size_bytes(),
                partition.high_watermark().0 - log.end_offset().0,
            )
        });
        let topics = found.entry(hosted.directory).or_default();
        topics
            .entry(hosted.topic.to_string())
            .or_default()
            .push(DescribeLogDirsPartition {
                partition_index: hosted.index,
                partition_size: i64::try_from(size).unwrap_or(i64::MAX),
                offset_lag: lag.max(0),
                is_future_key: false,
            });
    }
    let offline = cx.membership.offline_directories();
    // By path: one that could not be read at the start has no place among the others.
    let results = cx.config.log_dirs.iter().map(|path| {
        let opened = cx
            .replicas
            .log_dirs()
            .directory_at(&path.display().to_string());
        let error = match opened {
            Some((directory, true)) if !offline.contains(&directory) => ErrorCode::None,
            _ => ErrorCode::KafkaStorageError,
        };
        let (total_bytes, usable_bytes) = room(path);
        let topics = opened
            .and_then(|(directory, _)| found.remove(&directory))
            .unwrap_or_default()
            .into_iter()
            .map(|(name, mut partitions)| {
                partitions.sort_unstable_by_key(|partition| partition.partition_index);
                DescribeLogDirsTopic { name, partitions }
            });
        DescribeLogDirsResult {
            error_code: error.code(),
            log_dir: path.display().to_string(),
            topics: topics.collect(),
            total_bytes,
            usable_bytes,
        }
    });
    DescribeLogDirsResponse {
        results: results.collect(),
        ..Default::default()
    }
}

/// The size of a directory's file system, and how much of it may still be written; −1 if nobody knows.
fn room(path: &Path) -> (i64, i64) {
    let Ok(stat) = rustix::fs::statvfs(path) else {
        return (-1, -1);
    };
    let bytes =
        |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
    (bytes(stat.f_blocks), bytes(stat.f_bavail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Desk, Topic};

    #[tokio::test]
    async fn a_directory_that_did_not_open_is_told_of_as_offline() {
        let desk = Desk::with(&[Topic::default()]).await;
        let request = DescribeLogDirsRequest { topics: None };
        let response = describe_log_dirs(&desk.client(), request, 4).await;
        let [data, gone] = response.results.as_slice() else {
            panic!("{response:?}");
        };
        assert!(gone.log_dir.ends_with("/gone"), "{gone:?}");
        assert_eq!(gone.error_code, ErrorCode::KafkaStorageError.code());
        assert!(gone.topics.is_empty(), "{gone:?}");
        assert!(data.log_dir.ends_with("/data"), "{data:?}");
        assert_eq!(data.error_code, ErrorCode::None.code());
        assert_eq!(data.topics[0].name, "orders");
        assert!(data.total_bytes > 0, "{data:?}");
    }
}

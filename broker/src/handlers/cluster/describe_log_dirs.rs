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
    let directories = cx
        .replicas
        .log_dirs()
        .directories()
        .into_iter()
        .zip(&cx.config.log_dirs);
    let results = directories.map(|((directory, works), path)| {
        let error = if works && !offline.contains(&directory) {
            ErrorCode::None
        } else {
            ErrorCode::KafkaStorageError
        };
        let (total_bytes, usable_bytes) = room(path);
        let topics = found
            .remove(&directory)
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

//! How many of the oldest segments retention no longer keeps.
//! Law: pure. The active segment stays, and so does every segment that reaches above the high watermark.

use kuorum_protocol::{Offset, Timestamp};

use crate::config::LogConfig;

/// What retention needs to know of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) end: Offset,
    pub(crate) size: u64,
    /// The highest timestamp of its records, if it has any.
    pub(crate) max_timestamp: Option<Timestamp>,
}

/// How many segments go, of all `segments`, oldest first; the last one is the active one.
pub(crate) fn expired(
    segments: &[Candidate],
    config: &LogConfig,
    high_watermark: Offset,
    log_start: Offset,
    wall: Timestamp,
) -> usize {
    let Some((_, sealed)) = segments.split_last() else {
        return 0;
    };
    let mut excess = match config.retention_bytes {
        Some(limit) if config.delete => {
            segments
                .iter()
                .map(|segment| segment.size as i64)
                .sum::<i64>()
                - limit.max(0)
        }
        _ => 0,
    };
    let mut count = 0;
    for segment in sealed {
        if segment.end > high_watermark {
            break;
        }
        let below_start = segment.end <= log_start;
        let too_old = config.delete
            && config.retention_ms.is_some_and(|keep| {
                let newest = segment.max_timestamp.unwrap_or(Timestamp(0));
                wall.0.saturating_sub(newest.0) > keep
            });
        let too_many = excess >= segment.size as i64 && excess > 0;
        if !(below_start || too_old || too_many) {
            break;
        }
        excess -= segment.size as i64;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let segments = [
            Candidate {
                end: Offset(10),
                size: 100,
                max_timestamp: Some(Timestamp(1_000)),
            },
            Candidate {
                end: Offset(20),
                size: 100,
                max_timestamp: Some(Timestamp(2_000)),
            },
            Candidate {
                end: Offset(30),
                size: 50,
                max_timestamp: Some(Timestamp(3_000)),
            },
        ];
        let keep = |ms, bytes| LogConfig {
            retention_ms: ms,
            retention_bytes: bytes,
            ..LogConfig::default()
        };
        let rows = [
            ("nothing is old", keep(Some(5_000), None), 30, 0, 3_000, 0),
            ("the first is old", keep(Some(1_500), None), 30, 0, 3_000, 1),
            (
                "both sealed ones are old, the active one stays",
                keep(Some(10), None),
                30,
                0,
                9_000,
                2,
            ),
            (
                "never above the high watermark",
                keep(Some(10), None),
                15,
                0,
                9_000,
                1,
            ),
            (
                "too many bytes by less than a segment",
                keep(None, Some(151)),
                30,
                0,
                9_000,
                0,
            ),
            (
                "too many bytes by one segment",
                keep(None, Some(150)),
                30,
                0,
                9_000,
                1,
            ),
            (
                "too many bytes by all",
                keep(None, Some(0)),
                30,
                0,
                9_000,
                2,
            ),
            ("kept for ever", keep(None, None), 30, 0, i64::MAX, 0),
            ("below the start", keep(None, None), 30, 10, 0, 1),
            ("half below the start", keep(None, None), 30, 15, 0, 1),
        ];
        for (name, config, high_watermark, start, wall, count) in rows {
            let found = expired(
                &segments,
                &config,
                Offset(high_watermark),
                Offset(start),
                Timestamp(wall),
            );
            assert_eq!(found, count, "{name}");
        }
        let compacted = LogConfig {
            delete: false,
            retention_ms: Some(1),
            ..LogConfig::default()
        };
        assert_eq!(
            expired(
                &segments,
                &compacted,
                Offset(30),
                Offset(0),
                Timestamp(99_999)
            ),
            0
        );
    }
}

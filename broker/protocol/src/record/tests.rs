use bytes::{Bytes, BytesMut};
use kafka_protocol::records as oracle;
use proptest::prelude::*;

use super::batch::{BatchError, BatchMut, BatchView, HEADER_SIZE, attributes, batches};
use super::compression::{Codec, CompressionError, DecompressLimit, compress, decompress};
use super::control::{ControlType, end_marker};
use super::record::{Record, RecordError, RecordsReader};
use super::validate::{InvalidBatch, ProduceLimits, TimestampType, validate_produced};
use super::varint::{long_size, read_int, read_long, write_long};
use super::writer::{BatchBuilder, Header};
use crate::error_code::ErrorCode;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};
use crate::time::Timestamp;

const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

/// One batch as a Java client of 2017 sent it: one record, no key, value "123", one broker's epoch 1.
const GOLDEN: &[u8] = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00;\x00\x00\x00\x01\x02\x03\x18\xa2p\x00\x00\
    \x00\x00\x00\x00\x00\x00\x01]\xff{\x06<\x00\x00\x01]\xff{\x06<\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
    \xff\xff\xff\x00\x00\x00\x01\x12\x00\x00\x00\x01\x06123\x00";
const GOLDEN_TIME: Timestamp = Timestamp(1_503_229_838_908);

fn story() -> BatchBuilder {
    BatchBuilder::new(Codec::None)
        .producer(ProducerId(9999), ProducerEpoch(3), Sequence(5))
        .push(
            Timestamp(1000),
            Some(b"user_10"),
            Some(b"deposit 1000000"),
            &[],
        )
        .push(
            Timestamp(1007),
            Some(b"user_10"),
            None,
            &[
                ("trace".into(), Some(Bytes::from_static(b"a1"))),
                ("empty".into(), None),
            ],
        )
        .push(Timestamp(990), None, Some(b""), &[])
}

fn read_all(batch: &Bytes) -> Vec<Record> {
    RecordsReader::new(batch, DecompressLimit::CONSUMED)
        .expect("a batch")
        .collect::<Result<_, _>>()
        .expect("records")
}

#[test]
fn the_golden_batch_reads_as_it_was_written() {
    let batch = BatchView::parse(GOLDEN).unwrap();
    assert!(batch.crc_is_valid());
    assert_eq!(batch.size(), GOLDEN.len());
    assert_eq!(batch.batch_length(), 59);
    assert_eq!(batch.leader_epoch(), LeaderEpoch(1));
    assert_eq!(batch.crc(), 0x0318_a270);
    assert_eq!(batch.compression(), Codec::None);
    assert_eq!(
        (batch.base_offset(), batch.next_offset()),
        (Offset(0), Offset(1))
    );
    assert_eq!(
        (batch.base_timestamp(), batch.max_timestamp()),
        (GOLDEN_TIME, GOLDEN_TIME)
    );
    assert_eq!(batch.producer_id(), ProducerId::NONE);
    assert_eq!(batch.producer_epoch(), ProducerEpoch(-1));
    assert_eq!(
        (batch.base_sequence(), batch.last_sequence()),
        (Sequence::NONE, Sequence::NONE)
    );
    let records = read_all(&Bytes::from_static(GOLDEN));
    assert_eq!(
        records,
        [Record {
            timestamp: GOLDEN_TIME,
            value: Some(Bytes::from_static(b"123")),
            ..Record::default()
        }]
    );
}

#[test]
fn the_writer_makes_the_golden_batch() {
    let built = BatchBuilder::new(Codec::None)
        .push(GOLDEN_TIME, None, Some(b"123"), &[])
        .build();
    let mut built = built.to_vec();
    BatchMut::parse(&mut built)
        .unwrap()
        .set_leader_epoch(LeaderEpoch(1));
    assert_eq!(built, GOLDEN);
}

#[test]
fn a_written_batch_is_the_one_the_oracle_writes() {
    let records: Vec<_> = read_all(&story().build())
        .into_iter()
        .enumerate()
        .map(|(index, record)| oracle::Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: 9999,
            producer_epoch: 3,
            timestamp_type: oracle::TimestampType::Creation,
            offset: record.offset.0,
            sequence: 5 + index as i32,
            timestamp: record.timestamp.0,
            key: record.key,
            value: record.value,
            headers: record
                .headers
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
        })
        .collect();
    let mut theirs = BytesMut::new();
    let options = oracle::RecordEncodeOptions {
        version: 2,
        compression: oracle::Compression::None,
    };
    oracle::RecordBatchEncoder::encode(&mut theirs, &records, &options).unwrap();

    // The oracle takes the lowest timestamp as the base and we take the first, as Java does: compare what it reads.
    let mut ours = story().build();
    let read = oracle::RecordBatchDecoder::decode(&mut ours)
        .unwrap()
        .records;
    assert_eq!(read, records);
    assert_eq!(read_all(&theirs.freeze()), read_all(&story().build()));
}

#[test]
fn offset_and_epoch_lie_outside_the_crc_and_append_time_renews_it() {
    let mut bytes = story().build().to_vec();
    let crc = BatchView::parse(&bytes).unwrap().crc();
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_base_offset(Offset(150_000));
    batch.set_leader_epoch(LeaderEpoch(7));
    assert_eq!(batch.view().crc(), crc);
    assert!(batch.view().crc_is_valid());
    assert_eq!(batch.view().last_offset(), Offset(150_002));
    batch.set_log_append_time(Timestamp(5555));
    assert_ne!(batch.view().crc(), crc);
    assert!(batch.view().crc_is_valid());
    assert_eq!(batch.view().base_timestamp(), Timestamp(1000));
    batch.set_producer(ProducerId(9999), ProducerEpoch(4), Sequence(0));
    assert!(batch.view().crc_is_valid());
    let producer = (batch.view().producer_epoch(), batch.view().base_sequence());
    assert_eq!(producer, (ProducerEpoch(4), Sequence(0)));

    let records = read_all(&bytes.into());
    let found: Vec<_> = records
        .iter()
        .map(|r| (r.offset.0, r.timestamp.0))
        .collect();
    assert_eq!(found, [(150_000, 5555), (150_001, 5555), (150_002, 5555)]);
}

#[test]
fn sequences_wrap_within_a_batch() {
    let batch = BatchBuilder::new(Codec::None)
        .producer(ProducerId(1), ProducerEpoch(0), Sequence(i32::MAX))
        .push(Timestamp(0), None, None, &[])
        .push(Timestamp(0), None, None, &[])
        .build();
    let view = BatchView::parse(&batch).unwrap();
    assert_eq!(
        (view.base_sequence(), view.last_sequence()),
        (Sequence(i32::MAX), Sequence(0))
    );
}

#[test]
fn an_end_marker_is_one_control_record() {
    let batch = end_marker(
        ControlType::Commit,
        ProducerId(4),
        ProducerEpoch(2),
        17,
        Timestamp(9),
    );
    let view = BatchView::parse(&batch).unwrap();
    assert_eq!(
        view.attributes(),
        attributes::TRANSACTIONAL | attributes::CONTROL
    );
    assert_eq!(view.attributes(), 0x30);
    assert_eq!(
        (view.record_count(), view.base_sequence()),
        (1, Sequence::NONE)
    );
    let records = read_all(&batch);
    assert_eq!(records[0].key.as_deref(), Some(&[0, 0, 0, 1][..]));
    assert_eq!(records[0].value.as_deref(), Some(&[0, 0, 0, 0, 0, 17][..]));
    assert_eq!(
        ControlType::of_record(&records[0]),
        Some(ControlType::Commit)
    );
    assert_eq!(ControlType::of_key(&[0, 0, 0, 0]), Some(ControlType::Abort));
    assert_eq!(
        ControlType::of_key(&[0, 0, 0, 9]),
        Some(ControlType::Unknown(9))
    );
    assert_eq!(ControlType::of_key(&[0, 0, 0]), None);
}

#[test]
fn every_codec_carries_records() {
    for codec in CODECS {
        let mut builder = BatchBuilder::new(codec);
        for n in 0..500 {
            let value = format!("record number {n}");
            builder.append(Timestamp(n), Some(b"key"), Some(value.as_bytes()), &[]);
        }
        let batch = builder.build();
        let view = validate_produced(&batch, &ProduceLimits::default()).expect("valid");
        assert_eq!(view.max_timestamp, Timestamp(499));
        let view = view.batch;
        assert_eq!(view.compression(), codec);
        let records = read_all(&batch);
        assert_eq!(records.len(), 500, "{codec}");
        assert_eq!(
            records[499].value.as_deref(),
            Some(&b"record number 499"[..])
        );
        let copied: Vec<_> = RecordsReader::copying(&view, DecompressLimit::CONSUMED)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(copied, records);
    }
}

#[test]
fn snappy_is_written_framed_and_read_bare_too() {
    let input = vec![7u8; 100_000];
    let framed = compress(Codec::Snappy, &input).unwrap();
    assert_eq!(
        framed[..16],
        *b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    );
    let bare = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    for form in [framed, bare] {
        assert_eq!(
            decompress(Codec::Snappy, &form, DecompressLimit::CONSUMED).unwrap(),
            input
        );
    }
}

#[test]
fn a_bomb_is_refused_before_it_is_unpacked() {
    let input = vec![0u8; DecompressLimit::FLOOR + 4096];
    let tight = DecompressLimit {
        max_bytes: usize::MAX,
        max_ratio: 2,
    };
    for codec in &CODECS[1..] {
        let bomb = compress(*codec, &input).unwrap();
        for limit in [tight, DecompressLimit::bytes(10_000)] {
            let result = decompress(*codec, &bomb, limit);
            assert!(
                matches!(result, Err(CompressionError::TooLarge { .. })),
                "{codec}: {:?}",
                result.map(|out| out.len())
            );
        }
    }
    // A bare block that claims 4 GiB in five bytes.
    let lie = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(decompress(Codec::Snappy, &lie, DecompressLimit::CONSUMED).is_err());
}

#[test]
fn every_truncation_of_compressed_bytes_is_an_error_or_yields_what_came_before() {
    let input: Vec<u8> = (0..2000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
    for codec in &CODECS[1..] {
        let whole = compress(*codec, &input).unwrap();
        for end in 0..whole.len() {
            if let Ok(out) = decompress(*codec, &whole[..end], DecompressLimit::CONSUMED) {
                assert!(input.starts_with(&out), "{codec} cut at {end}");
                // Only snappy has nothing that says where it ends.
                assert_eq!(*codec, Codec::Snappy, "cut at {end}");
            }
        }
    }
}

/// Some libraries stop at the end of what they know, others refuse what follows: then not everybody could read the batch.
#[test]
fn what_follows_compressed_bytes_is_an_error() {
    let input = b"what was meant";
    for codec in &CODECS[1..] {
        let whole = compress(*codec, input).unwrap();
        let nothing = compress(*codec, b"").unwrap();
        let behind: [&[u8]; 5] = [&[0], &[0; 4], &[0x5a; 9], &whole, &nothing];
        for behind in behind {
            let both = [&whole[..], behind].concat();
            let result = decompress(*codec, &both, DecompressLimit::CONSUMED);
            let refused = matches!(result, Err(CompressionError::Malformed { .. }));
            assert!(refused, "{codec}, {behind:?} behind it: {result:?}");
        }
    }
}

#[test]
fn an_lz4_frame_is_known_in_all_its_forms() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let input: Vec<u8> = (0..70_000u32).flat_map(u32::to_le_bytes).collect();
    for form in 0..32_u32 {
        let has = |bit: u32| form & (1 << bit) != 0;
        let info = FrameInfo::new()
            .block_mode(if has(0) {
                BlockMode::Linked
            } else {
                BlockMode::Independent
            })
            .block_size(if has(1) {
                BlockSize::Max4MB
            } else {
                BlockSize::Max64KB
            })
            .block_checksums(has(2))
            .content_checksum(has(3))
            .content_size(has(4).then_some(input.len() as u64));
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        std::io::Write::write_all(&mut encoder, &input).unwrap();
        let mut frame = encoder.finish().unwrap();
        let out = decompress(Codec::Lz4, &frame, DecompressLimit::CONSUMED);
        assert_eq!(out.unwrap(), input, "form {form:05b}");
        frame.pop();
        decompress(Codec::Lz4, &frame, DecompressLimit::CONSUMED).unwrap_err();
    }
}

#[test]
fn batches_of_one_request_share_what_they_may_decompress_to() {
    let limits = ProduceLimits::default();
    for codec in &CODECS[1..] {
        let mut builder = BatchBuilder::new(*codec);
        for n in 0..100 {
            builder = builder.push(Timestamp(n), None, Some(b"value"), &[]);
        }
        let batch = builder.build();
        let mut room = usize::MAX;
        super::validate::validate_within(&batch, &limits, &mut room).unwrap();
        let one = usize::MAX - room;
        assert!(one > 100, "{codec}: {one}");
        let mut room = 2 * one + 1;
        let mut codes = (0..4).map(|_| {
            let result = super::validate::validate_within(&batch, &limits, &mut room);
            result.map_or_else(|error| ErrorCode::from(&error), |_| ErrorCode::None)
        });
        let expected = [
            ErrorCode::None,
            ErrorCode::None,
            ErrorCode::MessageTooLarge,
            ErrorCode::MessageTooLarge,
        ];
        assert!(codes.by_ref().eq(expected), "{codec}");
    }
}

#[test]
fn every_truncation_of_a_batch_is_an_error() {
    for codec in CODECS {
        let mut builder = story();
        builder = BatchBuilder::new(codec)
            .push(Timestamp(1), Some(b"k"), Some(b"value"), &[])
            .push(
                Timestamp(2),
                builder.is_empty().then_some(&b"x"[..]),
                None,
                &[],
            );
        let whole = builder.build();
        for end in 0..whole.len() {
            let cut = &whole[..end];
            assert!(matches!(
                BatchView::parse(cut),
                Err(BatchError::Truncated { .. })
            ));
            assert_eq!(
                validate_produced(cut, &ProduceLimits::default()).unwrap_err(),
                InvalidBatch::NoBatch
            );
            let mut two = whole.to_vec();
            two.extend_from_slice(cut);
            let found: Vec<_> = batches(&two).collect();
            assert!(found[0].is_ok());
            assert_eq!(found.len(), 1 + usize::from(end > 0));
            assert!(found[1..].iter().all(Result::is_err));
        }
    }
}

/// Changes bytes of a batch and renews its length and CRC, so that only the change is wrong.
fn patched(builder: BatchBuilder, patch: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = builder.build().to_vec();
    patch(&mut bytes);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    BatchMut::parse(&mut bytes).unwrap().renew_crc();
    bytes
}

#[test]
fn invalid_batches() {
    let plain = || {
        BatchBuilder::new(Codec::None)
            .push(Timestamp(1000), Some(b"a"), Some(b"b"), &[])
            .push(Timestamp(1001), None, Some(b"c"), &[])
    };
    let good = plain().build().to_vec();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let fixed = |at: usize, new: &'static [u8]| {
        patched(plain(), |bytes| {
            bytes[at..at + new.len()].copy_from_slice(new)
        })
    };
    let twice = [good.clone(), good.clone()].concat();
    let zstd = BatchBuilder::new(Codec::Zstd)
        .push(Timestamp(1), None, None, &[])
        .build()
        .to_vec();
    let limits = ProduceLimits {
        now: Timestamp(2000),
        ..ProduceLimits::default()
    };
    let old = ProduceLimits {
        produce_version: 6,
        ..limits
    };
    let small = ProduceLimits {
        max_message_bytes: good.len() - 1,
        ..limits
    };
    let early = ProduceLimits {
        timestamp_after_max_ms: -1000,
        ..limits
    };
    let late = ProduceLimits {
        timestamp_before_max_ms: 900,
        ..limits
    };
    let compacted = ProduceLimits {
        compacted: true,
        ..limits
    };
    let roomy = ProduceLimits {
        max_message_bytes: usize::MAX,
        decompress: DecompressLimit::bytes(16 << 20),
        ..limits
    };
    let packed = |codec, count: usize| {
        let mut builder = BatchBuilder::new(codec);
        for n in 0..count {
            builder.append(Timestamp(1000 + n as i64), Some(b"k"), Some(&[7; 40]), &[]);
        }
        builder
    };
    let bomb = |codec| {
        let mut builder = BatchBuilder::new(codec);
        builder.append(Timestamp(1000), None, Some(&vec![0; 17 << 20]), &[]);
        builder.build().to_vec()
    };
    let first = HEADER_SIZE;
    let second = HEADER_SIZE + 1 + (good[HEADER_SIZE] / 2) as usize;

    let rows: Vec<(&str, Vec<u8>, &ProduceLimits, &str)> = vec![
        ("nothing", vec![], &limits, "NoBatch"),
        ("magic 0", with(16, &[0]), &limits, "OldMagic(0)"),
        ("magic 1", with(16, &[1]), &limits, "OldMagic(1)"),
        ("magic 3", with(16, &[3]), &limits, "Corrupt"),
        ("two batches", twice, &limits, "SeveralBatches"),
        (
            "a byte too many",
            [&good[..], &[0]].concat(),
            &limits,
            "SeveralBatches",
        ),
        (
            "length negative",
            with(8, &(-1i32).to_be_bytes()),
            &limits,
            "Corrupt",
        ),
        (
            "length below a header",
            with(8, &48i32.to_be_bytes()),
            &limits,
            "Corrupt",
        ),
        (
            "length beyond the end",
            with(8, &i32::MAX.to_be_bytes()),
            &limits,
            "NoBatch",
        ),
        ("zstd before version 7", zstd, &old, "ZstdTooOld"),
        (
            "base offset 1",
            with(0, &1i64.to_be_bytes()),
            &limits,
            "BaseOffset(1)",
        ),
        ("too large", good.clone(), &small, "TooLarge"),
        (
            "flipped bit",
            with(good.len() - 1, &[1]),
            &limits,
            "Corrupt",
        ),
        ("codec 5", fixed(22, &[5]), &limits, "UnknownCodec(5)"),
        ("count 0", fixed(57, &[0, 0, 0, 0]), &limits, "Count"),
        ("count 3 of 2", fixed(57, &[0, 0, 0, 3]), &limits, "Count"),
        ("delta −1", fixed(23, &[255; 4]), &limits, "Count"),
        (
            "delta i32::MAX",
            fixed(23, &[127, 255, 255, 255]),
            &limits,
            "Count",
        ),
        ("control", fixed(22, &[0x20]), &limits, "Control"),
        (
            "no sequence",
            patched(
                plain().producer(ProducerId(9), ProducerEpoch(3), Sequence(0)),
                |b| b[53..57].fill(0xff),
            ),
            &limits,
            "NoSequence",
        ),
        ("append time", fixed(22, &[8]), &limits, "LogAppendTime"),
        (
            "three of two",
            patched(plain(), |b| {
                b[26] = 2;
                b[60] = 3;
            }),
            &limits,
            "Records(TooFew { claimed: 3, found: 2 })",
        ),
        (
            "one of two",
            patched(plain(), |b| {
                b[26] = 0;
                b[60] = 1;
            }),
            &limits,
            "Records(TrailingBytes",
        ),
        (
            "record longer",
            fixed(first, &[0x7e]),
            &limits,
            "Records(Malformed { index: 0",
        ),
        (
            "record shorter",
            fixed(first, &[0x02]),
            &limits,
            "Records(Malformed { index: 0",
        ),
        (
            "record negative",
            fixed(first, &[0x01]),
            &limits,
            "Records(Malformed { index: 0",
        ),
        (
            "offset delta",
            fixed(second + 3, &[4]),
            &limits,
            "OffsetDelta { index: 1, found: 2 }",
        ),
        (
            "key too long",
            fixed(first + 4, &[0x7e]),
            &limits,
            "Records(Malformed { index: 0",
        ),
        (
            "key length −2",
            fixed(first + 4, &[0x03]),
            &limits,
            "Records(Malformed { index: 0",
        ),
        (
            "headers −1",
            fixed(good.len() - 1, &[1]),
            &limits,
            "Records(Malformed { index: 1",
        ),
        (
            "headers 1 of 0",
            fixed(good.len() - 1, &[2]),
            &limits,
            "Records(Malformed { index: 1",
        ),
        (
            "header without a name",
            patched(plain(), |b| {
                b[second] += 4;
                *b.last_mut().unwrap() = 2;
                b.extend_from_slice(&[1, 1]);
            }),
            &limits,
            "Records(Malformed { index: 1, reason: \"the name of a header is null\" })",
        ),
        (
            "future",
            good.clone(),
            &early,
            "TimestampOutOfRange { indexes: [1] }",
        ),
        (
            "past",
            good.clone(),
            &late,
            "TimestampOutOfRange { indexes: [0, 1] }",
        ),
        (
            "no key",
            good.clone(),
            &compacted,
            "KeyMissing { indexes: [1] }",
        ),
        (
            "not gzip",
            fixed(22, &[1]),
            &limits,
            "Records(Compression(Malformed",
        ),
        (
            "not zstd",
            fixed(22, &[4]),
            &limits,
            "Records(Compression(Malformed",
        ),
        (
            "more records than bytes can hold",
            patched(plain(), |b| {
                b[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
                b[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
            }),
            &limits,
            "Count",
        ),
        (
            "a million of two",
            patched(plain(), |b| {
                b[23..27].copy_from_slice(&999_999i32.to_be_bytes());
                b[57..61].copy_from_slice(&1_000_000i32.to_be_bytes());
            }),
            &limits,
            "Records(TooFew",
        ),
        (
            "producer id −2",
            fixed(43, &[255, 255, 255, 255, 255, 255, 255, 254]),
            &limits,
            "Producer(",
        ),
        (
            "epoch −1 of a producer",
            patched(
                plain().producer(ProducerId(9), ProducerEpoch(3), Sequence(0)),
                |b| b[51..53].fill(0xff),
            ),
            &limits,
            "Producer(",
        ),
    ];
    let mut rows = rows;
    for codec in &CODECS[1..] {
        let codec = *codec;
        let with_count = |count: i32, claimed: i32| {
            patched(packed(codec, count as usize), |b| {
                b[23..27].copy_from_slice(&(claimed - 1).to_be_bytes());
                b[57..61].copy_from_slice(&claimed.to_be_bytes());
            })
        };
        // The same payload as it would be, but for one record's offset.
        let other_delta = patched(packed(Codec::None, 3), |b| {
            let record = (b.len() - HEADER_SIZE) / 3;
            b[HEADER_SIZE + record + 3] = 4;
            let payload = compress(codec, &b[HEADER_SIZE..]).unwrap();
            b.truncate(HEADER_SIZE);
            b.extend_from_slice(&payload);
            b[22] = codec.id() as u8;
        });
        let garbage = patched(packed(codec, 3), |b| {
            b.truncate(HEADER_SIZE);
            b.extend_from_slice(&[0x5a; 29]);
        });
        let noise_inside = patched(packed(codec, 3), |b| {
            let payload = compress(codec, &[0x7e; 60]).unwrap();
            b.truncate(HEADER_SIZE);
            b.extend_from_slice(&payload);
        });
        let cut = patched(packed(codec, 300), |b| b.truncate(b.len() - 9));
        let longer = patched(packed(codec, 3), |b| b.extend_from_slice(&[0; 4]));
        rows.extend([
            (
                "compressed: fewer",
                with_count(3, 4),
                &limits,
                "Records(TooFew { claimed: 4, found: 3 })",
            ),
            (
                "compressed: more",
                with_count(3, 2),
                &limits,
                "Records(TrailingBytes",
            ),
            (
                "compressed: 2³¹ − 1 of 1",
                with_count(1, i32::MAX),
                &limits,
                "Count",
            ),
            (
                "compressed: many of 1",
                with_count(1, 1_000_000),
                &limits,
                "Records(TooFew",
            ),
            (
                "compressed: delta",
                other_delta,
                &limits,
                "OffsetDelta { index: 1, found: 2 }",
            ),
            ("compressed: garbage", garbage, &limits, "Records("),
            (
                "compressed: no records inside",
                noise_inside,
                &limits,
                "Records(Malformed { index: 0",
            ),
            ("compressed: cut off", cut, &limits, "Records("),
            (
                "compressed: bytes behind it",
                longer,
                &limits,
                "Records(Compression(Malformed",
            ),
            (
                "compressed: bomb",
                bomb(codec),
                &roomy,
                "Records(Compression(TooLarge",
            ),
            (
                "compressed: future",
                packed(codec, 3).build().to_vec(),
                &early,
                "TimestampOutOfRange { indexes: [1, 2] }",
            ),
        ]);
    }
    for (name, bytes, limits, expected) in rows {
        let error = validate_produced(&bytes, limits).expect_err(name);
        let shown = format!("{error:?}");
        assert!(
            shown.starts_with(expected),
            "{name}: {shown}, not {expected}"
        );
        let code = match expected {
            "Corrupt" => ErrorCode::CorruptMessage,
            "TooLarge" | "Records(Compression(TooLarge" => ErrorCode::MessageTooLarge,
            "ZstdTooOld" | "UnknownCodec(5)" => ErrorCode::UnsupportedCompressionType,
            "LogAppendTime" => ErrorCode::InvalidTimestamp,
            expected if expected.starts_with("Timestamp") => ErrorCode::InvalidTimestamp,
            _ => ErrorCode::InvalidRecord,
        };
        assert_eq!(ErrorCode::from(&error), code, "{name}");
    }
    assert!(validate_produced(&good, &limits).is_ok());
    // The header's highest timestamp is not believed; nor refused, for Kafka mends it too.
    for codec in CODECS {
        let late = patched(packed(codec, 3), |b| {
            b[35..43].copy_from_slice(&i64::MAX.to_be_bytes());
        });
        let found = validate_produced(&late, &limits).unwrap();
        assert_eq!(found.max_timestamp, Timestamp(1002), "{codec}");
        let mut mended = late.clone();
        let mut batch = BatchMut::parse(&mut mended).unwrap();
        batch.set_max_timestamp(found.max_timestamp);
        let mended = validate_produced(&mended, &limits).unwrap();
        assert_eq!(mended.batch.max_timestamp(), Timestamp(1002), "{codec}");
    }
    let append_time = ProduceLimits {
        timestamp_type: TimestampType::LogAppendTime,
        ..early
    };
    assert!(validate_produced(&fixed(22, &[8]), &append_time).is_ok());
}

#[test]
fn varints() {
    let rows: [(i64, &[u8]); 9] = [
        (0, &[0]),
        (-1, &[1]),
        (1, &[2]),
        (63, &[126]),
        (-64, &[127]),
        (64, &[0x80, 1]),
        (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        (
            i64::MIN,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ),
    ];
    for (value, bytes) in rows {
        let mut out = Vec::new();
        write_long(&mut out, value);
        assert_eq!((out.as_slice(), long_size(value)), (bytes, bytes.len()));
        assert_eq!(read_long(&mut &bytes[..]), Some(value));
        for end in 0..bytes.len() {
            assert_eq!(read_long(&mut &bytes[..end]), None);
        }
    }
    assert_eq!(
        read_int(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]),
        None,
        "33 bits"
    );
    assert_eq!(read_int(&mut &[0x80; 6][..]), None, "never ends");
    assert_eq!(read_long(&mut &[0x80; 11][..]), None, "never ends");
    assert_eq!(
        read_long(&mut &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2][..]),
        None
    );
}

fn arbitrary_bytes() -> impl Strategy<Value = Option<Bytes>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from))
}

type Given = (i64, Option<Bytes>, Option<Bytes>, Vec<Header>);

fn arbitrary_records() -> impl Strategy<Value = Vec<Given>> {
    let header = ("[a-zé]{0,8}", arbitrary_bytes());
    let headers = proptest::collection::vec(header, 0..4);
    let record = (any::<i64>(), arbitrary_bytes(), arbitrary_bytes(), headers);
    proptest::collection::vec(record, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(records in arbitrary_records(), codec in 0usize..5) {
        let mut builder = BatchBuilder::new(CODECS[codec]);
        for (timestamp, key, value, headers) in &records {
            let bound = builder.size()
                + BatchBuilder::record_size_bound(key.as_deref(), value.as_deref(), headers);
            builder.append(Timestamp(*timestamp), key.as_deref(), value.as_deref(), headers);
            prop_assert!(builder.size() <= bound);
        }
        let batch = builder.build();
        prop_assert!(validate_produced(&batch, &ProduceLimits::default()).is_ok());
        let read = read_all(&batch);
        prop_assert_eq!(read.len(), records.len());
        for (index, (found, (timestamp, key, value, headers))) in
            read.into_iter().zip(records).enumerate()
        {
            prop_assert_eq!(found, Record {
                offset: Offset(index as i64), timestamp: Timestamp(timestamp), key, value, headers,
            });
        }
    }

    #[test]
    fn the_oracle_reads_what_is_written(
        values in proptest::collection::vec((0..i64::MAX / 2, arbitrary_bytes()), 1..20),
    ) {
        let mut builder = BatchBuilder::new(Codec::None);
        for (timestamp, value) in &values {
            builder.append(Timestamp(*timestamp), value.as_deref(), value.as_deref(), &[]);
        }
        let mut batch = builder.build();
        let read = oracle::RecordBatchDecoder::decode(&mut batch).unwrap().records;
        let read: Vec<_> = read.into_iter().map(|r| (r.timestamp, r.value)).collect();
        prop_assert_eq!(read, values);
    }

    #[test]
    fn hostile_bytes_are_an_error_and_never_a_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((0usize..400, any::<u8>()), 0..6),
        codec in 0usize..5,
    ) {
        for result in batches(&noise) { let _ = result; }
        let _ = validate_produced(&noise, &ProduceLimits::default());
        for codec in CODECS {
            let _ = decompress(codec, &noise, DecompressLimit::bytes(100_000));
        }
        // Damage behind a good CRC, so that the walk meets it.
        let mut bytes = BatchBuilder::new(CODECS[codec])
            .push(Timestamp(1), Some(b"key"), Some(&[9; 200]), &[("h".into(), None)])
            .push(Timestamp(2), None, None, &[])
            .build()
            .to_vec();
        let size = bytes.len();
        for (at, value) in flips {
            if at % size >= 21 { bytes[at % size] = value; }
        }
        BatchMut::parse(&mut bytes).unwrap().renew_crc();
        let _ = validate_produced(&bytes, &ProduceLimits::default());
        if let Ok(reader) = RecordsReader::new(&bytes.into(), DecompressLimit::bytes(100_000)) {
            let results: Vec<Result<Record, RecordError>> = reader.collect();
            prop_assert!(results.iter().rev().skip(1).all(Result::is_ok), "an error ends it");
        }
    }
}

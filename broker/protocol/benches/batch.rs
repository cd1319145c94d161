//! What a produced batch costs before it reaches the log: decoding the request around it, and validating it.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kuorum_protocol::Timestamp;
use kuorum_protocol::api_key::ApiKey;
use kuorum_protocol::frame;
use kuorum_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kuorum_protocol::record::batch::validate_produced;
use kuorum_protocol::record::{BatchBuilder, Codec, ProduceLimits};

const RECORDS: usize = 1_000;

fn batch(record_size: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = vec![b'x'; record_size];
    for i in 0..RECORDS {
        builder.append(Timestamp(i as i64), Some(b"user_10"), Some(&value), &[]);
    }
    builder.build()
}

fn produce(c: &mut Criterion) {
    for record_size in [100, 1024] {
        let records = batch(record_size);
        let mut group = c.benchmark_group(format!("produce/{RECORDS}x{record_size}B"));
        group.throughput(Throughput::Bytes(records.len() as u64));
        let limits = ProduceLimits {
            max_message_bytes: 10 << 20,
            ..ProduceLimits::default()
        };
        group.bench_function("validate", |b| {
            b.iter(|| validate_produced(black_box(&records), &limits).is_ok());
        });
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: "payments".to_owned(),
                partition_data: vec![PartitionProduceData {
                    index: 0,
                    records: Some(records.clone()),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        let header = frame::RequestHeader {
            api_key: ApiKey::Produce,
            api_version: 9,
            correlation_id: 1,
            client_id: Some("bench".to_owned()),
        };
        let frame = frame::encode_request(&header, &request).expect("a sample of our own");
        group.bench_function("decode", |b| {
            b.iter(|| {
                let mut body = frame.slice(4..);
                let header = frame::decode_request_header(&mut body).expect("encoded above");
                frame::decode_body::<ProduceRequest>(header.api_version, body).is_ok()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, produce);
criterion_main!(benches);

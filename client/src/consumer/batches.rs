//! What a consumer makes of the bytes it has fetched.
//! Law: pure. Markers and aborted records are passed over, and the position moves past them all the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use kuorum_protocol::LeaderEpoch;
use kuorum_protocol::messages::fetch::{AbortedTransaction, PartitionData};
use kuorum_protocol::record::{
    BatchError, BatchView, ControlType, DecompressLimit, RecordError, RecordsReader,
};

use super::{ConsumerRecord, TopicPartition};
use crate::error::{ConsumeError, corrupt};

/// What came out of a fetch.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) records: Vec<ConsumerRecord>,
    /// Where the next fetch begins.
    pub(super) next: i64,
    /// The epoch of the last batch, if there was one.
    pub(super) epoch: Option<LeaderEpoch>,
}

/// Opens the batches fetched for `from`. The first may begin before it.
pub(super) fn open(
    partition: &TopicPartition,
    from: i64,
    data: &PartitionData,
    committed: bool,
    check_crcs: bool,
) -> Result<Opened, ConsumeError> {
    let mut opened = Opened {
        records: Vec::new(),
        next: from,
        epoch: None,
    };
    let Some(bytes) = &data.records else {
        return Ok(opened);
    };
    let aborted = data.aborted_transactions.as_deref().unwrap_or_default();
    let mut filter = Aborted::new(if committed { aborted } else { &[] });
    let fail = |at: i64, error: &RecordError| {
        Err(corrupt(&partition.topic, partition.partition, at, error))
    };
    let mut read = 0;
    while read < bytes.len() {
        let batch = match BatchView::parse(&bytes[read..]) {
            Ok(batch) => batch,
            // A broker may cut the last batch off at the size that was asked for.
            Err(BatchError::Truncated { .. }) if read > 0 => break,
            Err(error) => return fail(opened.next, &error.into()),
        };
        let own = bytes.slice(read..read + batch.size());
        read += batch.size();
        if batch.next_offset().0 <= opened.next {
            continue;
        }
        if check_crcs && !batch.crc_is_valid() {
            let (topic, offset) = (partition.topic.to_string(), opened.next);
            let reason = "the CRC of a batch does not match".to_owned();
            let partition = partition.partition;
            return Err(ConsumeError::Corrupt {
                topic,
                partition,
                offset,
                reason,
            });
        }
        let reader = || RecordsReader::new(&own, DecompressLimit::CONSUMED);
        if batch.is_control() {
            let marker = match reader().and_then(|mut reader| reader.next().transpose()) {
                Ok(marker) => marker,
                Err(error) => return fail(opened.next, &error),
            };
            filter.on_marker(&batch, marker.as_ref().and_then(ControlType::of_record));
        } else if !filter.hides(&batch) {
            let records = match reader() {
                Ok(records) => records,
                Err(error) => return fail(opened.next, &error),
            };
            for record in records {
                let record = match record {
                    Ok(record) => record,
                    Err(error) => return fail(opened.next, &error),
                };
                if record.offset.0 >= opened.next {
                    opened.records.push(ConsumerRecord {
                        topic: Arc::clone(&partition.topic),
                        partition: partition.partition,
                        offset: record.offset.0,
                        timestamp: record.timestamp.0,
                        leader_epoch: batch.leader_epoch(),
                        key: record.key,
                        value: record.value,
                        headers: record.headers,
                    });
                }
            }
        }
        opened.next = batch.next_offset().0;
        opened.epoch = Some(batch.leader_epoch());
    }
    Ok(opened)
}

/// Which producers' records are those of aborted transactions, at the batch that is being read.
struct Aborted {
    /// Not begun yet, the first at the end.
    ahead: Vec<AbortedTransaction>,
    producers: BTreeSet<i64>,
}

impl Aborted {
    fn new(transactions: &[AbortedTransaction]) -> Self {
        let mut ahead = transactions.to_vec();
        ahead.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        Self {
            ahead,
            producers: BTreeSet::new(),
        }
    }

    fn advance(&mut self, batch: &BatchView<'_>) {
        while let Some(next) = self
            .ahead
            .pop_if(|t| t.first_offset <= batch.last_offset().0)
        {
            self.producers.insert(next.producer_id);
        }
    }

    fn hides(&mut self, batch: &BatchView<'_>) -> bool {
        self.advance(batch);
        batch.is_transactional() && self.producers.contains(&batch.producer_id().0)
    }

    fn on_marker(&mut self, batch: &BatchView<'_>, kind: Option<ControlType>) {
        self.advance(batch);
        if kind == Some(ControlType::Abort) {
            self.producers.remove(&batch.producer_id().0);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kuorum_protocol::record::{BatchBuilder, BatchMut, Codec, end_marker};
    use kuorum_protocol::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

    use super::*;

    /// `count` records of a producer that begin at `offset`; −1 is a producer without transactions.
    fn batch(offset: i64, count: i64, producer: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(if count > 2 { Codec::Lz4 } else { Codec::None });
        if producer >= 0 {
            builder = builder
                .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0))
                .transactional();
        }
        for n in 0..count {
            let value = (offset + n).to_string();
            builder.append(Timestamp(n), None, Some(value.as_bytes()), &[]);
        }
        placed(offset, &builder.build())
    }

    fn marker(offset: i64, producer: i64, kind: ControlType) -> Vec<u8> {
        let bytes = end_marker(
            kind,
            ProducerId(producer),
            ProducerEpoch(0),
            0,
            Timestamp(0),
        );
        placed(offset, &bytes)
    }

    fn placed(offset: i64, bytes: &Bytes) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let mut batch = BatchMut::parse(&mut bytes).unwrap();
        batch.set_base_offset(Offset(offset));
        batch.set_leader_epoch(LeaderEpoch(3));
        bytes
    }

    fn opened(from: i64, bytes: &[u8], aborted: &[(i64, i64)]) -> Result<Opened, ConsumeError> {
        let aborted = aborted
            .iter()
            .map(|&(producer_id, first_offset)| AbortedTransaction {
                producer_id,
                first_offset,
            })
            .collect();
        let data = PartitionData {
            records: Some(Bytes::copy_from_slice(bytes)),
            aborted_transactions: Some(aborted),
            ..PartitionData::default()
        };
        open(&TopicPartition::new("t", 0), from, &data, true, true)
    }

    #[test]
    fn records_come_in_order_and_the_position_moves_past_what_is_hidden() {
        let commit = ControlType::Commit;
        let abort = ControlType::Abort;
        let plain = [batch(10, 3, -1), batch(13, 2, -1)].concat();
        let mixed = [
            batch(0, 2, 7),
            batch(2, 1, 8),
            marker(3, 7, abort),
            batch(4, 1, 7),
            marker(5, 8, commit),
            marker(6, 7, commit),
        ]
        .concat();
        let cut = &plain[..plain.len() - 1];
        // (from, bytes, aborted, offsets returned, next)
        type Row<'a> = (i64, &'a [u8], &'a [(i64, i64)], &'a [i64], i64);
        let rows: [Row<'_>; 9] = [
            (10, &plain, &[], &[10, 11, 12, 13, 14], 15),
            (11, &plain, &[], &[11, 12, 13, 14], 15),
            (14, &plain, &[], &[14], 15),
            (10, cut, &[], &[10, 11, 12], 13),
            (0, &mixed, &[(7, 0)], &[2, 4], 7),
            (0, &mixed, &[], &[0, 1, 2, 4], 7),
            (3, &mixed, &[(7, 0)], &[4], 7),
            (5, &mixed, &[], &[], 7),
            (5, &[], &[], &[], 5),
        ];
        for (index, (from, bytes, aborted, offsets, next)) in rows.into_iter().enumerate() {
            let opened = opened(from, bytes, aborted).unwrap();
            let found: Vec<_> = opened.records.iter().map(|record| record.offset).collect();
            assert_eq!(
                (found.as_slice(), opened.next),
                (offsets, next),
                "row {index}"
            );
            for record in opened.records {
                assert_eq!(record.value.unwrap(), record.offset.to_string());
            }
            assert_eq!(opened.epoch, (!bytes.is_empty()).then_some(LeaderEpoch(3)));
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut flipped = batch(0, 2, -1);
        *flipped.last_mut().unwrap() ^= 1;
        let whole = batch(0, 2, -1);
        for bytes in [
            &flipped[..],
            &whole[..whole.len() - 1],
            b"nonsense that is no batch",
        ] {
            assert!(matches!(
                opened(0, bytes, &[]),
                Err(ConsumeError::Corrupt { .. })
            ));
        }
    }
}

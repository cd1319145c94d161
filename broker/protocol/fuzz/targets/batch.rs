//! Batches as they come: views, the walk over several, the checks of Produce. The second pass mends magic, length and
//! CRC first, so that the checks behind them are reached too.

#![no_main]

use kuorum_protocol::record::{
    BatchMut, BatchView, HEADER_SIZE, LOG_OVERHEAD, ProduceLimits, batches, validate_produced,
};
use libfuzzer_sys::fuzz_target;

fn look(data: &[u8]) {
    let limits = ProduceLimits {
        compacted: true,
        ..ProduceLimits::default()
    };
    if let Ok(produced) = validate_produced(data, &limits) {
        let batch = produced.batch;
        assert!(batch.crc_is_valid());
        assert_eq!(batch.size(), data.len());
    }
    let mut walked = 0;
    for batch in batches(data) {
        let Ok(batch) = batch else {
            break;
        };
        walked += batch.size();
        assert!(walked <= data.len());
        let _ = (
            batch.last_offset(),
            batch.next_offset(),
            batch.last_sequence(),
        );
        let _ = (batch.crc_is_valid(), batch.compression(), batch.payload());
    }
}

fuzz_target!(|data: &[u8]| {
    look(data);
    if data.len() < HEADER_SIZE {
        return;
    }
    let mut mended = data.to_vec();
    let length = (data.len() - LOG_OVERHEAD) as i32;
    mended[8..12].copy_from_slice(&length.to_be_bytes());
    mended[16] = 2;
    if let Ok(mut batch) = BatchMut::parse(&mut mended) {
        batch.renew_crc();
    }
    assert!(BatchView::parse(&mended).is_ok_and(|batch| batch.crc_is_valid()));
    look(&mended);
});

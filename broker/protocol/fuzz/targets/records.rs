//! The records of a batch that is whole and has a good CRC: one byte chooses the codec, two the count, the rest is the
//! payload. No payload grows beyond its limit.

#![no_main]

use bytes::Bytes;
use kuorum_protocol::record::{
    BatchMut, DecompressLimit, HEADER_SIZE, LOG_OVERHEAD, ProduceLimits, RecordsReader,
    validate_produced,
};
use libfuzzer_sys::fuzz_target;

const LIMIT: DecompressLimit = DecompressLimit {
    max_bytes: 1024 * 1024,
    max_ratio: 64,
};

fuzz_target!(|data: &[u8]| {
    let [codec, high, low, payload @ ..] = data else {
        return;
    };
    let count = i32::from(u16::from_be_bytes([*high, *low]));
    let mut bytes = vec![0; HEADER_SIZE];
    bytes[8..12]
        .copy_from_slice(&((HEADER_SIZE - LOG_OVERHEAD + payload.len()) as i32).to_be_bytes());
    bytes[16] = 2;
    bytes[22] = codec & 7;
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[43..57].fill(0xff);
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(payload);
    BatchMut::parse(&mut bytes)
        .expect("magic and length are good")
        .renew_crc();

    let limits = ProduceLimits {
        decompress: LIMIT,
        ..ProduceLimits::default()
    };
    let valid = validate_produced(&bytes, &limits).is_ok();
    let Ok(records) = RecordsReader::new(&Bytes::from(bytes), LIMIT) else {
        assert!(!valid, "what Produce accepts can be read");
        return;
    };
    let mut read = 0;
    for record in records {
        if record.is_err() {
            assert!(!valid, "what Produce accepts can be read");
            return;
        }
        read += 1;
    }
    assert!(read <= count);
    assert!(!valid || read == count, "what Produce accepts is whole");
});

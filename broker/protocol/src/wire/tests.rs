//! Primitive values: their bytes, and the lies told about their lengths.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn decoder(flexible: bool, bytes: &[u8]) -> Decoder {
    let mut input = Decoder::new(Bytes::copy_from_slice(bytes));
    input.set_flexible(flexible);
    input
}

fn written(flexible: bool, write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut out = Encoder::new();
    out.set_flexible(flexible);
    write(&mut out);
    out.finish().to_vec()
}

#[test]
fn unsigned_varints() {
    for (value, bytes) in [
        (0, [0].as_slice()),
        (1, &[1]),
        (127, &[0x7f]),
        (128, &[0x80, 1]),
        (300, &[0xac, 2]),
        (16_383, &[0xff, 0x7f]),
        (16_384, &[0x80, 0x80, 1]),
        (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        assert_eq!(written(true, |out| out.put_unsigned_varint(value)), bytes);
        assert_eq!(decoder(true, bytes).get_unsigned_varint(), Ok(value));
    }
}

#[test]
fn signed_varints_are_zigzag() {
    for (value, bytes) in [
        (0, [0].as_slice()),
        (-1, &[1]),
        (1, &[2]),
        (-64, &[0x7f]),
        (64, &[0x80, 1]),
        (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        assert_eq!(written(true, |out| out.put_varint(value)), bytes);
        assert_eq!(decoder(true, bytes).get_varint(), Ok(value));
        assert_eq!(
            written(true, |out| out.put_varlong(i64::from(value))),
            bytes
        );
        assert_eq!(decoder(true, bytes).get_varlong(), Ok(i64::from(value)));
    }
}

#[test]
fn varints_that_do_not_end_or_do_not_fit() {
    let endless = [0x80; 12];
    assert_eq!(
        decoder(true, &endless).get_unsigned_varint(),
        Err(WireError::VarintTooLong)
    );
    assert_eq!(
        decoder(true, &endless).get_varlong(),
        Err(WireError::VarintTooLong)
    );
    let too_wide = [0xff, 0xff, 0xff, 0xff, 0x1f];
    assert_eq!(
        decoder(true, &too_wide).get_unsigned_varint(),
        Err(WireError::VarintTooLong)
    );
    let cut = [0x80, 0x80];
    let error = WireError::Truncated {
        needed: 1,
        remaining: 0,
    };
    assert_eq!(decoder(true, &cut).get_unsigned_varint(), Err(error));
}

#[test]
fn strings_in_both_forms() {
    for (flexible, value, bytes) in [
        (false, None, [0xff, 0xff].as_slice()),
        (false, Some(""), &[0, 0]),
        (false, Some("ab"), &[0, 2, b'a', b'b']),
        (true, None, &[0]),
        (true, Some(""), &[1]),
        (true, Some("ab"), &[3, b'a', b'b']),
    ] {
        let out = written(flexible, |out| out.put_string(value).expect("short enough"));
        assert_eq!(out, bytes);
        assert_eq!(
            decoder(flexible, bytes).get_string(),
            Ok(value.map(str::to_owned))
        );
    }
}

#[test]
fn lies_about_strings() {
    let cut = |needed, remaining| WireError::Truncated { needed, remaining };
    for (flexible, bytes, error) in [
        (
            false,
            [0xff, 0xfe].as_slice(),
            WireError::NegativeLength(-2),
        ),
        (false, &[0x80, 0], WireError::NegativeLength(-32_768)),
        (false, &[0x7f, 0xff, b'a'], cut(32_767, 1)),
        (false, &[0], cut(2, 1)),
        (false, &[0, 1, 0xff], WireError::InvalidUtf8),
        (true, &[5, b'a'], cut(4, 1)),
        (
            true,
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            WireError::TooLong(u32::MAX as usize - 1),
        ),
        (true, &[2, 0xc0], WireError::InvalidUtf8),
    ] {
        assert_eq!(
            decoder(flexible, bytes).get_string(),
            Err(error),
            "{bytes:?}"
        );
    }
}

#[test]
fn bytes_in_both_forms() {
    for (flexible, value, bytes) in [
        (false, None, [0xff, 0xff, 0xff, 0xff].as_slice()),
        (false, Some([7, 8].as_slice()), &[0, 0, 0, 2, 7, 8]),
        (true, None, &[0]),
        (true, Some(&[]), &[1]),
        (true, Some(&[7, 8]), &[3, 7, 8]),
    ] {
        assert_eq!(
            written(flexible, |out| out.put_bytes(value).expect("short enough")),
            bytes
        );
        let back = decoder(flexible, bytes)
            .get_bytes()
            .expect("what was written is read");
        assert_eq!(back.as_deref(), value);
    }
}

#[test]
fn lies_about_bytes() {
    let cut = |needed, remaining| WireError::Truncated { needed, remaining };
    for (flexible, bytes, error) in [
        (
            false,
            [0xff, 0xff, 0xff, 0xfe].as_slice(),
            WireError::NegativeLength(-2),
        ),
        (false, &[0x7f, 0xff, 0xff, 0xff], cut(i32::MAX as usize, 0)),
        (
            true,
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            cut(u32::MAX as usize - 1, 0),
        ),
    ] {
        assert_eq!(
            decoder(flexible, bytes).get_bytes(),
            Err(error),
            "{bytes:?}"
        );
    }
}

#[test]
fn lies_about_counts_are_refused_before_anything_is_set_aside() {
    let cut = |needed, remaining| WireError::Truncated { needed, remaining };
    for (flexible, bytes, error) in [
        (
            false,
            [0x80, 0, 0, 0].as_slice(),
            WireError::NegativeLength(i64::from(i32::MIN)),
        ),
        (
            false,
            &[0x7f, 0xff, 0xff, 0xff],
            cut(4 * i32::MAX as usize, 0),
        ),
        (false, &[0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7], cut(8, 7)),
        (
            true,
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            cut(4 * (u32::MAX as usize - 1), 0),
        ),
    ] {
        assert_eq!(
            decoder(flexible, bytes).get_count(4, 4),
            Err(error),
            "{bytes:?}"
        );
    }
    // A thousand elements of a kilobyte each, in a thousand bytes.
    let mut dense = vec![0, 0, 3, 0xe8];
    dense.resize(4 + 1000, 0);
    assert_eq!(
        decoder(false, &dense).get_count(1, 1000),
        Err(WireError::OverBudget)
    );
    assert_eq!(decoder(false, &dense).get_count(1, 10), Ok(Some(1000)));
}

#[test]
fn memory_is_granted_by_the_size_of_the_frame() {
    const MIB: usize = 1024 * 1024;
    for (frame, most) in [
        (0, 65_536),
        (1024, 81_920),
        (MIB, 17 * MIB),
        (100 * MIB, 265 * MIB),
    ] {
        assert!(memory_budget(frame) <= most, "{frame}");
    }
    assert!(
        memory_budget(usize::MAX) == usize::MAX,
        "and never overflows"
    );
}

#[test]
fn tagged_sections() {
    let mut tagged = Tagged::new();
    tagged
        .add(0, |out| out.put_string(Some("a")))
        .expect("short enough");
    tagged
        .add(300, |out| {
            out.put_i16(7);
            Ok(())
        })
        .expect("short enough");
    let bytes = written(true, |out| tagged.write(out));
    assert_eq!(bytes, [2, 0, 2, 2, b'a', 0xac, 2, 2, 0, 7]);

    let mut seen = None;
    let read = decoder(true, &bytes).get_tagged(|tag, input| {
        if tag != 300 {
            return Ok(false);
        }
        seen = Some(input.get_i16()?);
        Ok(true)
    });
    assert_eq!((read, seen), (Ok(()), Some(7)));
}

#[test]
fn lies_in_tagged_sections() {
    let cut = |needed, remaining| WireError::Truncated { needed, remaining };
    for (bytes, error) in [
        ([0xff, 0xff, 0xff, 0xff, 0x0f].as_slice(), cut(1, 0)),
        (&[1, 0, 9, 1], cut(9, 1)),
        (&[2, 1, 0, 1, 0], WireError::TagOutOfOrder(1)),
        (&[2, 1, 0, 0, 0], WireError::TagOutOfOrder(0)),
    ] {
        let read = decoder(true, bytes).get_tagged(|_, _| Ok(false));
        assert_eq!(read, Err(error), "{bytes:?}");
    }
    // A field that is longer than its value.
    let read = decoder(true, &[1, 0, 3, 0, 1, 2]).get_tagged(|_, input| {
        input.get_i16()?;
        Ok(true)
    });
    assert_eq!(read, Err(WireError::TrailingBytes(1)));
}

#[test]
fn what_is_too_long_for_its_length_is_not_written() {
    let text = "a".repeat(LONGEST_STRING + 1);
    for flexible in [false, true] {
        let mut out = Encoder::new();
        out.set_flexible(flexible);
        assert_eq!(
            out.put_string(Some(&text)),
            Err(WireError::TooLong(text.len()))
        );
        assert_eq!(out.put_string(Some(&text[1..])), Ok(()));
    }
}

#[test]
fn what_is_long_and_shared_is_not_copied() {
    for (length, copied) in [(0, true), (SHARED_LEAST - 1, true), (SHARED_LEAST, false)] {
        let shared = Bytes::from(vec![7; length]);
        let mut out = Encoder::new();
        out.put_i32(0);
        out.put_shared_bytes(Some(&shared)).expect("short enough");
        out.put_i8(1);
        out.set_first_i32(9);
        assert_eq!(out.len(), 4 + 4 + length + 1);
        let parts = out.finish_parts();
        let is_shared = parts.iter().any(|part| part.as_ptr() == shared.as_ptr());
        assert_eq!(is_shared, !copied, "{length} bytes");
        let copying = written(false, |out| {
            out.put_i32(9);
            out.put_bytes(Some(&shared)).expect("short enough");
            out.put_i8(1);
        });
        assert_eq!(parts.concat(), copying, "{length} bytes");
    }
}

proptest! {
    #[test]
    fn varints_come_back(unsigned: u32, int: i32, long: i64) {
        let bytes = written(true, |out| {
            out.put_unsigned_varint(unsigned);
            out.put_varint(int);
            out.put_varlong(long);
        });
        let mut input = decoder(true, &bytes);
        prop_assert_eq!(input.get_unsigned_varint(), Ok(unsigned));
        prop_assert_eq!(input.get_varint(), Ok(int));
        prop_assert_eq!(input.get_varlong(), Ok(long));
        prop_assert_eq!(input.finish(), Ok(()));
    }
}

//! Variable-length integers, zig-zag encoded, as records use them.
//! Law: a number that is longer than its type is an error, and so is one that the bytes cut off.

/// Reads a signed 64-bit number from the head of `input` and moves it on. `None` if it is cut off or too long.
pub fn read_long(input: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for (index, &byte) in input.iter().enumerate().take(10) {
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *input = &input[index + 1..];
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// Reads a signed 32-bit number from the head of `input` and moves it on. `None` if it is cut off or too long.
pub fn read_int(input: &mut &[u8]) -> Option<i32> {
    let mut value = 0u32;
    for (index, &byte) in input.iter().enumerate().take(5) {
        if index == 4 && byte > 0x0f {
            return None;
        }
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *input = &input[index + 1..];
            return Some((value >> 1) as i32 ^ -((value & 1) as i32));
        }
    }
    None
}

/// Appends a signed number; a 32-bit one has the same bytes.
pub fn write_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// How many bytes [`write_long`] appends.
pub fn long_size(value: i64) -> usize {
    let rest = ((value << 1) ^ (value >> 63)) as u64;
    (70 - (rest | 1).leading_zeros() as usize) / 7
}

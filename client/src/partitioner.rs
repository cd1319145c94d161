//! Which partition a record goes to.
//! Law: pure. A key decides alone, and in the same way as in every Java client: (murmur2(key) & 0x7fffffff) mod n.

/// Kafka's hash of a key: 32-bit MurmurHash2 with a fixed seed.
pub fn murmur2(data: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    let mut hash = SEED ^ data.len() as u32;
    let words = data.chunks_exact(4);
    let tail = words.remainder();
    for word in words {
        let mut k = u32::from_le_bytes(word.try_into().expect("a chunk has four bytes"));
        k = k.wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (index, &byte) in tail.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    hash as i32
}

/// Maps a hash to one of `count` places. The mask, not the absolute value: the latter of `i32::MIN` is negative, and it
/// sends keys elsewhere than Java does.
pub fn place(hash: i32, count: i32) -> i32 {
    (hash & 0x7fff_ffff) % count
}

/// The partition of a key in a topic of `partitions`.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    place(murmur2(key), partitions)
}

/// Decides where a record with a key goes. Records without one are spread by the producer, which sticks to a partition
/// until a batch is full (KIP-794).
pub trait Partitioner: std::fmt::Debug + Send + Sync {
    /// The partition of `key` in a topic that has `partitions` of them (at least one).
    fn partition(&self, topic: &str, key: &[u8], partitions: i32) -> i32;
}

/// What every Java client does.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultPartitioner;

impl Partitioner for DefaultPartitioner {
    fn partition(&self, _topic: &str, key: &[u8], partitions: i32) -> i32 {
        partition_for_key(key, partitions)
    }
}

/// Keeps every key where it was when the topic had `buckets` partitions, however many it has now. New partitions then
/// get only records without a key, or with an explicit partition.
#[derive(Clone, Copy, Debug)]
pub struct PinnedPartitioner {
    /// How many partitions the topic had when its order began to matter.
    pub buckets: i32,
}

impl Partitioner for PinnedPartitioner {
    fn partition(&self, _topic: &str, key: &[u8], partitions: i32) -> i32 {
        partition_for_key(key, self.buckets.clamp(1, partitions))
    }
}

/// The share of keys, 0 to 1, that change their partition when a topic grows from `from` to `to` partitions, if keys are
/// many and spread evenly.
pub fn share_of_keys_that_move(from: i32, to: i32) -> f64 {
    if from <= 0 || to <= 0 || from == to {
        return 0.0;
    }
    // Over one common period every pair of remainders comes up; those with equal remainders stay.
    let (from, to) = (i64::from(from), i64::from(to));
    let gcd = {
        let (mut a, mut b) = (from, to);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // x mod from = x mod to holds exactly when x mod lcm is below the smaller of both.
    let lcm = from / gcd * to;
    1.0 - from.min(to) as f64 / lcm as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        let rows: [(&[u8], i32); 5] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in rows {
            assert_eq!(murmur2(key), hash, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn a_key_has_one_place() {
        // (key, partitions, where it goes, where the absolute value of the hash would send it)
        let rows: [(&[u8], i32, i32, Option<i32>); 4] = [
            (b"user_10", 3, 2, Some(0)),
            (b"user_10", 6, 5, Some(3)),
            (b"User_A", 2, 1, None),
            (b"User_B", 2, 0, None),
        ];
        for (key, partitions, expected, by_abs) in rows {
            assert_eq!(partition_for_key(key, partitions), expected);
            if let Some(by_abs) = by_abs {
                assert_eq!(murmur2(key).wrapping_abs() % partitions, by_abs);
            }
        }
        // An empty key is a key.
        assert_eq!(partition_for_key(b"", 7), place(murmur2(b""), 7));
    }

    #[test]
    fn growing_a_topic_moves_a_share_of_its_keys() {
        for (from, to) in [(1, 2), (3, 6), (3, 4), (6, 9), (4, 4), (12, 5)] {
            let period = from * to;
            let moved = (0..period).filter(|x| x % from != x % to).count();
            let share = f64::from(moved as i32) / f64::from(period);
            assert!(
                (share_of_keys_that_move(from, to) - share).abs() < 1e-9,
                "{from} to {to}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_hash_has_a_place(hash in any::<i32>(), count in 1i32..) {
            prop_assert!((0..count).contains(&place(hash, count)));
        }

        #[test]
        fn no_key_moves_under_the_pinned_partitioner(
            key in proptest::collection::vec(any::<u8>(), 0..20), buckets in 1i32..50, more in 0i32..50,
        ) {
            let pinned = PinnedPartitioner { buckets };
            let before = partition_for_key(&key, buckets);
            prop_assert_eq!(pinned.partition("t", &key, buckets + more), before);
        }
    }
}

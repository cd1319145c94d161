//! Work on many items, a few at a time.
//! Law: results come in the order of the items, and a panic goes on in the caller.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Logs that are opened or made at the same time.
pub(super) const PARALLEL: usize = 8;

/// Runs `work` on every item, a few at a time, and returns the results in order.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = PARALLEL.min(items.len());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    loop {
                        let turn = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(turn) else {
                            return done;
                        };
                        done.push((turn, work(item)));
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    results.sort_unstable_by_key(|(turn, _)| *turn);
    results.into_iter().map(|(_, result)| result).collect()
}

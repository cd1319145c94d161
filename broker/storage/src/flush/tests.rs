use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Counts what was added before a flush began and is covered once it ended.
#[derive(Default)]
struct Target {
    added: AtomicUsize,
    covered: AtomicUsize,
    flushes: AtomicUsize,
    at_once: AtomicUsize,
}

impl Flushable for Target {
    fn flush(&self) {
        assert_eq!(
            self.at_once.fetch_add(1, Ordering::SeqCst),
            0,
            "never twice at once"
        );
        let added = self.added.load(Ordering::SeqCst);
        std::thread::yield_now();
        self.covered.store(added, Ordering::SeqCst);
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn everything_submitted_is_covered_by_a_flush_that_began_later() {
    let flusher = Flusher::new(4).unwrap();
    let targets: Vec<Arc<Target>> = (0..20).map(|_| Arc::default()).collect();
    let handles: Vec<FlushHandle> = targets
        .iter()
        .map(|target| flusher.register(Arc::clone(target) as Arc<dyn Flushable>))
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    for (target, handle) in targets.iter().zip(&handles) {
                        target.added.fetch_add(1, Ordering::SeqCst);
                        handle.submit();
                    }
                }
            });
        }
    });
    flusher.shutdown();
    for target in &targets {
        assert_eq!(target.covered.load(Ordering::SeqCst), 2_000);
        assert!(target.flushes.load(Ordering::SeqCst) <= 2_000);
    }
}

/// Holds its thread until as many others run at the same time.
struct Together(Barrier);

impl Flushable for Together {
    fn flush(&self) {
        self.0.wait();
    }
}

#[test]
fn different_handles_are_flushed_at_the_same_time() {
    let flusher = Flusher::new(3).unwrap();
    let target: Arc<dyn Flushable> = Arc::new(Together(Barrier::new(3)));
    for _ in 0..3 {
        flusher.register(Arc::clone(&target)).submit();
    }
    flusher.shutdown();
}

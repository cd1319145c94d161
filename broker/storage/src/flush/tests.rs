use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

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

/// The flush that is taken now, if one is due.
fn taken(flushes: &mut Flushes) -> Option<DueFlush> {
    let next = std::pin::pin!(flushes.next());
    match next.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(due) => due,
        Poll::Pending => None,
    }
}

/// Without threads a flush happens when it is taken and run, and covers what was submitted until then.
#[test]
fn borrowed_hands_flush_when_they_are_lent() {
    let (flusher, mut flushes) = Flusher::borrowed();
    let target = Arc::new(Target::default());
    let handle = flusher.register(Arc::clone(&target) as Arc<dyn Flushable>);
    let add = |count: usize| {
        for _ in 0..count {
            target.added.fetch_add(1, Ordering::SeqCst);
            handle.submit();
        }
    };
    let covered = || target.covered.load(Ordering::SeqCst);
    assert!(taken(&mut flushes).is_none(), "nothing is dirty");
    add(2);
    let due = taken(&mut flushes).expect("it is dirty");
    add(1);
    assert_eq!(covered(), 0, "nothing happens by itself");
    due.run();
    assert_eq!(covered(), 3);
    assert!(taken(&mut flushes).is_none(), "one flush covered all");
    add(1);
    drop(taken(&mut flushes));
    assert_eq!(covered(), 3, "given up");

    let other = Arc::new(Target::default());
    let handle = flusher.register(Arc::clone(&other) as Arc<dyn Flushable>);
    other.added.store(1, Ordering::SeqCst);
    handle.submit();
    flusher.shutdown();
    assert_eq!(
        other.covered.load(Ordering::SeqCst),
        1,
        "done on the way out"
    );
    assert!(taken(&mut flushes).is_none());
}

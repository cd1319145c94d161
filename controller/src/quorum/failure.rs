//! The one way in which a broken disk or a dead Raft core ends the process.
//! Law: the first report counts; whoever runs the process waits for it and leaves, or starts anew if that is all it takes.

use std::sync::Arc;

use tokio::sync::watch;

/// Where failures are reported. Clones share it.
#[derive(Clone, Debug)]
pub struct Failure {
    report: Arc<watch::Sender<Option<Ended>>>,
}

/// Why a controller cannot go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// What happened.
    pub what: String,
    /// Nothing is wrong with what it stands on: a new process on the same directory goes on.
    pub starts_anew: bool,
}

impl Ended {
    /// Somebody has to look.
    pub fn for_good(what: String) -> Self {
        Self {
            what,
            starts_anew: false,
        }
    }
}

impl Failure {
    /// Nothing has failed yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            report: Arc::new(watch::channel(None).0),
        }
    }

    /// Says what happened, and that somebody has to look.
    pub fn report(&self, what: String) {
        tracing::error!("{what}");
        self.end(Ended::for_good(what));
    }

    /// Says what happened, and that a new process will do.
    pub fn report_passing(&self, what: String) {
        tracing::warn!("{what}");
        self.end(Ended {
            what,
            starts_anew: true,
        });
    }

    fn end(&self, ended: Ended) {
        self.report.send_if_modified(|first| {
            if first.is_none() {
                *first = Some(ended);
                true
            } else {
                false
            }
        });
    }

    /// Waits for the first report.
    pub async fn reported(&self) -> Ended {
        let mut receiver = self.report.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        match receiver.wait_for(Option::is_some).await {
            Ok(first) => first.clone().unwrap_or_default(),
            Err(_) => Ended::default(),
        }
    }
}

impl Default for Failure {
    fn default() -> Self {
        Self::new()
    }
}

//! The one way in which a broken disk or a dead Raft core ends the process.
//! Law: the first report counts; whoever runs the process waits for it and leaves.

use std::sync::Arc;

use tokio::sync::watch;

/// Where failures are reported. Clones share it.
#[derive(Clone, Debug)]
pub struct Failure {
    report: Arc<watch::Sender<Option<String>>>,
}

impl Failure {
    /// Nothing has failed yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            report: Arc::new(watch::channel(None).0),
        }
    }

    /// Says what happened.
    pub fn report(&self, what: String) {
        tracing::error!("{what}");
        self.report.send_if_modified(|first| {
            if first.is_none() {
                *first = Some(what);
                true
            } else {
                false
            }
        });
    }

    /// Waits for the first report.
    pub async fn reported(&self) -> String {
        let mut receiver = self.report.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        match receiver.wait_for(Option::is_some).await {
            Ok(first) => first.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }
}

impl Default for Failure {
    fn default() -> Self {
        Self::new()
    }
}

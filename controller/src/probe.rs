//! Whether the brokers that do not come to a new controller are still there.
//! Law: only a refused connection says something: a host that is up and a process that is not. Silence stays silence, and costs
//! the session timeout; what a refusal means is decided in `control::heartbeats`.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use kuorum_transport::{Clock, tcp};

use crate::active::Active;

/// Between two looks. A frozen broker's backlog takes in a connection each time.
const INTERVAL: Duration = Duration::from_millis(250);
/// A host that is up refuses at once.
const PATIENCE: Duration = Duration::from_millis(250);

/// Looks for missing brokers while this controller is in office. Runs until it is dropped.
pub async fn run(active: Active, clock: Clock) {
    loop {
        clock.sleep(INTERVAL).await;
        let missing = active.missing();
        let looks = missing.into_iter().map(async |(broker, epoch, address)| {
            if refuses(&address).await {
                active.refused(broker, epoch);
            }
        });
        join_all(looks).await;
    }
}

/// Whether every address behind `host:port` refuses a connection.
async fn refuses(address: &str) -> bool {
    match tokio::time::timeout(PATIENCE, tcp::connect(address)).await {
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}

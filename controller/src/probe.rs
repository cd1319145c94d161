//! Whether the brokers whose session stream broke, and those that do not come to a new controller, are still there.
//! Law: only a refused connection says something: a host that is up and a process that is not. Silence stays silence, and costs
//! the session timeout; what a refusal means is decided in `control::heartbeats`.

use std::io;
use std::time::Duration;

use kuorum_transport::{Clock, tcp};

use crate::active::Active;

/// Between two looks. A frozen broker's backlog takes in a connection each time.
const INTERVAL: Duration = Duration::from_millis(250);
/// Looks at once when a stream breaks, each after so long: a process that ends closes one thing after the other.
const AT_ONCE: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(40),
];
/// A host that is up refuses at once.
const PATIENCE: Duration = Duration::from_millis(250);

/// Looks for missing brokers while this controller is in office. Runs until it is dropped.
pub async fn run(active: Active, clock: Clock) {
    loop {
        tokio::select! {
            () = clock.sleep(INTERVAL) => look(&active),
            () = active.stream_ended() => {
                for pause in AT_ONCE {
                    clock.sleep(pause).await;
                    look(&active);
                }
            }
        }
    }
}

/// Each look goes on by itself: one host that does not answer keeps no other broker from being looked at.
fn look(active: &Active) {
    for (broker, epoch, address) in active.missing() {
        let active = active.clone();
        tokio::spawn(async move {
            if refuses(&address).await {
                active.refused(broker, epoch);
            }
        });
    }
}

/// Whether every address behind `host:port` refuses a connection.
async fn refuses(address: &str) -> bool {
    match tokio::time::timeout(PATIENCE, tcp::connect(address)).await {
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}

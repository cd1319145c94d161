//! What time asks of the active controller, asked again and again.
//! Law: it decides nothing itself. It runs on every controller; where nobody is in office it does nothing.

use std::time::Duration;

use kuorum_transport::Clock;

use crate::active::Active;
use crate::fleet::Fleet;
use crate::quorum::Quorum;

/// How often: a broken session is acted upon this much after its time has come, at the latest.
const INTERVAL: Duration = Duration::from_millis(25);
/// When more partitions want their preferred leader back than are given at once: how soon the next get theirs.
const NEXT_BATCH: Duration = Duration::from_secs(1);
/// How often the controller in office asks the brokers how far their partitions have come.
const LOOK_AROUND: Duration = Duration::from_secs(5);

/// Runs until it is dropped. `rebalance` is how often leadership goes back to preferred leaders, if it does; it counts
/// from when this controller took office.
pub async fn run(active: Active, clock: Clock, rebalance: Option<Duration>) {
    let mut office = active.office();
    let mut due = rebalance.map(|interval| clock.now().monotonic + interval);
    loop {
        clock.sleep(INTERVAL).await;
        active.tick();
        let Some(interval) = rebalance else {
            continue;
        };
        let now = clock.now().monotonic;
        if active.office() != office {
            office = active.office();
            due = Some(now + interval);
        }
        if due.is_some_and(|due| now >= due) {
            let more = active.rebalance();
            due = Some(
                now + if more {
                    NEXT_BATCH.min(interval)
                } else {
                    interval
                },
            );
        }
    }
}

/// Keeps what leaders say of their partitions, so that it is known when they are gone. Runs until it is dropped.
pub async fn look_around(active: Active, quorum: Quorum, fleet: Fleet, clock: Clock) {
    loop {
        clock.sleep(LOOK_AROUND).await;
        if active.office().is_some() {
            fleet.look_around(&quorum.image()).await;
        }
    }
}

//! What time asks of the active controller, asked again and again.
//! Law: it decides nothing itself. It runs on every controller; where nobody is in office it does nothing.

use std::time::Duration;

use kuorum_transport::Clock;

use crate::active::Active;

/// How often: a broken session is noticed within `broker.disconnect.grace.ms` and this.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs until it is dropped. `rebalance` is how often leadership goes back to preferred leaders, if it does.
pub async fn run(active: Active, clock: Clock, rebalance: Option<Duration>) {
    let mut rebalanced = clock.now().monotonic;
    loop {
        clock.sleep(INTERVAL).await;
        active.tick();
        let now = clock.now().monotonic;
        if rebalance.is_some_and(|interval| now.since(rebalanced) >= interval) {
            rebalanced = now;
            active.rebalance();
        }
    }
}

//! Producer ids for idempotent producers, handed out from blocks that the controllers allot to this broker.
//! Law: no id is handed out twice in the life of the cluster; what is left of a block at a restart is never used.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::control::producer_ids::BLOCK_SIZE;
use kuorum_metadata::rpc::AllocateProducerIdsRequest;
use kuorum_protocol::ProducerId;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::cluster::{ControllerClient, ControllerError, Membership};

/// How long a producer's first request may wait for a block.
const PATIENCE: Duration = Duration::from_secs(10);
/// With fewer ids than this in stock the next block is asked for: half a block serves while there are no controllers.
const LOW: i64 = BLOCK_SIZE as i64 / 2;
/// Between two tries to get a block that nobody waits for.
const PAUSE: Duration = Duration::from_secs(1);

/// Hands out producer ids.
#[derive(Debug)]
pub struct ProducerIds {
    controllers: ControllerClient,
    membership: Arc<Membership>,
    /// An async lock, because the one who finds it empty fetches the next block while the others wait for it.
    stock: Mutex<Stock>,
    low: Notify,
}

/// Blocks allotted to this broker, and what is left of them.
#[derive(Debug, Default)]
struct Stock(VecDeque<Range<i64>>);

impl Stock {
    fn next(&mut self) -> Option<ProducerId> {
        let id = self.0.front_mut()?.next()?;
        self.0.retain(|block| !block.is_empty());
        Some(ProducerId(id))
    }

    /// Takes no empty block, so that the first always has an id.
    fn add(&mut self, block: Range<i64>) {
        self.0.extend(Some(block).filter(|block| !block.is_empty()));
    }

    fn is_low(&self) -> bool {
        self.0
            .iter()
            .map(|block| block.end - block.start)
            .sum::<i64>()
            < LOW
    }
}

impl ProducerIds {
    /// Owns no block yet.
    pub fn new(controllers: ControllerClient, membership: Arc<Membership>) -> Self {
        Self {
            controllers,
            membership,
            stock: Mutex::default(),
            low: Notify::new(),
        }
    }

    /// An id that nobody has. Fails when the stock is used up and no controller answers.
    pub async fn next(&self) -> Result<ProducerId, ControllerError> {
        let mut stock = self.stock.lock().await;
        let id = match stock.next() {
            Some(id) => id,
            None => {
                stock.add(self.allot().await?);
                stock.next().ok_or_else(|| {
                    ControllerError::Unreachable(
                        "the controllers allotted an empty block of producer ids".to_owned(),
                    )
                })?
            }
        };
        if stock.is_low() {
            self.low.notify_one();
        }
        Ok(id)
    }

    /// Keeps ids in stock from the registration on, so that a new producer need not wait for controllers.
    pub async fn keep_stocked(self: Arc<Self>, stop: CancellationToken) {
        let mut phase = self.membership.subscribe();
        let work = async {
            // The membership lives as long as `self`.
            while phase.wait_for(|phase| phase.epoch.is_some()).await.is_ok() {
                // The lock is not held while controllers are asked: there may be ids for others.
                if !self.stock.lock().await.is_low() {
                    self.low.notified().await;
                    continue;
                }
                match self.allot().await {
                    Ok(block) => self.stock.lock().await.add(block),
                    Err(cause) => {
                        tracing::debug!(%cause, "no producer ids to keep in stock");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Asks the controllers for a block.
    async fn allot(&self) -> Result<Range<i64>, ControllerError> {
        let broker_epoch = self.membership.epoch().ok_or_else(|| {
            ControllerError::Unreachable("this broker is not registered yet".to_owned())
        })?;
        let request = AllocateProducerIdsRequest {
            broker_id: self.membership.id,
            broker_epoch,
        };
        let reply = self
            .controllers
            .allocate_producer_ids(&request, PATIENCE)
            .await?;
        Ok(reply.first.0..reply.first.0 + i64::from(reply.count))
    }
}

//! Producer ids for idempotent producers, handed out from blocks that the controllers allot to this broker.
//! Law: no id is handed out twice in the life of the cluster; what is left of a block at a restart is never used.

use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::rpc::AllocateProducerIdsRequest;
use kuorum_protocol::ProducerId;
use tokio::sync::Mutex;

use crate::cluster::{ControllerClient, ControllerError, Membership};

/// How long a producer's first request may wait for a block.
const PATIENCE: Duration = Duration::from_secs(10);

/// Hands out producer ids.
#[derive(Debug)]
pub struct ProducerIds {
    controllers: ControllerClient,
    membership: Arc<Membership>,
    /// An async lock, because the one who finds the block empty fetches the next while the others wait for it.
    block: Mutex<std::ops::Range<i64>>,
}

impl ProducerIds {
    /// Owns no block yet.
    pub fn new(controllers: ControllerClient, membership: Arc<Membership>) -> Self {
        Self {
            controllers,
            membership,
            block: Mutex::new(0..0),
        }
    }

    /// An id that nobody has. Fails when the block is used up and no controller answers.
    pub async fn next(&self) -> Result<ProducerId, ControllerError> {
        let mut block = self.block.lock().await;
        if let Some(id) = block.next() {
            return Ok(ProducerId(id));
        }
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
        *block = reply.first.0..reply.first.0 + i64::from(reply.count);
        block.next().map(ProducerId).ok_or_else(|| {
            ControllerError::Unreachable(
                "the controllers allotted an empty block of producer ids".to_owned(),
            )
        })
    }
}

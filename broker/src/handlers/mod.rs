//! The API table: one row each. What is not in it does not exist, and ApiVersions says exactly what is.
//! Law: a row names the API, its handler and what it needs to be allowed. A handler is a typed function of a context, a
//! request and its version; decoding, encoding and closing happen outside of it.

pub mod cluster;
pub mod log;

pub mod forward;

use kuorum_protocol::api_key::ApiKey;
use kuorum_protocol::messages::Request;
use kuorum_transport::Outcome;

use crate::authorizer::{Needs, Operation};
use crate::context::Context;
use crate::dispatch::encode;

/// One API as this broker serves it, in all the versions that `kuorum_protocol::api_key` gives.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub api: ApiKey,
    pub needs: Needs,
}

macro_rules! api_table {
    ($($api:ident: $handler:path, $needs:expr;)+) => {
        /// The table.
        pub static TABLE: &[Row] = &[
            $(Row { api: ApiKey::$api, needs: $needs },)+
        ];

        /// Calls the handler of `request` and encodes its answer.
        pub async fn call(
            cx: &Context,
            request: Request,
            version: i16,
            correlation_id: i32,
        ) -> Outcome {
            match request {
                $(Request::$api(request) => {
                    let answer = $handler(cx, request, version).await;
                    encode(ApiKey::$api, version, correlation_id, answer)
                })+
                // Read by the protocol crate, not served here; with every API in the table there is none.
                #[allow(unreachable_patterns)]
                other => Outcome::Close(format!("{} is not served by this broker", other.api())),
            }
        }
    };
}

/// The row of an API and its place in the table.
pub fn row(api: ApiKey) -> Option<(usize, &'static Row)> {
    TABLE.iter().enumerate().find(|(_, row)| row.api == api)
}

use Operation::{Delete, Describe, Read, Write};

api_table! {
    Produce: log::produce::produce, Needs::topics(Write);
    Fetch: log::fetch::fetch, Needs::topics(Read);
    ListOffsets: log::list_offsets::list_offsets, Needs::topics(Describe);
    OffsetForLeaderEpoch: log::offset_for_leader_epoch::offset_for_leader_epoch, Needs::topics(Describe);
    DeleteRecords: log::delete_records::delete_records, Needs::topics(Delete);
    ApiVersions: cluster::api_versions::api_versions, Needs::NOTHING;
}

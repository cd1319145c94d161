//! One page of a list.
//! Law: a list has a stable order (its name or id), and a token continues right after the last item seen.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The most items a page may hold, and how many it holds when nobody says.
pub const MAX_PAGE_SIZE: usize = 1000;

/// A page: `{"items":[…],"next_page_token":null}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// Ask again with this as `page_token`; `null` on the last page.
    pub next_page_token: Option<String>,
}

/// How a page is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// From 1 to 1000; 1000 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<usize>,
    /// The `next_page_token` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

//! Who may talk to the admin listener while there is no authentication.
//! Law: a browser that was lured here is refused: the Host must be this machine's own or the configured one, and an
//! Origin, if there is one, too (DNS rebinding, cross-site requests).

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kuorum_metadata::config_def::ListenAddress;

use super::Admin;
use super::problem::Refused;

/// Checks Host and Origin.
pub(super) async fn check(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    // Whoever opened the listener to the world has answered for it.
    if admin.config.admin_allow_unauthenticated {
        return next.run(request).await;
    }
    match foreign(request.headers(), &admin.config.admin_listener.host) {
        None => next.run(request).await,
        Some(what) => Refused::new(
            StatusCode::FORBIDDEN,
            "FOREIGN_HOST",
            format!("{what} is not this controller: ask it by the address it listens on"),
        )
        .at(request.uri().path())
        .into_response(),
    }
}

/// The header that names somebody else, if one does.
fn foreign(headers: &HeaderMap, own: &str) -> Option<String> {
    let is_own = |authority: &str| {
        // A port is not a name: whatever it is, the connection has arrived here.
        let with_port = ListenAddress::parse(authority);
        let address = with_port.or_else(|| ListenAddress::parse(&format!("{authority}:0")));
        address.is_some_and(|address| address.is_loopback() || address.host == own)
    };
    let text = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    if let Some(host) = text(header::HOST)
        && !is_own(host)
    {
        return Some(format!("Host {host}"));
    }
    if let Some(origin) = text(header::ORIGIN) {
        let authority = origin
            .strip_prefix("http://")
            .or(origin.strip_prefix("https://"));
        if !authority.is_some_and(is_own) {
            return Some(format!("Origin {origin}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_host_or_origin_is_noticed() {
        for (host, origin, refused) in [
            (Some("localhost:9132"), None, false),
            (Some("127.0.0.1"), None, false),
            (Some("[::1]:9132"), None, false),
            (Some("admin.example:9132"), None, false),
            (None, None, false),
            (Some("evil.example"), None, true),
            (Some("evil.example:9132"), None, true),
            (Some("localhost:9132"), Some("http://localhost:9132"), false),
            (Some("localhost:9132"), Some("https://evil.example"), true),
            (Some("localhost:9132"), Some("null"), true),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(header::HOST, host.parse().unwrap());
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(
                foreign(&headers, "admin.example").is_some(),
                refused,
                "{host:?} {origin:?}"
            );
        }
    }
}

//! Which requests are for the node itself.
//!
//! Paths match by whole segments and byte for byte: `/info` is the node's, `/users/info`, `/information` and `/%69nfo` are
//! the app's. Everything below `/_bellwether/` is the node's, also what it does not know.

use std::str::FromStr;

use http::Method;

/// Where the node's own routes begin.
const OWN: &str = "/_bellwether/";

/// Which paths outside `/_bellwether/` a node answers itself, also in their `/vN.NN` forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRoutes {
    ping: bool,
    info: bool,
}

/// Why a list of local routes cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a node can answer /_ping and /info itself, and not `{0}`; write /_ping,/info, one of them, or nothing")]
pub struct LocalRoutesError(String);

/// A request for the node itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// Is anybody there? As the Docker client asks.
    Ping,
    /// What a node says of itself.
    Info,
    /// Everything, for machines.
    Status,
    /// Who this node is and whom it believes primary.
    Leader,
    /// 200 on the primary alone.
    Primary,
    /// 200 on a replica alone.
    Replica,
    /// 200 while the process answers.
    Live,
    /// 200 while requests can be served or forwarded.
    Ready,
    /// The numbers.
    Metrics,
    /// Hand over.
    Resign,
    /// Documented for a later version.
    Later,
    /// Below `/_bellwether/`, and nothing.
    Unknown,
}

impl Route {
    fn below(name: &str) -> Self {
        match name {
            "status" => Self::Status,
            "leader" => Self::Leader,
            "primary" => Self::Primary,
            "replica" => Self::Replica,
            "live" => Self::Live,
            "ready" => Self::Ready,
            "metrics" => Self::Metrics,
            "resign" => Self::Resign,
            "nodes" | "history" | "events" | "openapi.json" | "handover" | "pause" | "resume" => Self::Later,
            page if page.starts_with("ui/") => Self::Later,
            _ => Self::Unknown,
        }
    }

    /// Whether the route is for `method`; one that does not exist is for none and says so whatever was asked.
    pub(super) fn allows(self, method: &Method) -> bool {
        let reading = method == Method::GET || method == Method::HEAD;
        match self {
            Self::Later | Self::Unknown => true,
            Self::Resign => method == Method::POST,
            Self::Ping | Self::Info | Self::Status | Self::Leader | Self::Primary | Self::Replica => reading,
            Self::Live | Self::Ready | Self::Metrics => reading,
        }
    }

    /// The methods it is for, as `Allow` lists them.
    pub(super) fn allowed(self) -> &'static str {
        if self == Self::Resign { "POST" } else { "GET, HEAD" }
    }
}

impl LocalRoutes {
    /// Which route a path is, of whatever method; `None` for a path that belongs to the app.
    pub(super) fn find(self, path: &str) -> Option<Route> {
        if let Some(name) = path.strip_prefix(OWN) {
            return Some(Route::below(name));
        }
        match without_version(path) {
            "/_ping" if self.ping => Some(Route::Ping),
            "/info" if self.info => Some(Route::Info),
            _ => None,
        }
    }
}

/// `/v1.41/info` is `/info`; `/v1/info` and `/v1.x/info` are themselves.
fn without_version(path: &str) -> &str {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((version, rest)) = path.strip_prefix("/v").and_then(|path| path.split_once('/')) else { return path };
    match version.split_once('.') {
        Some((major, minor)) if digits(major) && digits(minor) => &path[path.len() - rest.len() - 1..],
        _ => path,
    }
}

impl Default for LocalRoutes {
    fn default() -> Self {
        Self { ping: true, info: true }
    }
}

impl FromStr for LocalRoutes {
    type Err = LocalRoutesError;

    fn from_str(text: &str) -> Result<Self, LocalRoutesError> {
        let mut routes = Self { ping: false, info: false };
        for path in text.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            match path {
                "/_ping" => routes.ping = true,
                "/info" => routes.info = true,
                other => return Err(LocalRoutesError(other.to_owned())),
            }
        }
        Ok(routes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_by_whole_segments() {
        // S04: a suffix is no match.
        let routes = LocalRoutes::default();
        for (path, route) in [
            ("/_ping", Some(Route::Ping)),
            ("/v1.41/_ping", Some(Route::Ping)),
            ("/info", Some(Route::Info)),
            ("/v1.24/info", Some(Route::Info)),
            ("/_bellwether/status", Some(Route::Status)),
            ("/_bellwether/ui/app.js", Some(Route::Later)),
            ("/_bellwether/", Some(Route::Unknown)),
            ("/_bellwether/leader/", Some(Route::Unknown)),
            ("/_bellwether/pause", Some(Route::Later)),
            ("/", None),
            ("", None),
            ("*", None),
            ("/users/info", None),
            ("/information", None),
            ("/info/", None),
            ("//info", None),
            ("/%69nfo", None),
            ("/INFO", None),
            ("/v1/info", None),
            ("/v1.x/info", None),
            ("/v.1/info", None),
            ("/v1.2.3/info", None),
            ("/v1.41/v1.41/info", None),
            ("/v1.41", None),
            ("/v1.41info", None),
            ("/v1.41/_bellwether/status", None),
            ("/_bellwether", None),
            ("/_bellwetherx/status", None),
            ("/containers/debug", None),
        ] {
            assert_eq!(routes.find(path), route, "{path}");
        }
    }

    #[test]
    fn a_route_that_is_left_out_belongs_to_the_app() {
        let routes: LocalRoutes = "/info".parse().unwrap();
        assert_eq!((routes.find("/_ping"), routes.find("/v1.41/_ping")), (None, None));
        assert_eq!(routes.find("/info"), Some(Route::Info));
        let none: LocalRoutes = "".parse().unwrap();
        assert_eq!(none.find("/info"), None);
        assert_eq!(none.find("/_bellwether/live"), Some(Route::Live));
        let error = "/_ping,/users".parse::<LocalRoutes>().unwrap_err().to_string();
        assert!(error.contains("not `/users`"), "{error}");
    }
}

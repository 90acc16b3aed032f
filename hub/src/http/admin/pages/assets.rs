//! The styles and the script of the operator's pages.

use axum::Router;
use axum::routing::get;

use super::super::AdminState;
use crate::http::layout;

// The version is in their names, so that no browser shows the pages of a new hub with styles of the old one.
pub(super) const STYLE: &str = concat!("/assets/style-", env!("CARGO_PKG_VERSION"), ".css");
pub(super) const LIVE: &str = concat!("/assets/live-", env!("CARGO_PKG_VERSION"), ".js");
pub(super) const ICON: &str = concat!("/assets/icon-", env!("CARGO_PKG_VERSION"), ".svg");

pub(super) fn routes() -> Router<AdminState> {
    let live = || async { layout::asset("text/javascript; charset=utf-8", include_str!("live.js")) };
    Router::new().route(STYLE, get(layout::style)).route(LIVE, get(live)).route(ICON, get(layout::icon))
}

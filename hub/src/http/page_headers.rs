//! Security headers for listeners with pages.

use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue};

/// Adds the headers: `policy` says what pages may load, `referrer` who gets the referrer. An answer without `Cache-Control` is not
/// cached.
pub(super) fn page_headers(answer: &mut Response, policy: &'static str, referrer: &'static str) {
    let fields = [
        (CONTENT_SECURITY_POLICY, policy),
        (REFERRER_POLICY, referrer),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let headers = answer.headers_mut();
    headers.extend(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

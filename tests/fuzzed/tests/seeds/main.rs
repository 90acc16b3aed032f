//! The fuzz targets, run over their seeds and over thousands of damaged ones. And bytes that are made to be hostile, by rules.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile_bytes;
mod seeds;

use resync_fuzzed::{
    datetime, digest, document, embedded, feed, form, head, link_header, lint, moment, signature, time_map,
    verification, version_path,
};
use seeds::run_over_seeds;

/// The same for a target that takes text.
fn run_over_texts(target: &str, run: impl Fn(&str)) {
    run_over_seeds(target, |bytes| run(&String::from_utf8_lossy(bytes)));
}

#[test]
fn any_text_as_a_datetime() {
    run_over_texts("datetime", datetime::run);
}

#[test]
fn any_text_as_a_digest() {
    run_over_texts("digest", digest::run);
}

#[test]
fn any_bytes_as_a_document() {
    run_over_seeds("document", document::run);
}

#[test]
fn any_bytes_as_a_page_and_as_a_feed() {
    run_over_seeds("embedded", embedded::run);
}

#[test]
fn any_bytes_as_a_site() {
    run_over_seeds("lint", lint::run);
}

#[test]
fn any_bytes_as_a_form() {
    run_over_seeds("form", form::run);
}

#[test]
fn any_bytes_as_link_headers() {
    run_over_seeds("link_header", link_header::run);
}

#[test]
fn any_bytes_as_a_time_map() {
    run_over_seeds("time_map", time_map::run);
}

#[test]
fn any_text_as_the_moment_of_a_version() {
    run_over_texts("moment", moment::run);
}

#[test]
fn any_text_as_the_uri_of_versions() {
    run_over_texts("version_path", version_path::run);
}

#[test]
fn any_bytes_as_a_signature_and_a_body() {
    run_over_seeds("signature", signature::run);
}

#[test]
fn any_text_as_a_verification() {
    run_over_texts("verification", verification::run);
}

#[test]
fn any_bytes_as_the_query_and_the_header_of_a_request() {
    run_over_seeds("head", head::run);
}

#[test]
fn any_bytes_as_two_versions_of_a_feed() {
    run_over_seeds("feed", feed::run);
}

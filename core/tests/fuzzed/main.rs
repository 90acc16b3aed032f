//! The bodies of the fuzz targets, run over their seeds and over thousands of damaged ones; libFuzzer runs the same bodies for
//! as long as one likes (`tests/fuzz`). And bytes that are made to be hostile, by rules.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod datetime;
mod digest;
mod document;
mod embedded;
mod form;
mod hostile_bytes;
mod link_header;
mod lint;
mod seeds;
mod signature;
mod verification;

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
fn any_bytes_as_a_signature_and_a_body() {
    run_over_seeds("signature", signature::run);
}

#[test]
fn any_text_as_a_verification() {
    run_over_texts("verification", verification::run);
}

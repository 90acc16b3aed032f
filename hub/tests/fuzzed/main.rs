//! The bodies of the hub's fuzz targets, run over their seeds and over thousands of damaged ones; libFuzzer runs the same bodies
//! for as long as one likes (`tests/fuzz`).
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod feed;
mod head;
#[path = "../../../core/tests/fuzzed/seeds.rs"]
mod seeds;

#[test]
fn any_bytes_as_the_query_and_the_header_of_a_request() {
    seeds::run_over_seeds("head", head::run);
}

#[test]
fn any_bytes_as_two_versions_of_a_feed() {
    seeds::run_over_seeds("feed", feed::run);
}

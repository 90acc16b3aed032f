//! The body of the hub's fuzz target, run over its seeds and over thousands of damaged ones; libFuzzer runs the same body for as
//! long as one likes (`tests/fuzz`).
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod head;
#[path = "../../../core/tests/fuzzed/seeds.rs"]
mod seeds;

#[test]
fn any_bytes_as_the_query_and_the_header_of_a_request() {
    seeds::run_over_seeds("head", head::run);
}

//! libFuzzer on `feed`; what must hold is in hub/tests/fuzzed/feed.rs, where `cargo test` runs it, too.
#![no_main]

#[path = "../../hub/tests/fuzzed/feed.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));

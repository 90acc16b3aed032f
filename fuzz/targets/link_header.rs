//! libFuzzer on `link_header`; what must hold is in core/tests/fuzzed/link_header.rs, where `cargo test` runs it, too.
#![no_main]

#[path = "../../core/tests/fuzzed/link_header.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));

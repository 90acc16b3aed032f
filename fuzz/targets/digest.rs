//! libFuzzer on `digest`; what must hold is in core/tests/fuzzed/digest.rs, where `cargo test` runs it, too.
#![no_main]

#[path = "../../core/tests/fuzzed/digest.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &str| body::run(input));

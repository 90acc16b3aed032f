//! libFuzzer on `verification`; what must hold is in core/tests/fuzzed/verification.rs, where `cargo test` runs it, too.
#![no_main]

#[path = "../../core/tests/fuzzed/verification.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &str| body::run(input));

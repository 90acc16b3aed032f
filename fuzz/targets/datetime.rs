//! libFuzzer on `datetime`; what must hold is in core/tests/fuzzed/datetime.rs, where `cargo test` runs it, too.
#![no_main]

#[path = "../../core/tests/fuzzed/datetime.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &str| body::run(input));

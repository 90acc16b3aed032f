//! libFuzzer on `embedded`; what must hold is in core/tests/fuzzed/embedded.rs, where `cargo test` runs it, too.
#![no_main]

#[path = "../../core/tests/fuzzed/embedded.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::run(input));

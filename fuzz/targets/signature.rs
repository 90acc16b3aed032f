//! libFuzzer on `signature`; what must hold is in tests/fuzzed/src/signature.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| resync_fuzzed::signature::run(input));

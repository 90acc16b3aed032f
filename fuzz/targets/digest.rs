//! libFuzzer on `digest`; what must hold is in tests/fuzzed/src/digest.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| resync_fuzzed::digest::run(input));

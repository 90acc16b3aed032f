//! libFuzzer on `verification`; what must hold is in tests/fuzzed/src/verification.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| resync_fuzzed::verification::run(input));

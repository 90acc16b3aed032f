//! libFuzzer on `moment`; what must hold is in tests/fuzzed/src/moment.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| resync_fuzzed::moment::run(input));

//! libFuzzer on `datetime`; what must hold is in tests/fuzzed/src/datetime.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| resync_fuzzed::datetime::run(input));

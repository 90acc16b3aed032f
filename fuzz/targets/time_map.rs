//! libFuzzer on `time_map`; what must hold is in tests/fuzzed/src/time_map.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| resync_fuzzed::time_map::run(input));

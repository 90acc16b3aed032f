//! libFuzzer on `version_path`; what must hold is in tests/fuzzed/src/version_path.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| resync_fuzzed::version_path::run(input));

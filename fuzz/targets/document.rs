//! libFuzzer on `document`; what must hold is in tests/fuzzed/src/document.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| resync_fuzzed::document::run(input));

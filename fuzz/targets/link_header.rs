//! libFuzzer on `link_header`; what must hold is in tests/fuzzed/src/link_header.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| resync_fuzzed::link_header::run(input));

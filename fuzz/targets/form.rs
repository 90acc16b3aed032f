//! libFuzzer on `form`; what must hold is in tests/fuzzed/src/form.rs, where `cargo test` runs it, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| resync_fuzzed::form::run(input));

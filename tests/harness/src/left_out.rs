//! What cannot be tested on a machine is said, so that nobody takes it for tested.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Names the file from which `tests/run` makes the table at its end.
const LEFT_OUT: &str = "RESYNC_TEST_LEFT_OUT";

/// Says that this is not tested here, and why.
///
/// # Panics
/// When that cannot be written down.
pub fn left_out(what: &str, why: &str) {
    eprintln!("NOT TESTED: {what}: {why}");
    if let Some(path) = env::var_os(LEFT_OUT) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("tests/run made it");
        file.write_all(format!("{what}\t{why}\n").as_bytes()).expect("a line can be appended");
    }
}

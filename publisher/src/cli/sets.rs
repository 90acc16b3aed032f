//! Commands over the sets of a site: each set that fails is named, and the others are done.

use std::path::{Path, PathBuf};

use resync_common::output::complain;

use super::Failure;

/// The name of the set in `out` if there are several: that of its folder.
pub(super) fn name_in(outs: &[PathBuf], out: &Path) -> Option<String> {
    let name = out.file_name().filter(|_| outs.len() > 1)?;
    Some(name.to_string_lossy().into_owned())
}

/// Prints the failure of a set that has a name.
pub(super) fn print_failure(name: Option<&str>, failure: &dyn std::fmt::Display) {
    if let Some(name) = name {
        complain(format_args!("{name}: {failure}"));
    }
}

/// Does something with each set; returns the results and the failures.
pub(super) fn each<T, E: Into<Failure>>(
    outs: &[PathBuf],
    one: impl Fn(&Path) -> Result<T, E>,
) -> (Vec<T>, Vec<(Option<String>, Failure)>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for out in outs {
        match one(out) {
            Ok(one) => done.push(one),
            Err(error) => failed.push((name_in(outs, out), error.into())),
        }
    }
    (done, failed)
}

/// The outcome of a command that failed for some of `all` sets: the failure of the only one, or else how many. Prints each failure.
pub(super) fn outcome(
    failed: Vec<(Option<String>, Failure)>,
    all: usize,
    what: &'static str,
) -> Result<(), Failure> {
    for (name, failure) in &failed {
        print_failure(name.as_deref(), failure);
    }
    sum(failed.into_iter().map(|(_, failure)| failure).collect(), all, what)
}

/// The outcome of a command whose failures have been printed.
pub(super) fn sum(mut failed: Vec<Failure>, all: usize, what: &'static str) -> Result<(), Failure> {
    let codes = failed.iter().map(Failure::exit_code);
    let code = codes.reduce(|one, other| if one == other { one } else { 1 });
    match (code, failed.pop()) {
        (Some(_), Some(failure)) if all == 1 => Err(failure),
        (Some(code), Some(_)) => Err(Failure::Sets { failed: failed.len() + 1, all, what, code }),
        _ => Ok(()),
    }
}

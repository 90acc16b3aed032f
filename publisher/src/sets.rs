//! The sets of a site as the command line speaks of them: by name where there are several.

use std::path::{Path, PathBuf};

use crate::cli::Failure;

/// The name of the set in `out`, where there are several: its folder is named like it.
pub(crate) fn name_in(outs: &[PathBuf], out: &Path) -> Option<String> {
    let name = out.file_name().filter(|_| outs.len() > 1)?;
    Some(name.to_string_lossy().into_owned())
}

/// Says which set it is about, where there are several.
pub(crate) fn blame(name: Option<&str>, failure: &dyn std::fmt::Display) {
    if let Some(name) = name {
        eprintln!("error: {name}: {failure}");
    }
}

/// Does something with each set; one with which that fails keeps no other from it.
pub(crate) fn each<T, E: Into<Failure>>(
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

/// What a command ends with that failed with some of `all` sets: the failure of the only one, or else how many, when each has been said.
pub(crate) fn outcome(
    failed: Vec<(Option<String>, Failure)>,
    all: usize,
    what: &'static str,
) -> Result<(), Failure> {
    for (name, failure) in &failed {
        blame(name.as_deref(), failure);
    }
    sum(failed.into_iter().map(|(_, failure)| failure).collect(), all, what)
}

/// The same where each has been said.
pub(crate) fn sum(mut failed: Vec<Failure>, all: usize, what: &'static str) -> Result<(), Failure> {
    let codes = failed.iter().map(Failure::exit_code);
    let code = codes.reduce(|one, other| if one == other { one } else { 1 });
    match (code, failed.pop()) {
        (Some(_), Some(failure)) if all == 1 => Err(failure),
        (Some(code), Some(_)) => Err(Failure::Sets { failed: failed.len() + 1, all, what, code }),
        _ => Ok(()),
    }
}

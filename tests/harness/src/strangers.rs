//! Programs that others wrote, from their registries.

use std::path::Path;
use std::process::Command;

/// A hub in Python, with the web framework and the task queue that it needs.
pub const FLASK_HUB: [&str; 3] = ["Flask-WebSub==0.4.1", "Flask==3.1.*", "celery==5.5.*"];

/// A client of `ResourceSync` in Python; setuptools has what newer Pythons have no more.
pub const RESYNC: [&str; 2] = ["resync==2.0.1", "setuptools==65.5.0"];

/// Makes a Python of its own in this folder, with these packages.
///
/// # Errors
/// Says which command failed, and its words.
pub fn python_with(environment: &Path, packages: &[&str]) -> Result<(), String> {
    run(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
    let options = ["install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(environment.join("bin/pip")).args(options).args(packages))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Err(format!(
        "{command:?} failed, which needs the package registries: {}: {}",
        output.status,
        said.concat()
    ))
}

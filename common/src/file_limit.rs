//! The limit of open files of this process.

use std::io;

/// Lets this process have as many file descriptors open as it may. An error where a sandbox forbids it; then the limit that it set holds.
#[cfg(unix)]
pub fn raise() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// There is no limit to raise.
#[cfg(not(unix))]
pub fn raise() -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use rustix::process::{Resource, getrlimit};

    #[test]
    fn the_process_may_then_open_as_many_files_as_the_system_lets_it() {
        super::raise().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}

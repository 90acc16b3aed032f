//! Which lines go to the hub's log, while it runs.

use std::fmt;
use std::sync::{Arc, Mutex};

use resync_common::locks::lock;

use super::responses::LogLevel;
use super::{AdminService, By, Failed};

/// The longest filter in bytes.
const LONGEST: usize = 500;

/// Replaces the current filter, or says why not.
type Set = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// The log filter of this process, which the program that started the hub provides.
#[derive(Clone)]
pub struct LogFilter {
    now: Arc<Mutex<String>>,
    set: Arc<Set>,
}

impl LogFilter {
    /// The current filter, and a function that replaces it or says what is wrong with the new one.
    pub fn new(now: &str, set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(Mutex::new(now.to_owned())), set: Arc::new(set) }
    }

    fn now(&self) -> String {
        lock(&self.now).clone()
    }

    fn put(&self, filter: String) -> Result<(), String> {
        // Held until both agree.
        let mut now = lock(&self.now);
        (self.set)(&filter)?;
        *now = filter;
        Ok(())
    }
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFilter").field(&self.now()).finish()
    }
}

impl AdminService {
    /// Which lines go to the log.
    ///
    /// # Errors
    /// [`Failed::Conflict`] if the log belongs to another program.
    pub fn log_level(&self) -> Result<LogLevel, Failed> {
        Ok(LogLevel { filter: self.own_log()?.now() })
    }

    /// Lets other lines go to the log, until the next start.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn set_log_level(&self, by: By, level: &LogLevel) -> Result<LogLevel, Failed> {
        let log = self.own_log()?.clone();
        if level.filter.len() > LONGEST {
            return Err(Failed::asked(format_args!("a filter has at most {LONGEST} bytes")));
        }
        let filter = whole(&level.filter);
        let wanted = filter.clone();
        let put = |_| async move { log.put(wanted).map_err(Failed::Asked) };
        self.audited(by, "log level", &filter, put).await?;
        Ok(LogLevel { filter })
    }

    fn own_log(&self) -> Result<&LogFilter, Failed> {
        let foreign =
            || Failed::Conflict("this hub is part of another program, which controls the log".into());
        self.log.as_ref().ok_or_else(foreign)
    }
}

/// The filter with `hub` for this crate, and the default level for all that it does not name.
fn whole(filter: &str) -> String {
    let directives: Vec<_> =
        filter.split(',').map(str::trim).filter(|one| !one.is_empty()).map(named).collect();
    let says_of_all = directives.iter().any(|one| one.parse::<tracing::Level>().is_ok() || one == "off");
    if says_of_all { directives.join(",") } else { [&["info".to_owned()], &*directives].concat().join(",") }
}

fn named(directive: &str) -> String {
    match directive.strip_prefix("hub") {
        Some(rest) if rest.is_empty() || rest.starts_with(['=', ':', '[']) => format!("resync_hub{rest}"),
        _ => directive.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_some_lines_leaves_the_others_as_they_are_by_default() {
        for (said, meant) in [
            ("hub=debug", "info,resync_hub=debug"),
            ("warn", "warn"),
            ("off", "off"),
            ("debug, hyper=off", "debug,hyper=off"),
            ("hub::delivery=trace", "info,resync_hub::delivery=trace"),
            ("hubbub=trace", "info,hubbub=trace"),
            ("", "info"),
        ] {
            assert_eq!(whole(said), meant, "{said}");
        }
    }

    #[test]
    fn a_filter_that_cannot_be_used_leaves_the_old_one_in_force() {
        let log =
            LogFilter::new("info", |filter| if filter == "bad" { Err("no".to_owned()) } else { Ok(()) });
        assert_eq!(log.put("bad".to_owned()), Err("no".to_owned()));
        assert_eq!(log.now(), "info");
        log.put("debug".to_owned()).unwrap();
        assert_eq!(log.now(), "debug");
    }
}

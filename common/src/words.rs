//! Numbers, sizes and lengths of time in words, and words of a command line: the same ones in every program.

use std::fmt;
use std::time::Duration;

/// A number with what is counted, in singular or plural.
///
/// ```
/// use resync_common::words::counted;
///
/// assert_eq!(counted(1_u64, "resource", "resources"), "1 resource");
/// assert_eq!(counted(0_u64, "entry", "entries"), "0 entries");
/// ```
pub fn counted(count: impl TryInto<u64> + fmt::Display, one: &str, many: &str) -> String {
    let number = count.to_string();
    let what = if count.try_into().ok() == Some(1) { one } else { many };
    format!("{number} {what}")
}

/// A number of bytes, as "47.1 KiB": in the units of the settings.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        // A tenth is shown, so the digits that get lost are not.
        #[expect(clippy::cast_precision_loss)]
        let mut value = self.0 as f64 / 1_024.0;
        if value < 1.0 {
            return write!(f, "{} B", self.0);
        }
        let mut units = UNITS.iter();
        let mut unit = units.next();
        // What would be rounded to 1024.0 is 1.0 of the next one.
        while let Some(next) = units.next().filter(|_| value >= 1_023.95) {
            (value, unit) = (value / 1_024.0, Some(next));
        }
        write!(f, "{value:.1} {}", unit.copied().unwrap_or_default())
    }
}

/// A length of time in its two largest units.
#[derive(Clone, Copy, Debug)]
pub struct Lasting(pub Duration);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
        match (days, hours, minutes, seconds % 60) {
            (0, 0, 0, 0) => write!(f, "{} ms", self.0.as_millis()),
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, ..) => write!(f, "{days} d {hours} h"),
        }
    }
}

/// A word of a command line that somebody is told to type: quoted where a shell would understand it otherwise.
///
/// ```
/// use resync_common::words::quoted;
///
/// assert_eq!(quoted("/srv/a hub"), "'/srv/a hub'");
/// ```
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_leaves_something() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (48_200, "47.1 KiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), shown);
        }
    }

    #[test]
    fn one_is_told_otherwise_than_many() {
        let told = |count: usize| counted(count, "host", "hosts");
        assert_eq!([told(0), told(1), told(21)], ["0 hosts", "1 host", "21 hosts"]);
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_understand_them_otherwise() {
        assert_eq!(quoted("--data-dir=/srv/hub"), "--data-dir=/srv/hub");
        assert_eq!(quoted("https://hub.example/?a=b&c"), "'https://hub.example/?a=b&c'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn times_are_told_in_their_two_largest_units() {
        let told = |millis| Lasting(Duration::from_millis(millis)).to_string();
        assert_eq!(
            [told(7), told(59_000), told(61_000), told(3_720_000), told(90_000_000)],
            ["7 ms", "59 s", "1 min 1 s", "1 h 2 min", "1 d 1 h"]
        );
    }
}

//! How values are written: durations, sizes, rates, URLs.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer as _};
use url::Url;

use super::prefixes::Prefixes;

/// The commented file that is the compiled-in default.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

/// A rate limit: a burst, and a number per second in the long run.
///
/// ```
/// let rate: resync_hub::config::Rate = "30/min, burst 10".parse()?;
/// assert_eq!((rate.per_second, rate.burst), (0.5, 10));
/// # Ok::<(), resync_hub::config::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// In the long run; more than 0.
    pub per_second: f64,
    /// At once; at least 1.
    pub burst: u32,
}

/// A text that is no [`Rate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a rate: write for example \"5/s, burst 50\" or \"30/min, burst 10\"")]
pub struct RateError(String);

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        parse_rate(text).ok_or_else(|| RateError(text.to_owned()))
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s, burst {}", self.per_second, self.burst)
    }
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (pace, burst) = text.split_once(',')?;
    let (count, unit) = pace.trim().split_once('/')?;
    let seconds = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        _ => return None,
    };
    let count: u32 = count.trim().parse().ok()?;
    let burst = burst.trim().strip_prefix("burst ")?.trim().parse().ok()?;
    (count > 0 && burst > 0).then(|| Rate { per_second: f64::from(count) / f64::from(seconds), burst })
}

/// What keeps the data (`[store] engine`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// fjall 3: log-structured, synced before every acknowledgement.
    #[default]
    Fjall,
    /// sled 0.34: survives `kill -9`, but has lost acknowledged records in simulated power cuts.
    #[cfg(feature = "sled")]
    Sled,
    /// PostgreSQL: the database of `[store] url`.
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Engine {
    /// Its name in the configuration, in the mark of a store, and of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fjall => "fjall",
            #[cfg(feature = "sled")]
            Self::Sled => "sled",
            #[cfg(feature = "postgres")]
            Self::Postgres => "postgres",
        }
    }
}

impl Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
impl Engine {
    /// What this program is built with.
    pub(crate) const ALL: &[Self] = &[
        Self::Fjall,
        #[cfg(feature = "sled")]
        Self::Sled,
        #[cfg(feature = "postgres")]
        Self::Postgres,
    ];
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(super) fn durations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Duration>, D::Error> {
    let values = Vec::<String>::deserialize(deserializer)?;
    values.iter().map(|value| parse_duration(value)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = String::deserialize(deserializer)?;
    let size = ByteSize::from_str(&value).map_err(|_| {
        D::Error::custom(format!(
            "\"{value}\" is not a size: write for example \"512 KiB\", \"1 MiB\" or \"10 GiB\""
        ))
    })?;
    Ok(size.as_u64())
}

pub(super) fn engine<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Engine, D::Error> {
    let name = String::deserialize(deserializer)?;
    match left_out(&name, cfg!(feature = "sled"), cfg!(feature = "postgres")) {
        Some(reason) => Err(D::Error::custom(reason)),
        None => Engine::deserialize(name.into_deserializer()),
    }
}

/// Why there is no such engine in a program that is built with these, or without them.
fn left_out(engine: &str, with_sled: bool, with_postgres: bool) -> Option<&'static str> {
    match engine {
        "sled" if !with_sled => Some(
            "this program is built without sled: choose \"fjall\", to which `resync-hub backup` and `restore` move a store, or \
             build the hub with sled (`cargo build --release -p resync-hub --features sled`)",
        ),
        "postgres" if !with_postgres => Some(
            "this program is built without postgres: choose \"fjall\", or build the hub with it (`cargo build --release \
             -p resync-hub --features postgres`)",
        ),
        _ => None,
    }
}

pub(super) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

pub(super) fn all_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let values = Vec::<String>::deserialize(deserializer)?;
    values.iter().map(|value| value.parse()).collect::<Result<_, _>>().map_err(D::Error::custom)
}

pub(super) fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Prefixes, D::Error> {
    Prefixes::parse(&Vec::<String>::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(super) fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let value = String::deserialize(deserializer)?;
    if value.is_empty() {
        return Ok(None);
    }
    match Url::parse(&value) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => Ok(Some(url)),
        Ok(_) | Err(_) => Err(D::Error::custom(format!(
            "\"{value}\" is not an http or https URL: write for example \"https://hub.example\""
        ))),
    }
}

fn parse_duration(value: &str) -> Result<Duration, String> {
    humantime::parse_duration(value)
        .map_err(|_| format!("\"{value}\" is not a duration: write for example \"10s\", \"90m\" or \"10d\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_shown_as_it_is_set() {
        for engine in Engine::ALL {
            let set: Engine = serde_json::from_value(engine.to_string().into()).unwrap();
            assert_eq!(set, *engine);
        }
    }

    #[test]
    fn an_engine_that_was_left_out_is_an_error_that_says_how_to_get_it() {
        for engine in ["sled", "postgres"] {
            let reason = left_out(engine, false, false).unwrap();
            assert!(reason.contains(&format!("built without {engine}")), "{reason}");
            assert!(reason.contains(&format!("--features {engine}")), "{reason}");
            assert_eq!(left_out(engine, true, true), None, "{engine}");
        }
        for engine in ["fjall", "oracle"] {
            assert_eq!(left_out(engine, false, false), None, "{engine}");
        }
    }
}

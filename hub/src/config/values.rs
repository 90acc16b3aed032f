//! How values are written: durations, sizes, URLs.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer, Error};
use url::Url;

/// The commented file that is the compiled-in default.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

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
            "\"{value}\" is no size: write for example \"512 KiB\", \"1 MiB\" or \"10 GiB\""
        ))
    })?;
    Ok(size.as_u64())
}

pub(super) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

pub(super) fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let value = String::deserialize(deserializer)?;
    if value.is_empty() {
        return Ok(None);
    }
    match Url::parse(&value) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => Ok(Some(url)),
        Ok(_) | Err(_) => Err(D::Error::custom(format!(
            "\"{value}\" is no http or https URL: write for example \"https://hub.example\""
        ))),
    }
}

fn parse_duration(value: &str) -> Result<Duration, String> {
    humantime::parse_duration(value)
        .map_err(|_| format!("\"{value}\" is no duration: write for example \"10s\", \"90m\" or \"10d\""))
}

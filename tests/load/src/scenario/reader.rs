//! Times and sizes among the keys of a scenario.

use std::time::Duration;

use resync_common::config::Keys;
use toml::de::DeValue;

pub(super) trait Amounts {
    fn duration(&self, key: &str) -> Option<Duration>;
    fn size(&self, key: &str) -> Option<u64>;
}

impl Amounts for Keys<'_, '_> {
    fn duration(&self, key: &str) -> Option<Duration> {
        self.read(key, "a time such as \"250ms\", \"10s\" or \"2m\"", duration)
    }

    fn size(&self, key: &str) -> Option<u64> {
        self.read(key, "a size such as \"512 B\" or \"16 KiB\"", size)
    }
}

pub(super) fn duration(value: &DeValue<'_>) -> Option<Duration> {
    humantime::parse_duration(value.as_str()?).ok()
}

pub(super) fn size(value: &DeValue<'_>) -> Option<u64> {
    value.as_str()?.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64())
}

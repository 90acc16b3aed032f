//! The scenarios that come with the tool.

macro_rules! catalogue {
    ($($name:literal),+ $(,)?) => {
        const SCENARIOS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),+];
    };
}

catalogue!(
    "quick",
    "dbpedia",
    "arxiv",
    "fourteen",
    "pinged",
    "fanout",
    "ladder",
    "soak",
    "world",
    "churn",
    "crash-loop",
    "pause",
    "full-disk",
    "failing-writes",
    "clock-jump",
    "host-outage",
    "mass-renewal",
    "slow-third",
    "poisoned",
    "resolver",
);

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name)
}

pub(super) fn text(name: &str) -> Option<&'static str> {
    SCENARIOS.iter().find(|(found, _)| *found == name).map(|(_, text)| *text)
}

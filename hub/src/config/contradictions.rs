//! What a configuration must not say: values out of their bounds, and values that contradict each other.

use std::time::Duration;

use url::Url;

use super::{Config, LeaseConfig, LimitsConfig, PublishConfig, TelemetryConfig};

const LARGEST_BODY: u64 = 1 << 30;
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 24 * 3_600);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest time that a backup waits for its reader: meanwhile the store keeps everything that is in it.
const LONGEST_BACKUP_PAUSE: Duration = Duration::from_secs(24 * 3_600);
const MOST_REQUESTS: usize = 1_000_000;

impl Config {
    /// Errors that show only in several values together.
    pub(super) fn contradictions(&self) -> Vec<String> {
        let mut found = self.unfit_timeouts();
        let mut claim = |holds: bool, otherwise: String| {
            if !holds {
                found.push(otherwise);
            }
        };
        let LeaseConfig { min, default, max, spread } = self.lease;
        claim(
            !min.is_zero() && min <= default && default <= max,
            format!(
                "lease.min ≤ lease.default ≤ lease.max must hold, and none may be 0: they are {min:?}, {default:?}, {max:?}"
            ),
        );
        claim(max <= LONGEST, format!("lease.max must be at most 10 years, it is {max:?}"));
        claim(
            (0.0..=0.9).contains(&spread),
            format!("lease.spread must lie between 0 and 0.9, it is {spread}"),
        );
        let delivery = &self.delivery;
        for (key, value) in [
            ("delivery.max_in_flight", delivery.max_in_flight),
            ("delivery.per_host", delivery.per_host),
            ("ingress.connections", self.ingress.connections),
            ("ingress.connections_per_client", self.ingress.connections_per_client),
        ] {
            let sensible = (1..=MOST_REQUESTS).contains(&value);
            claim(sensible, format!("{key} must lie between 1 and {MOST_REQUESTS}, it is {value}"));
        }
        let PublishConfig { max_body, body_memory, .. } = self.publish;
        claim(max_body > 0, "publish.max_body must not be 0".to_owned());
        claim(
            body_memory >= max_body && max_body <= LARGEST_BODY,
            format!(
                "publish.max_body must be at most 1 GiB and no larger than publish.body_memory, they are {max_body} and {body_memory} bytes"
            ),
        );
        claim(self.ingress.body_rate > 0, "ingress.body_rate must not be 0".to_owned());
        claim(
            self.retention.size > 0,
            "retention.size must not be 0: the log holds what is being delivered".to_owned(),
        );
        for (section, tls) in [("tls", &self.tls), ("admin", &self.admin.tls)] {
            claim(
                tls.is_on() != tls.key.as_os_str().is_empty(),
                format!("[{section}] certificate and key belong together: name both files, or neither"),
            );
        }
        if let Some(url) = &self.public_url {
            let plain = url.query().is_none() && url.fragment().is_none();
            claim(
                plain,
                format!("public_url must have no query and no fragment, since /websub/ is appended: {url}"),
            );
        }
        let without_slash = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        let own = self.public_url.as_ref().map(|url| format!("{}/websub", without_slash(url)));
        claim(
            own.is_none() || self.moved_to.as_ref().map(without_slash) != own,
            "moved_to must name another hub, not this one".to_owned(),
        );
        claim(
            delivery.breaker_open <= delivery.breaker_open_max && delivery.breaker_open_max <= LONGEST_PAUSE,
            "delivery.breaker_open must not be longer than breaker_open_max, nor that longer than 30 days"
                .to_owned(),
        );
        let pauses =
            delivery.schedule.iter().chain(&delivery.schedule_4xx).chain([&delivery.gone_confirm_after]);
        let sensible = pauses.into_iter().all(|pause| *pause <= LONGEST_PAUSE);
        claim(
            sensible,
            "no pause of delivery.schedule, schedule_4xx or gone_confirm_after may be longer than 30 days"
                .to_owned(),
        );
        let horizon = delivery.schedule.iter().fold(Duration::ZERO, |sum, pause| sum.saturating_add(*pause));
        claim(
            self.retention.age >= horizon.checked_mul(3).unwrap_or(Duration::MAX) / 2,
            format!(
                "retention.age must be at least 1.5 times the sum of delivery.schedule, else notifications are removed while they are still tried: {} is too short for {}",
                humantime::format_duration(self.retention.age),
                humantime::format_duration(horizon)
            ),
        );
        found.extend(self.store.mistakes(max_body));
        found.extend(self.limits.mistakes());
        found.extend(self.telemetry.mistakes());
        found
    }

    fn unfit_timeouts(&self) -> Vec<String> {
        let (delivery, ingress) = (&self.delivery, &self.ingress);
        let short = [
            ("delivery.timeout", delivery.timeout),
            ("delivery.connect_timeout", delivery.connect_timeout),
            ("publish.fetch_timeout", self.publish.fetch_timeout),
            ("ingress.header_timeout", ingress.header_timeout),
            ("ingress.body_timeout", ingress.body_timeout),
            ("ingress.answer_timeout", ingress.answer_timeout),
        ];
        let long = [("admin.backup_timeout", self.admin.backup_timeout)];
        let short = short.map(|(key, value)| (key, value, LONGEST_TIMEOUT, "10 minutes"));
        let long = long.map(|(key, value)| (key, value, LONGEST_BACKUP_PAUSE, "a day"));
        let unfit =
            short.into_iter().chain(long).filter(|(_, value, longest, _)| value.is_zero() || value > longest);
        unfit
            .map(|(key, value, _, most)| {
                format!("{key} must be more than 0 and at most {most}, it is {value:?}")
            })
            .collect()
    }
}

impl LimitsConfig {
    fn mistakes(&self) -> Vec<String> {
        let bounds = [
            ("most_subscriptions", self.most_subscriptions_of_client, self.most_subscriptions),
            ("most_topics", self.most_topics_of_client, self.most_topics),
            ("most_callback_hosts", self.most_callback_hosts_of_client, self.most_callback_hosts),
        ];
        let unfit = bounds.into_iter().filter(|(_, of_client, in_all)| *of_client == 0 || of_client > in_all);
        unfit
            .map(|(key, of_client, in_all)| {
                format!(
                    "limits.{key}_of_client must be at least 1 and at most limits.{key}, they are {of_client} and {in_all}"
                )
            })
            .collect()
    }
}

impl TelemetryConfig {
    fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let takes_a_path = |url: &Url| {
            let is_open = url.username().is_empty() && url.password().is_none();
            is_open && url.query().is_none() && url.fragment().is_none()
        };
        if !self.otlp.as_ref().is_none_or(takes_a_path) {
            found.push("telemetry.otlp must have no query, no fragment and no password, since /v1/traces is appended: write for example \"http://127.0.0.1:4318\"".to_owned());
        }
        if !(0.0..=1.0).contains(&self.ratio) {
            found.push(format!("telemetry.ratio must lie between 0 and 1, it is {}", self.ratio));
        }
        found
    }
}

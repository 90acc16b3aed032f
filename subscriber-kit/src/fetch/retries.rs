//! How often a request is retried, and after which pauses.

use std::time::Duration;

use resync_common::backoff::Backoff;

use super::FetchError;

/// The longest pause, unless a server asks for a longer one.
const LONGEST: Duration = Duration::from_secs(30);

/// The remaining retries of one request.
#[derive(Debug)]
pub(crate) struct Retries {
    left: u32,
    pauses: Backoff,
}

impl Retries {
    /// `left` retries, the first after `pause`, which is doubled for each further one.
    pub(crate) fn new(left: u32, pause: Duration) -> Self {
        Self { left, pauses: Backoff::new(pause, LONGEST.max(pause)).exact() }
    }

    /// The pause before the next retry, if there is one. An error because of the host's pause does not count as a try.
    pub(crate) fn after(&mut self, error: &FetchError) -> Option<Duration> {
        if self.left == 0 || !error.is_transient() {
            return None;
        }
        if let FetchError::HostPaused { left, .. } = error {
            // All requests that wait for the host get the same time.
            return Some(left.mul_f64(1.0 + 0.1 * fastrand::f64()));
        }
        self.left -= 1;
        Some(self.pauses.after_failure().max(error.retry_after().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    #[test]
    fn a_host_that_rests_uses_up_no_try_and_makes_no_pause_longer() {
        let url = Url::parse("http://a.example/").unwrap();
        let away = FetchError::of_status(&url, 503);
        let (first, left) = (Duration::from_millis(250), Duration::from_secs(10));
        let paused = FetchError::HostPaused { url, left };
        let mut retries = Retries::new(10, first);
        for _ in 0..100 {
            let pause = retries.after(&paused).unwrap();
            assert!((left..=left * 11 / 10).contains(&pause), "{pause:?}");
        }
        let pauses: Vec<Duration> = std::iter::from_fn(|| retries.after(&away)).collect();
        assert_eq!((pauses.len(), pauses[0], pauses[1], pauses[9]), (10, first, first * 2, LONGEST));
        assert_eq!(retries.after(&paused), None, "no try is left to wait for");
    }
}

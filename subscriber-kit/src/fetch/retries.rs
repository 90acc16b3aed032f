//! How often a request is made again, and after which pauses.

use std::time::Duration;

use resync_common::backoff::Backoff;

use super::FetchError;

/// The longest pause that no server asked for.
const LONGEST: Duration = Duration::from_secs(30);

/// The tries that are left of one request.
#[derive(Debug)]
pub(crate) struct Retries {
    left: u32,
    pauses: Backoff,
}

impl Retries {
    /// So many, the first after `pause`, which doubles with each.
    pub(crate) fn new(left: u32, pause: Duration) -> Self {
        Self { left, pauses: Backoff::new(pause, LONGEST.max(pause)).exact() }
    }

    /// How long to wait before the next try, if there is to be one. Where the host rests and was not asked, none is used up
    /// and the pauses stay as they are.
    pub(crate) fn after(&mut self, error: &FetchError) -> Option<Duration> {
        if self.left == 0 || !error.is_transient() {
            return None;
        }
        if let FetchError::HostPaused { left, .. } = error {
            // All that wait for the host are told the same moment.
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

//! How a host answers a delivery: at once, late, slowly, never, or with a refusal.

use std::time::Duration;

use fastrand::Rng;

use super::reply::{DONE, Delivery, Reply};
use crate::scenario::{Behaviour, Spell};

/// What a host answers to a delivery.
pub(super) fn answered(behaviour: Behaviour, host: usize, delivery: Delivery, rng: &mut Rng) -> Reply {
    match behaviour {
        Behaviour::Slow(spell) => Reply::Later(drawn(spell, rng), delivery),
        Behaviour::Drip(time) => Reply::Drip(time, delivery),
        Behaviour::Hang => Reply::Hang,
        Behaviour::Status { status: code, fraction } if rng.f64() < fraction => status(code, ""),
        Behaviour::Busy { retry_after, fraction } if rng.f64() < fraction => {
            let seconds = retry_after.as_secs();
            Reply::Bytes(
                format!(
                    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n"
                )
                .into_bytes(),
            )
        }
        Behaviour::Well | Behaviour::Status { .. } | Behaviour::Busy { .. } => Reply::Accept(delivery),
        Behaviour::Flapping { up, down } => {
            // Each host at another moment.
            let phase = (delivery.at + Duration::from_millis(37) * u32::try_from(host).unwrap_or(0))
                .as_micros()
                % (up + down).as_micros().max(1);
            if phase < up.as_micros() { Reply::Accept(delivery) } else { Reply::Reset }
        }
        Behaviour::Gone => status(410, ""),
        Behaviour::Redirect => {
            let place = format!("/elsewhere/{}", delivery.subscriber);
            Reply::Bytes(
                format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n")
                    .into_bytes(),
            )
        }
    }
}

fn drawn(spell: Spell, rng: &mut Rng) -> Duration {
    match spell {
        Spell::Uniform(from, to) => from + to.saturating_sub(from).mul_f64(rng.f64()),
        Spell::Mean(mean) => mean.mul_f64(-(1.0 - rng.f64()).ln()),
    }
}

/// A status with its body.
pub(super) fn status(code: u16, body: &str) -> Reply {
    if code == 204 {
        return Reply::Bytes(DONE.to_vec());
    }
    Reply::Bytes(format!("HTTP/1.1 {code} So\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

//! What a trace says of an attempt.

use super::meters::outcome;
use super::prepared;
use crate::egress::{Answer, EgressError};
use crate::store::{Notification, Recipient};
use crate::telemetry::OpenSpan;

/// Ends the span of an attempt. Of the callback it names the host at most (W-074).
pub(super) fn describe(
    mut span: OpenSpan,
    answer: &Result<Answer, EgressError>,
    recipient: &Recipient,
    notification: &Notification,
    number: u16,
) {
    span.note("http.request.method", || "POST");
    span.note("server.address", || host(recipient));
    span.note("websub.notification", || notification.id().to_string());
    span.note("websub.subscription", || recipient.id.0);
    span.note("websub.attempt", || number);
    span.note("websub.outcome", || outcome(answer));
    match answer {
        Ok(answer) => {
            span.note("http.response.status_code", || answer.status.as_u16());
            if !answer.status.is_success() {
                span.fail(|| answer.status.to_string());
            }
        }
        Err(error) => span.fail(|| error.to_string()),
    }
    span.end();
}

fn host(recipient: &Recipient) -> String {
    let callback = prepared::read(&recipient.callback).ok();
    callback.and_then(|callback| callback.url().host_str().map(str::to_owned)).unwrap_or_default()
}

//! What the buttons of the pages do.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;

use super::form::Form;
use super::{AdminState, failed, layout};
use crate::admin::{AdminService, By, Failed, Target, ToDeny};

pub(super) async fn command(State(state): State<AdminState>, form: Form) -> Response {
    let Some(act) = form.field("act") else {
        return layout::error(StatusCode::BAD_REQUEST, Some(&form.session), "This form names no command.");
    };
    match done(&state.service, act, &form).await {
        Ok(of) => {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("done", act)
                .append_pair("of", &of.to_string())
                .finish();
            Redirect::to(&format!("{}?{query}", place(act, &form))).into_response()
        }
        Err(error) => failed(&form.session, &error),
    }
}

/// Does it; how many subscriptions it concerned.
async fn done(service: &AdminService, act: &str, form: &Form) -> Result<usize, Failed> {
    let target = target_of(form)?;
    let by = By::Pages;
    match act {
        "retry" => Ok(service.retry(by, &target).await?.subscriptions),
        "replay" => Ok(service.replay(by, &target).await?.subscriptions),
        "skip" => Ok(service.skip(by, &target).await?.subscriptions),
        "pause" => service.pause(by, &target).await.map(|()| 0),
        "resume" => service.resume(by, &target).await.map(|()| 0),
        "deny" => {
            let reason = form.field("reason").unwrap_or_default().to_owned();
            let to_deny = ToDeny { ids: target.subscription.into_iter().collect(), topic: None, reason };
            match service.deny(by, to_deny).await?.denied {
                0 => Err(Failed::Unknown("subscription")),
                denied => Ok(denied),
            }
        }
        "address" => {
            let id = target.subscription.ok_or(Failed::Unknown("subscription"))?;
            service.replace_address(by, id).await.map(|_| 0)
        }
        "token revoke" => service.revoke_token(by, form.field("name").unwrap_or_default()).await.map(|()| 0),
        _ => Err(Failed::Asked("This form names no command.".to_owned())),
    }
}

fn target_of(form: &Form) -> Result<Target, Failed> {
    let number = |name: &str| match form.field(name).map(str::parse) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Failed::Asked(format!("{name} is a number"))),
    };
    let text = |name: &str| form.field(name).map(str::to_owned);
    let mut target = Target {
        topic: text("topic"),
        subscription: number("subscription")?,
        host: text("host"),
        from: number("from")?,
        since: text("since"),
    };
    if target.from.is_some() {
        target.since = None;
    }
    Ok(target)
}

/// The page that shows what has come of it.
fn place(act: &str, form: &Form) -> String {
    let topic =
        form.field("topic_id").filter(|id| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    match (act, form.field("subscription"), topic) {
        ("token revoke", ..) => "/publishers".to_owned(),
        ("deny", _, Some(topic)) | (_, None, Some(topic)) => format!("/topics/{topic}"),
        (_, Some(subscription), _) if act != "deny" => format!("/subscriptions/{subscription}"),
        _ => "/deliveries".to_owned(),
    }
}

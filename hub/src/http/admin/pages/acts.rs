//! What the buttons of the pages do.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;

use super::session::Form;
use super::{AdminState, failed, layout};
use crate::operator::{By, Desk, Failed, ToDeny, Wish};

pub(super) async fn act(State(state): State<AdminState>, form: Form) -> Response {
    let Some(act) = form.field("act") else {
        return layout::error(
            StatusCode::BAD_REQUEST,
            Some(&form.session),
            "This form does not say what to do.",
        );
    };
    match done(&state.desk, act, &form).await {
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
async fn done(desk: &Desk, act: &str, form: &Form) -> Result<usize, Failed> {
    let wish = wish(form)?;
    let by = By::Pages;
    match act {
        "retry" => Ok(desk.retry(by, &wish).await?.subscriptions),
        "replay" => Ok(desk.replay(by, &wish).await?.subscriptions),
        "skip" => Ok(desk.skip(by, &wish).await?.subscriptions),
        "pause" => desk.pause(by, &wish).await.map(|()| 0),
        "resume" => desk.resume(by, &wish).await.map(|()| 0),
        "deny" => {
            let reason = form.field("reason").unwrap_or_default().to_owned();
            let to_deny = ToDeny { ids: wish.subscription.into_iter().collect(), topic: None, reason };
            match desk.deny(by, to_deny).await?.denied {
                0 => Err(Failed::Unknown("subscription")),
                denied => Ok(denied),
            }
        }
        "address" => {
            let id = wish.subscription.ok_or(Failed::Unknown("subscription"))?;
            desk.replace_address(by, id).await.map(|_| 0)
        }
        "token revoke" => desk.revoke_token(by, form.field("name").unwrap_or_default()).await.map(|()| 0),
        _ => Err(Failed::Asked("This form does not say what to do.".to_owned())),
    }
}

fn wish(form: &Form) -> Result<Wish, Failed> {
    let number = |name: &str| match form.field(name).map(str::parse) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Failed::Asked(format!("{name} is a number"))),
    };
    let text = |name: &str| form.field(name).map(str::to_owned);
    let mut wish = Wish {
        topic: text("topic"),
        subscription: number("subscription")?,
        host: text("host"),
        from: number("from")?,
        since: text("since"),
    };
    if wish.from.is_some() {
        wish.since = None;
    }
    Ok(wish)
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

//! Publishers and their tokens.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::form::Form;
use super::layout::{self, Section, csrf_field};
use super::session::Session;
use super::table::{
    self,
    Head::{Row, Text},
};
use super::{AdminState, Notice, failed, moment};
use crate::admin::{By, NewPublisher, Publisher, ToAdd};

pub(super) async fn list(
    State(state): State<AdminState>,
    session: Session,
    Query(notice): Query<Notice>,
) -> Response {
    show(&state, &session, &notice.text())
}

/// The token is in this answer and nowhere else.
pub(super) async fn add(State(state): State<AdminState>, form: Form) -> Response {
    let prefixes = form.field("topic_prefixes").unwrap_or_default();
    let token = ToAdd {
        name: form.field("name").unwrap_or_default().to_owned(),
        topic_prefixes: prefixes.split_whitespace().map(str::to_owned).collect(),
    };
    match state.service.add_token(By::Pages, token).await {
        Ok(NewPublisher { name, token }) => {
            let notice = html! {
                div.notice.good role="status" {
                    p { strong { "The token of " (name) ": " } "it is shown only once." }
                    p { code.token { (token) } }
                }
            };
            show(&state, &form.session, &notice)
        }
        Err(error) => failed(&form.session, &error),
    }
}

fn show(state: &AdminState, session: &Session, notice: &Markup) -> Response {
    match state.service.publishers() {
        Ok(publishers) => {
            let content = html! {
                h1 { "Publishers" }
                (notice)
                @if state.service.open { p.notice.warn { "This hub is open: anybody may post (" code { "[publish] policy" } "). Tokens still free pings from their limits." } }
                (tokens(session, &publishers))
                (new(session))
            };
            layout::page(session, Section::Publishers, "Publishers", &content)
        }
        Err(error) => failed(session, &error),
    }
}

fn tokens(session: &Session, publishers: &[Publisher]) -> Markup {
    html! {
        section aria-labelledby="tokens" {
            h2 id="tokens" { "Tokens" }
            @if publishers.is_empty() {
                p.empty { "There are none." }
            } @else {
                (table::wide("tokens", [Row("Name"), Text("May speak for"), Text("Made"), Text("Used last"), Text("What to do")], publishers.iter().map(|one| [
                    html! { (one.name) },
                    html! { ul.plain { @for prefix in &one.topic_prefixes { li.url { (prefix) } } } },
                    moment(&one.created_at),
                    html! { @match &one.last_used { Some(used) => (moment(used)), None => "never" } },
                    html! {
                        details.danger {
                            summary aria-label={ "Revoke " (one.name) } { "Revoke …" }
                            form method="post" action="/act" {
                                (csrf_field(session))
                                input type="hidden" name="act" value="token revoke";
                                input type="hidden" name="name" value=(one.name);
                                button.danger.small { "Revoke it now" }
                            }
                        }
                    },
                ])))
            }
        }
    }
}

fn new(session: &Session) -> Markup {
    html! {
        section aria-labelledby="new" {
            h2 id="new" { "A new token" }
            form.stack method="post" action="/publishers" {
                (csrf_field(session))
                label for="name" { "Name" }
                input id="name" name="name" required maxlength="100" autocomplete="off";
                label for="prefixes" { "Topics that begin like" }
                textarea id="prefixes" name="topic_prefixes" rows="3" required placeholder="https://library.example/set1/" {}
                p.hint { "An origin and a folder, one on each line." }
                button { "Make a token" }
            }
        }
    }
}

//! The audit log: who did what, how they came in, and what came of it.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{self, Section};
use super::session::Session;
use super::table::{
    self,
    Head::{Row, Text},
};
use super::{AdminState, failed, moment, more};
use crate::admin::{By, Entry, Page, PageRequest};

pub(super) async fn list(
    State(state): State<AdminState>,
    session: Session,
    Query(page): Query<PageRequest>,
) -> Response {
    match state.service.audit_entries(&page).await {
        Ok(page) => layout::page(&session, Section::Audit, "Audit log", &all(&page)),
        Err(error) => failed(&session, &error),
    }
}

fn all(page: &Page<Entry>) -> Markup {
    html! {
        h1 { "Audit log" }
        p { "What operators did, newest first. Each command is recorded before it is carried out." }
        @if page.items.is_empty() {
            p.empty { "Nothing yet." }
        } @else {
            (table::wide("acts", [Text("When"), Text("By"), Row("What"), Text("About"), Text("Result")], page.items.iter().map(|one| [
                moment(&one.at),
                html! { (way_in(one.by)) },
                html! { (one.act) },
                html! { @if !one.what.is_empty() { span.about { (one.what) } } },
                html! { @match &one.outcome { Some(outcome) => span.about { (outcome) }, None => span.tag.warn { "not known" } } },
            ])))
            (more(page.next.as_ref(), "/audit"))
        }
    }
}

fn way_in(by: By) -> &'static str {
    match by {
        By::Api => "API",
        By::Pages => "pages",
        By::Files => "command line",
    }
}

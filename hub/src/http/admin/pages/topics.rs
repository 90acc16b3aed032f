//! Topics: all of them, and one with its log and its subscribers.

use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{self, Room, word};
use super::session::Session;
use super::table::{
    self,
    Head::{Number, Text},
};
use super::{AdminState, Notice, card, failed, moment, more};
use crate::admin::{Chain, LogEntry, Page, PageRequest, Size, Subscription, Topic, TopicDetail, counted};

/// Subscriptions of a page.
const SUBSCRIBERS: usize = 50;

pub(super) async fn list(
    State(state): State<AdminState>,
    session: Session,
    Query(page): Query<PageRequest>,
) -> Response {
    match state.service.topics(&page).await {
        Ok(page) => layout::page(&session, Room::Topics, "Topics", &all(&page)),
        Err(error) => failed(&session, &error),
    }
}

fn all(page: &Page<Topic>) -> Markup {
    html! {
        h1 { "Topics" }
        @if page.items.is_empty() {
            p.empty { "There are no topics yet: nobody has published or subscribed." }
        } @else {
            (table::wide("topics", &[Text("Topic"), Text("Content"), Number("Newest"), Text("State")], &html! {
                @for topic in &page.items {
                    tr {
                        th scope="row" { a.url href={ "/topics/" (topic.id) } { (topic.url) } }
                        td { (kind(topic)) }
                        td.number { (topic.head) }
                        td { (state_of(topic)) }
                    }
                }
            }))
            (more(page.next.as_ref(), "/topics"))
        }
    }
}

fn kind(topic: &Topic) -> &'static str {
    match (topic.kind, topic.chain.is_some()) {
        (_, true) => "Change Notifications",
        ("posted", _) => "posted",
        ("fetched", _) => "fetched after pings",
        ("both", _) => "posted and fetched",
        _ => "none yet",
    }
}

fn state_of(topic: &Topic) -> Markup {
    let broken = topic.chain.as_ref().map_or(0, |chain| chain.broken);
    html! {
        @if topic.paused { span.tag.warn { "paused" } " " }
        @if broken > 0 { span.tag.warn { (counted(broken, "break", "breaks")) } " " }
        @if !topic.paused && broken == 0 { span.tag.good { "flows" } }
    }
}

pub(super) async fn show(
    State(state): State<AdminState>,
    session: Session,
    Path(id): Path<String>,
    (Query(page), Query(notice)): (Query<PageRequest>, Query<Notice>),
) -> Response {
    let page = PageRequest { limit: Some(SUBSCRIBERS), ..page };
    let found = async {
        let topic = state.service.topic(&id).await?;
        Ok((topic, state.service.subscriptions(Some(&id), &page).await?))
    };
    match found.await {
        Ok((topic, subscribers)) => layout::page(
            &session,
            Room::Topics,
            &topic.topic.url,
            &one(&session, &topic, &subscribers, &notice),
        ),
        Err(error) => failed(&session, &error),
    }
}

fn one(session: &Session, detail: &TopicDetail, subscribers: &Page<Subscription>, notice: &Notice) -> Markup {
    let topic = &detail.topic;
    html! {
        p.crumb { a href="/topics" { "Topics" } }
        h1.url { (topic.url) }
        (notice.text())
        @if topic.paused { p.notice.warn { strong { "Paused: " } "posts are accepted, but nothing is delivered. Retention still removes old notifications." } }
        dl.cards {
            (card("Subscriptions", detail.subscriptions, "in force"))
            (card("Late", detail.laggards, "behind the others"))
            (card("Log", format!("{} to {}", topic.first, topic.head), "oldest and newest notification"))
            (card("Content", kind(topic), ""))
        }
        (commands(session, topic))
        @if let Some(chain) = &topic.chain { (gaps(chain)) }
        (people(detail))
        (log(&detail.log))
        (subscriptions(topic, subscribers))
    }
}

fn commands(session: &Session, topic: &Topic) -> Markup {
    let about = html! {
        (word(session))
        input type="hidden" name="topic" value=(topic.url);
        input type="hidden" name="topic_id" value=(topic.id);
    };
    let (act, name) =
        if topic.paused { ("resume", "Resume deliveries") } else { ("pause", "Pause deliveries") };
    html! {
        section aria-labelledby="acts" {
            h2 id="acts" { "What to do" }
            div.acts {
                form method="post" action="/act" { (about) input type="hidden" name="act" value=(act); button { (name) } }
                form method="post" action="/act" { (about) input type="hidden" name="act" value="retry"; button { "Retry all that is late" } }
                details {
                    summary { "Replay to all subscribers …" }
                    form method="post" action="/act" {
                        (about) input type="hidden" name="act" value="replay";
                        label for="from" { "From notification" }
                        input id="from" name="from" type="number" min=(topic.first) max=(topic.head) value=(topic.head) required;
                        p.hint { "All notifications in the log from this one on are delivered to all subscribers again, with the same ids." }
                        button { "Replay" }
                    }
                }
            }
        }
    }
}

fn gaps(chain: &Chain) -> Markup {
    html! {
        section aria-labelledby="gaps" {
            h2 id="gaps" { "Chain of Change Notifications" }
            @if chain.broken == 0 {
                p.empty { "Each one starts where the one before it ended. The next has to start at " (moment(&chain.until)) "." }
            } @else {
                p { "It was broken " (counted(chain.broken, "time", "times")) ", newest first:" }
                (table::wide("breaks", &[Text("Before"), Text("What"), Text("The one before ended"), Text("It starts")], &html! {
                    @for one in chain.breaks.iter().rev() {
                        tr { th scope="row" { code { (one.notification) } } td { (one.kind) } td { (moment(&one.ended)) } td { (moment(&one.started)) } }
                    }
                }))
            }
        }
    }
}

fn people(detail: &TopicDetail) -> Markup {
    html! {
        section aria-labelledby="people" {
            h2 id="people" { "Who may publish" }
            @if detail.open {
                p.notice.warn { "Anybody: this hub is open (" code { "[publish] policy" } ")." }
            } @else if detail.publishers.is_empty() {
                p.empty { "Nobody: no token covers this topic. " a href="/publishers" { "Make one" } }
            } @else {
                ul.names { @for name in &detail.publishers { li { (name) } } }
            }
        }
    }
}

fn log(log: &[LogEntry]) -> Markup {
    html! {
        section aria-labelledby="log" {
            h2 id="log" { "Log" }
            @if log.is_empty() {
                p.empty { "It holds nothing." }
            } @else {
                (table::wide("log", &[Number("Number"), Text("Came in"), Text("How"), Text("Type"), Number("Size")], &html! {
                    @for entry in log {
                        tr { th.number scope="row" { (entry.offset) } td { (moment(&entry.received_at)) } td { (entry.kind) } td { code { (entry.content_type) } } td.number { (Size(entry.bytes as u64)) } }
                    }
                }))
            }
        }
    }
}

fn subscriptions(topic: &Topic, page: &Page<Subscription>) -> Markup {
    html! {
        section aria-labelledby="subscribers" {
            h2 id="subscribers" { "Subscribers" }
            @if page.items.is_empty() {
                p.empty { "Nobody is subscribed." }
            } @else {
                (table::wide("subscribers", &[Number("Number"), Text("Host of the callback"), Text("Lease until")], &html! {
                    @for one in &page.items {
                        tr { th.number scope="row" { a href={ "/subscriptions/" (one.id) } { (one.id) } } td { span.url { (one.callback_origin) } } td { (moment(&one.lease_end)) } }
                    }
                }))
                (more(page.next.as_ref(), &format!("/topics/{}", topic.id)))
            }
        }
    }
}

//! Topics: all of them, and one with its log and its subscribers.

use axum::extract::{Path, Query, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{self, Section, csrf_field};
use super::session::Session;
use super::table::{
    self,
    Head::{Number, Row, RowNumber, Text},
};
use super::{
    AdminState, Notice, card, failed, moment, more, notification_link, query, search, subscriptions, text_of,
};
use crate::admin::{
    Chain, LogEntry, PageRequest, Size, SubscriptionPage, SubscriptionsRequest, Topic, TopicDetail,
    TopicOrder, TopicPage, TopicRow, TopicsRequest, counted,
};

const PATH: &str = "/topics";

/// Which topics a link names.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    after: Option<String>,
    q: Option<String>,
    sort: Option<String>,
}

pub(super) async fn list(
    State(state): State<AdminState>,
    session: Session,
    Query(Wanted { after, q, sort }): Query<Wanted>,
) -> Response {
    let Some((sort, ..)) = ORDERS.into_iter().find(|(_, name, _)| *name == sort.as_deref()) else {
        let why = "Topics are sorted by newest (without sort), subscribers or url.";
        return layout::error(StatusCode::BAD_REQUEST, Some(&session), why);
    };
    let request = TopicsRequest { after, q: text_of(q), sort };
    match state.service.topic_page(&request).await {
        Ok(page) => layout::page(&session, Section::Topics, "Topics", &all(&request, &page)),
        Err(error) => failed(&session, &error),
    }
}

fn all(request: &TopicsRequest, page: &TopicPage) -> Markup {
    let text = request.q.as_deref();
    let path = |sort| query(PATH, [("q", text), ("sort", sort)]);
    let order = ORDERS.into_iter().find(|(sort, ..)| *sort == request.sort).and_then(|(_, name, _)| name);
    html! {
        h1 { "Topics" }
        (search(PATH, "Part of the URL", text))
        nav.choice aria-label="Order" {
            ul { @for (sort, value, name) in ORDERS { li { a href=(path(value)) aria-current=[(sort == request.sort).then_some("true")] { (name) } } } }
        }
        @if page.unknown > 0 {
            p.notice.warn { "The logs of " (counted(page.unknown, "topic", "topics")) " have not been read yet: these stand last. Reload the page to read more." }
        }
        @if page.rows.is_empty() {
            p.empty { @if text.is_some() { "No topic has this in its URL." } @else { "There are no topics yet: nobody has published or subscribed." } }
        } @else {
            (table::wide("topics", [Row("Topic"), Text("Last notification"), Number("Its number"), Number("Subscribers"), Text("Content"), Text("State")], page.rows.iter().map(row)))
            (more(page.next.as_ref(), &path(order)))
        }
    }
}

const ORDERS: [(TopicOrder, Option<&str>, &str); 3] = [
    (TopicOrder::Newest, None, "Newest first"),
    (TopicOrder::Subscribers, Some("subscribers"), "Most subscribers first"),
    (TopicOrder::Url, Some("url"), "By URL"),
];

fn row(row: &TopicRow) -> [Markup; 6] {
    let topic = &row.topic;
    [
        html! { a.url href={ "/topics/" (topic.id) } { (topic.url) } },
        html! {
            @match &row.last_received_at {
                Some(at) => (moment(at)),
                None => { @if topic.head == 0 { "none yet" } @else { "no longer in the log" } }
            }
        },
        html! { (topic.head) },
        html! { (row.subscriptions) },
        html! { (kind(topic)) },
        state_of(topic),
    ]
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
    let page = SubscriptionsRequest { after: page.after, ..SubscriptionsRequest::default() };
    let found = async {
        let topic = state.service.topic(&id).await?;
        Ok((topic, state.service.subscription_page(Some(&id), &page).await?))
    };
    match found.await {
        Ok((topic, subscribers)) => layout::page(
            &session,
            Section::Topics,
            &topic.topic.url,
            &one(&session, &topic, &subscribers, &notice),
        ),
        Err(error) => failed(&session, &error),
    }
}

fn one(session: &Session, detail: &TopicDetail, subscribers: &SubscriptionPage, notice: &Notice) -> Markup {
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
        (log(topic, &detail.log))
        (self::subscribers(topic, subscribers))
    }
}

fn commands(session: &Session, topic: &Topic) -> Markup {
    let about = html! {
        (csrf_field(session))
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
                (table::wide("breaks", [Row("Before"), Text("What"), Text("The one before ended"), Text("It starts")], chain.breaks.iter().rev().map(|one| [
                    notification_link(&one.notification),
                    html! { (one.kind) },
                    moment(&one.ended),
                    moment(&one.started),
                ])))
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

fn log(topic: &Topic, log: &[LogEntry]) -> Markup {
    html! {
        section aria-labelledby="log" {
            h2 id="log" { "Log" }
            @if log.is_empty() {
                p.empty { "It holds nothing." }
            } @else {
                (table::wide("log", [RowNumber("Number"), Text("Came in"), Text("How"), Text("Type"), Number("Size")], log.iter().map(|entry| [
                    html! { a href={ "/topics/" (topic.id) "/notifications/" (entry.offset) } { (entry.offset) } },
                    moment(&entry.received_at),
                    html! { (entry.kind) },
                    html! { code { (entry.content_type) } },
                    html! { (Size(entry.bytes as u64)) },
                ])))
            }
        }
    }
}

fn subscribers(topic: &Topic, page: &SubscriptionPage) -> Markup {
    html! {
        section aria-labelledby="subscribers" {
            h2 id="subscribers" { "Subscribers" }
            @if page.rows.is_empty() {
                p.empty { "Nobody is subscribed." }
            } @else {
                (subscriptions::rows(&page.rows, false))
                (more(page.next.as_ref(), &format!("/topics/{}", topic.id)))
            }
        }
    }
}

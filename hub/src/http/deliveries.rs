//! The operator's view of deliveries, and what may be done about them: lists in pages; retry, skip, replay, pause, resume.

use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, NotificationId, TopicUrl};
use serde::{Deserialize, Serialize};
use tracing::info;

use super::admin::AdminState;
use super::reply::{json, refuse, unavailable};
use crate::delivery::{Act, LateSubscription, OpenHost, Stopped, Which};
use crate::store::{Gap, Offset, Shard, Skip, Store, StoreError, SubscriptionId, TopicId};

/// The most entries of one page, and how many there are without a wish.
const LONGEST_PAGE: usize = 1_000;
const USUAL_PAGE: usize = 100;

/// Why an operator does not get what was asked for.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Asked(&'static str),
    #[error("no such {0}")]
    Unknown(&'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A list in pages: `next` is the `after` of the next one.
#[derive(Debug, Serialize)]
struct Page<T> {
    items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Turn {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct LateView {
    subscription: u64,
    topic: String,
    callback_origin: String,
    /// The next notification that is owed, if any is.
    #[serde(skip_serializing_if = "Option::is_none")]
    owed: Option<String>,
    /// How many are owed.
    behind: u64,
    attempts: u16,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<String>,
    /// Seconds; without it, it is under way or waits for its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_in: Option<u64>,
    paused: bool,
}

#[derive(Debug, Serialize)]
struct HostView {
    origin: String,
    /// Seconds until one request asks how it is.
    left_alone_for: u64,
    subscriptions_waiting: usize,
}

#[derive(Debug, Serialize)]
struct SkipView {
    notification: String,
    subscription: u64,
    at: String,
    class: String,
    status: Option<u16>,
}

#[derive(Debug, Serialize)]
struct GapView {
    /// The first notification that is lost.
    first: String,
    /// The offset of the last one.
    last: u64,
    subscription: u64,
    at: String,
}

#[derive(Debug, Serialize)]
struct Done {
    subscriptions: usize,
}

/// Whom and what an act is about.
#[derive(Debug, Deserialize)]
struct Wish {
    topic: Option<String>,
    subscription: Option<u64>,
    host: Option<String>,
    /// An offset.
    from: Option<u64>,
    /// A moment.
    since: Option<String>,
}

pub(super) fn routes() -> Router<AdminState> {
    Router::new()
        .route("/laggards", get(laggards))
        .route("/skips", get(skips))
        .route("/gaps", get(gaps))
        .route("/hosts", get(hosts))
        .route("/paused", get(paused))
        .route("/retry", post(retry))
        .route("/skip", post(skip))
        .route("/replay", post(replay))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
}

async fn laggards(State(state): State<AdminState>, Query(turn): Query<Turn>) -> Response {
    let listed = async {
        let after = turn.after.as_deref().map(parse_late).transpose()?;
        let limit = turn.limit();
        let found = state.operator.late(after, limit).await?;
        let next = found.last().filter(|_| found.len() == limit);
        let next = next.map(|late| format!("{:016x}.{}", late.topic.0, late.subscription.0));
        Ok(Page { items: found.into_iter().map(LateView::from).collect(), next })
    };
    answer(listed.await)
}

/// Notifications that were given up for a subscription.
async fn skips(State(state): State<AdminState>, Query(turn): Query<Turn>) -> Response {
    let listed = async {
        let after = turn.after.as_deref().map(parse_skip).transpose()?;
        let limit = turn.limit();
        let (from, mut after) = after.map_or((0, None), |(shard, after)| (shard.0, Some(after)));
        let (mut items, mut next) = (Vec::new(), None);
        for shard in (from..state.store.shards()).map(Shard) {
            for skip in state.store.skips(shard, after.take(), limit - items.len()).await? {
                let Skip { topic, offset, subscription, .. } = skip;
                next = Some(format!("{}.{:016x}.{}.{}", shard.0, topic.0, offset.0, subscription.0));
                items.push(SkipView::from(skip));
            }
            if items.len() == limit {
                break;
            }
        }
        let next = next.filter(|_| items.len() == limit);
        Ok(Page { items, next })
    };
    answer(listed.await)
}

/// Notifications that were gone before a subscription got them.
async fn gaps(State(state): State<AdminState>, Query(turn): Query<Turn>) -> Response {
    let listed = async {
        let after = turn.after.as_deref().map(parse_gap).transpose()?;
        let found = state.store.gaps(after, turn.limit()).await?;
        let next = found.last().filter(|_| found.len() == turn.limit()).map(|gap| {
            let Gap { topic, subscription, from, at, .. } = gap;
            format!("{}.{:016x}.{}.{}", at.unix_millis(), topic.0, from.0, subscription.0)
        });
        Ok(Page { items: found.into_iter().map(GapView::from).collect(), next })
    };
    answer(listed.await)
}

async fn hosts(State(state): State<AdminState>) -> Response {
    let view = |hosts: Vec<OpenHost>| hosts.into_iter().map(HostView::from).collect::<Vec<_>>();
    answer(state.operator.open_hosts().await.map(view).map_err(Failed::from))
}

async fn paused(State(state): State<AdminState>) -> Response {
    let listed = async {
        let paused = state.store.paused().await?;
        let topics = state.store.topics().await?.into_iter().filter(|topic| paused.contains(&topic.id));
        Ok(topics.map(|topic| topic.url.as_str().to_owned()).collect::<Vec<_>>())
    };
    answer(listed.await)
}

async fn retry(State(state): State<AdminState>, Query(wish): Query<Wish>) -> Response {
    let done = async {
        let which = match (&wish.topic, wish.subscription, &wish.host) {
            (Some(topic), None, None) => Which::Topic(find(&state, topic).await?),
            (None, Some(id), None) => Which::Subscription(in_force(&state, SubscriptionId(id)).await?.1),
            (None, None, Some(origin)) => Which::Host(known_host(&state, origin).await?),
            _ => return Err(Failed::Asked("name one: ?topic=URL, ?subscription=ID or ?host=ORIGIN")),
        };
        act(&state, Act::Retry(which)).await
    };
    answer(done.await)
}

async fn skip(State(state): State<AdminState>, Query(wish): Query<Wish>) -> Response {
    let done = async {
        let id = wish.subscription.ok_or(Failed::Asked("name it: ?subscription=ID"))?;
        let done = act(&state, Act::Skip(SubscriptionId(id))).await?;
        if done.subscriptions == 0 {
            return Err(Failed::Unknown("late subscription, or its delivery is under way: try again"));
        }
        Ok(done)
    };
    answer(done.await)
}

async fn replay(State(state): State<AdminState>, Query(wish): Query<Wish>) -> Response {
    let done = async {
        let subscription = wish.subscription.map(SubscriptionId);
        let topic = match (&wish.topic, subscription) {
            (Some(topic), None) => find(&state, topic).await?,
            (None, Some(id)) => in_force(&state, id).await?.0,
            _ => return Err(Failed::Asked("name one: ?topic=URL or ?subscription=ID")),
        };
        let from = match (wish.from, &wish.since) {
            (Some(offset), None) => Offset(offset).max(first(&*state.store, topic).await?),
            (None, Some(since)) => {
                let since = since
                    .parse()
                    .map_err(|_| Failed::Asked("since is a moment like 2026-01-31T12:00:00Z"))?;
                state.store.first_since(topic, since).await?
            }
            _ => return Err(Failed::Asked("say where it begins: &from=OFFSET or &since=TIME")),
        };
        act(&state, Act::Replay { topic, subscription, from }).await
    };
    answer(done.await)
}

async fn pause(State(state): State<AdminState>, Query(wish): Query<Wish>) -> Response {
    let done = async {
        let topic = named(&state, &wish).await?;
        info!(topic = format!("{:016x}", topic.0), "operator: topic paused");
        Ok(state.store.pause(topic).await?)
    };
    answer(done.await)
}

async fn resume(State(state): State<AdminState>, Query(wish): Query<Wish>) -> Response {
    let done = async {
        let topic = named(&state, &wish).await?;
        info!(topic = format!("{:016x}", topic.0), "operator: topic resumed");
        Ok(state.store.resume(topic).await?)
    };
    answer(done.await)
}

async fn act(state: &AdminState, act: Act) -> Result<Done, Failed> {
    let subscriptions = state.operator.act(&act).await?;
    info!(?act, subscriptions, "operator");
    Ok(Done { subscriptions })
}

/// A subscription with its topic.
async fn in_force(state: &AdminState, id: SubscriptionId) -> Result<(TopicId, SubscriptionId), Failed> {
    let topic = state.operator.topic_of(id).await?.ok_or(Failed::Unknown("subscription"))?;
    Ok((topic, id))
}

/// An origin of subscriptions, however it is spelled.
async fn known_host(state: &AdminState, origin: &str) -> Result<String, Failed> {
    let url = CallbackUrl::parse(origin)
        .map_err(|_| Failed::Asked("the host is an origin like https://destination.example"))?;
    let origin = url.origin();
    let known = state.operator.knows_host(&origin).await?;
    known.then_some(origin).ok_or(Failed::Unknown("host of a subscription"))
}

async fn named(state: &AdminState, wish: &Wish) -> Result<TopicId, Failed> {
    find(state, wish.topic.as_deref().ok_or(Failed::Asked("name it: ?topic=URL"))?).await
}

async fn find(state: &AdminState, url: &str) -> Result<TopicId, Failed> {
    let url = TopicUrl::parse(url).map_err(|_| Failed::Asked("the topic is no http(s) URL"))?;
    Ok(state.store.topic(&url).await?.ok_or(Failed::Unknown("topic"))?.id)
}

/// Where the log begins: what retention removed cannot be delivered once more, and nobody has lost it for want of that.
async fn first(store: &dyn Store, topic: TopicId) -> Result<Offset, StoreError> {
    let bounds = store.topics().await?.into_iter().find(|found| found.id == topic);
    Ok(bounds.map_or(Offset(0), |bounds| bounds.first))
}

impl Turn {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(USUAL_PAGE).clamp(1, LONGEST_PAGE)
    }
}

const NO_PLACE: Failed = Failed::Asked("after is what the page before said in next");

fn parse_late(after: &str) -> Result<(TopicId, SubscriptionId), Failed> {
    let NotificationId { topic, offset } = after.parse().map_err(|_| NO_PLACE)?;
    Ok((TopicId(topic), SubscriptionId(offset)))
}

fn parse_skip(after: &str) -> Result<(Shard, (TopicId, Offset, SubscriptionId)), Failed> {
    let (shard, rest) = after.split_once('.').ok_or(NO_PLACE)?;
    let (notification, subscription) = rest.rsplit_once('.').ok_or(NO_PLACE)?;
    let NotificationId { topic, offset } = notification.parse().map_err(|_| NO_PLACE)?;
    let shard = Shard(shard.parse().map_err(|_| NO_PLACE)?);
    let subscription = SubscriptionId(subscription.parse().map_err(|_| NO_PLACE)?);
    Ok((shard, (TopicId(topic), Offset(offset), subscription)))
}

fn parse_gap(after: &str) -> Result<Gap, Failed> {
    let (at, rest) = after.split_once('.').ok_or(NO_PLACE)?;
    let (first, subscription) = rest.rsplit_once('.').ok_or(NO_PLACE)?;
    let NotificationId { topic, offset } = first.parse().map_err(|_| NO_PLACE)?;
    let at = at.parse().ok().and_then(|millis| DateTime::from_unix_millis(millis).ok()).ok_or(NO_PLACE)?;
    let subscription = SubscriptionId(subscription.parse().map_err(|_| NO_PLACE)?);
    let from = Offset(offset);
    Ok(Gap { topic: TopicId(topic), subscription, from, to: from, at })
}

impl From<LateSubscription> for LateView {
    fn from(late: LateSubscription) -> Self {
        Self {
            subscription: late.subscription.0,
            topic: format!("{:016x}", late.topic.0),
            callback_origin: late.origin,
            owed: (late.cursor < late.head)
                .then(|| NotificationId { topic: late.topic.0, offset: late.cursor.next().0 }.to_string()),
            behind: late.head.0.saturating_sub(late.cursor.0),
            attempts: late.attempts,
            class: format!("{:?}", late.class).to_lowercase(),
            failing_since: late.failing_since.map(|since| since.to_string()),
            next_attempt_in: late.next_attempt_in.map(|pause| pause.as_secs()),
            paused: late.paused,
        }
    }
}

impl From<OpenHost> for HostView {
    fn from(host: OpenHost) -> Self {
        Self {
            origin: host.origin,
            left_alone_for: host.for_another.as_secs(),
            subscriptions_waiting: host.waiting,
        }
    }
}

impl From<Gap> for GapView {
    fn from(gap: Gap) -> Self {
        Self {
            first: NotificationId { topic: gap.topic.0, offset: gap.from.0 }.to_string(),
            last: gap.to.0,
            subscription: gap.subscription.0,
            at: gap.at.to_string(),
        }
    }
}

impl From<Skip> for SkipView {
    fn from(skip: Skip) -> Self {
        Self {
            notification: NotificationId { topic: skip.topic.0, offset: skip.offset.0 }.to_string(),
            subscription: skip.subscription.0,
            at: skip.at.to_string(),
            class: format!("{:?}", skip.class).to_lowercase(),
            status: skip.status,
        }
    }
}

fn answer<T: Serialize>(answer: Result<T, Failed>) -> Response {
    match answer {
        Ok(value) => json(StatusCode::OK, &value),
        Err(error @ Failed::Asked(_)) => refuse(StatusCode::BAD_REQUEST, error),
        Err(error @ Failed::Unknown(_)) => refuse(StatusCode::NOT_FOUND, error),
        Err(Failed::Store(error)) => unavailable(&error),
        Err(error @ Failed::Stopped(_)) => refuse(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

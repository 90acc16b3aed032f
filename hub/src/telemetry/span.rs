//! Spans: what the hub does for a notification, recorded if a collector is configured and the trace is sampled.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;
use uuid::Uuid;

use super::meters::{SpanResult, TraceMeters};
use crate::trace_context::TraceContext;

/// So many different values have the last seven bytes of a random UUID.
const RANDOM: u64 = 1 << 56;

/// Begins spans. Without a collector it records nothing, and costs next to nothing.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

#[derive(Debug)]
struct Recorder {
    /// Of [`RANDOM`] draws so many choose a trace.
    below: u64,
    queue: mpsc::Sender<Span>,
    meters: TraceMeters,
}

/// Which side of a request a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// No request.
    Internal,
    /// The hub answers.
    Server,
    /// The hub asks.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(u64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

/// A span for the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) context: TraceContext,
    pub(super) parent: Option<TraceContext>,
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
    pub(super) begun: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) failure: Option<String>,
}

impl Tracer {
    /// Records this share of requests, from 0 to 1, into the queue. If the queue is full, spans are dropped and counted.
    pub(super) fn recording(ratio: f64, queue: mpsc::Sender<Span>, meters: TraceMeters) -> Self {
        Self(Some(Arc::new(Recorder { below: share(ratio), queue, meters })))
    }

    /// Begins the span of a request that came in with this context, or begins a trace where it came with none. Here is chosen
    /// whether it is recorded, with all that follows from the request. Whoever says that its trace is not sampled is heeded; for all
    /// others a draw decides, which no id that they choose can sway.
    pub fn begin(&self, from: Option<TraceContext>, name: &'static str, kind: SpanKind) -> OpenSpan {
        let sampled = from.is_none_or(TraceContext::is_sampled);
        match self.0.as_ref().filter(|recorder| sampled && recorder.draws()) {
            Some(recorder) => {
                let context = from.map_or_else(TraceContext::begin, TraceContext::child).recorded();
                OpenSpan::recorded(recorder, context, from, name, kind)
            }
            None => OpenSpan::unrecorded(from),
        }
    }

    /// Begins a child span; without a parent there is no trace.
    pub fn begin_below(&self, above: Option<TraceContext>, name: &'static str, kind: SpanKind) -> OpenSpan {
        let recorder = self.0.as_ref();
        match recorder.zip(above).filter(|(_, above)| above.is_recorded()) {
            Some((recorder, above)) => OpenSpan::recorded(recorder, above.child(), Some(above), name, kind),
            None => OpenSpan::unrecorded(above),
        }
    }
}

impl Recorder {
    fn draws(&self) -> bool {
        Uuid::new_v4().as_u128() % u128::from(RANDOM) < u128::from(self.below)
    }

    fn put(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.meters.count(SpanResult::Dropped, 1);
        }
    }
}

/// A share of [`RANDOM`].
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "2^56 is exact, and a ratio that lies between 0 and 1 gives nothing above it"
)]
fn share(ratio: f64) -> u64 {
    (ratio * RANDOM as f64) as u64
}

/// A span under way. One that is dropped before it ends is not exported.
#[derive(Debug)]
pub struct OpenSpan {
    context: Option<TraceContext>,
    recorded: Option<Box<Recorded>>,
}

#[derive(Debug)]
struct Recorded {
    span: Span,
    recorder: Arc<Recorder>,
}

impl OpenSpan {
    fn unrecorded(context: Option<TraceContext>) -> Self {
        Self { context, recorded: None }
    }

    fn recorded(
        recorder: &Arc<Recorder>,
        context: TraceContext,
        parent: Option<TraceContext>,
        name: &'static str,
        kind: SpanKind,
    ) -> Self {
        let (begun, attributes) = (SystemTime::now(), Vec::new());
        let span = Span { context, parent, name, kind, begun, ended: begun, attributes, failure: None };
        let recorder = Arc::clone(recorder);
        Self { context: Some(context), recorded: Some(Box::new(Recorded { span, recorder })) }
    }

    /// A span below this one.
    #[must_use]
    pub fn child(&self, name: &'static str, kind: SpanKind) -> Self {
        match (&self.recorded, self.context) {
            (Some(recorded), Some(above)) => {
                Self::recorded(&recorded.recorder, above.child(), Some(above), name, kind)
            }
            _ => Self::unrecorded(self.context),
        }
    }

    /// The context of what follows: this span, or its parent if this one is not recorded.
    pub fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// The context for a request within this span: an id of its own, also if it is not recorded.
    pub fn passed_on(&self) -> Option<TraceContext> {
        if self.recorded.is_some() { self.context } else { self.context.map(TraceContext::child) }
    }

    /// Adds an attribute. The value is made only if the span is recorded.
    pub fn note<V: Into<Value>>(&mut self, name: &'static str, value: impl FnOnce() -> V) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.attributes.push((name, value().into()));
        }
    }

    /// Says that it failed, and why.
    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.failure = Some(why());
        }
    }

    /// Ends it as this has ended.
    pub fn end_with<T, E: std::fmt::Display>(mut self, result: &Result<T, E>) {
        if let Err(error) = result {
            self.fail(|| error.to_string());
        }
        self.end();
    }

    /// Ends it, to be exported.
    pub fn end(self) {
        if let Some(recorded) = self.recorded {
            let Recorded { mut span, recorder } = *recorded;
            // A clock that was set back makes no negative times.
            span.ended = SystemTime::now().max(span.begun);
            recorder.put(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn context(value: &str) -> Option<TraceContext> {
        TraceContext::parse(value.as_bytes())
    }

    fn recording(ratio: f64, room: usize) -> (Tracer, mpsc::Receiver<Span>, TraceMeters) {
        let ((queue, spans), meters) = (mpsc::channel(room), TraceMeters::default());
        (Tracer::recording(ratio, queue, meters.clone()), spans, meters)
    }

    #[test]
    fn without_a_collector_a_trace_goes_on_and_none_begins() {
        let tracer = Tracer::default();
        let none = tracer.begin(None, "publish", SpanKind::Server);
        assert_eq!((none.context(), none.passed_on()), (None, None));
        let mut span = tracer.begin(context(VALUE), "publish", SpanKind::Server);
        span.note("id", || -> String { unreachable!("nobody reads it") });
        span.fail(|| unreachable!("nobody reads it"));
        assert!(span.recorded.is_none(), "nothing is put aside for it");
        assert_eq!(span.context(), context(VALUE), "what follows is a child of the publisher's span");
        let [first, second] = [span.passed_on().unwrap(), span.passed_on().unwrap()];
        assert_eq!(first.trace(), second.trace());
        assert_ne!(first.span(), second.span());
        assert_ne!(first.span(), span.context().unwrap().span());
    }

    #[test]
    fn recorded_spans_are_children_of_each_other_and_what_does_not_end_is_not_told() {
        let (tracer, mut spans, _) = recording(1.0, 8);
        let mut publish = tracer.begin(context(VALUE), "publish", SpanKind::Server);
        let append = publish.child("append", SpanKind::Internal);
        publish.note("answer", || "yes");
        publish.fail(|| "why".to_owned());
        assert_eq!(append.passed_on(), append.context(), "it has an id of its own already");
        drop(publish.child("given up", SpanKind::Internal));
        append.end();
        publish.end();
        let [append, publish] = [spans.try_recv().unwrap(), spans.try_recv().unwrap()];
        assert_eq!((publish.parent, append.parent), (context(VALUE), Some(publish.context)));
        assert_eq!(publish.attributes, [("answer", Value::from("yes"))]);
        assert_eq!((publish.name, publish.failure.as_deref()), ("publish", Some("why")));
        assert!(publish.begun <= append.begun && append.ended <= publish.ended);
        assert_eq!(append.context.trace(), context(VALUE).unwrap().trace());

        let begun = tracer.begin(None, "publish", SpanKind::Server);
        assert!(begun.context().unwrap().is_sampled());
        begun.end();
        assert_eq!(spans.try_recv().unwrap().parent, None);
        assert_eq!(tracer.begin_below(None, "deliver", SpanKind::Client).context(), None);
    }

    #[test]
    fn a_publisher_may_keep_its_trace_out_and_cannot_bring_more_in_than_the_share() {
        let (all, mut spans, _) = recording(1.0, 8);
        let unsampled = context(&VALUE.replace("-01", "-00"));
        let unrecorded = all.begin(unsampled, "publish", SpanKind::Server);
        assert_eq!(unrecorded.context(), unsampled);
        unrecorded.end();
        let (none, mut others, _) = recording(0.0, 8);
        assert_eq!(none.begin(context(VALUE), "publish", SpanKind::Server).context(), context(VALUE));
        assert_eq!(none.begin(None, "publish", SpanKind::Server).context(), None);
        assert!(spans.try_recv().is_err() && others.try_recv().is_err());
    }

    #[test]
    fn no_choice_of_an_id_brings_more_in_than_the_share() {
        let (hundredth, _spans, _) = recording(0.01, 1);
        for id in ["4bf92f3577b34da6a300000000000000", "000000000000000000000000000000ff", &"f".repeat(32)] {
            let chosen = context(&VALUE.replace("4bf92f3577b34da6a3ce929d0e0e4736", id));
            assert!(chosen.is_some());
            let recorded = |_: &u16| {
                let span = hundredth.begin(chosen, "publish", SpanKind::Server);
                span.context().is_some_and(TraceContext::is_recorded)
            };
            let count = (0..10_000).filter(recorded).count();
            assert!((1..=250).contains(&count), "{id}: {count} of 10000");
        }
    }

    #[test]
    fn what_is_chosen_at_the_publish_holds_for_all_that_follows() {
        let (all, _spans, _) = recording(1.0, 1);
        let (none, mut later, _) = recording(0.0, 1);
        let chosen = all.begin(context(VALUE), "publish", SpanKind::Server).context().unwrap();
        let kept = TraceContext::from_bytes(&chosen.to_bytes());
        // A hub that was started anew.
        none.begin_below(kept, "deliver", SpanKind::Client).end();
        assert_eq!(later.try_recv().unwrap().parent, Some(chosen));
        assert_eq!(all.begin_below(context(VALUE), "deliver", SpanKind::Client).context(), context(VALUE));
    }

    #[test]
    fn spans_without_room_are_dropped_and_counted() {
        let (tracer, mut spans, meters) = recording(1.0, 1);
        for _ in 0..3 {
            tracer.begin(None, "publish", SpanKind::Server).end();
        }
        assert!(spans.try_recv().is_ok() && spans.try_recv().is_err());
        assert_eq!(meters.read(SpanResult::Dropped), 2);
    }
}

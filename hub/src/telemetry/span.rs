//! Spans: what the hub does for a notification, recorded where a collector is configured and the trace is among those it gets.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;

use super::context::TraceContext;
use super::meters::{Fate, TraceMeters};

/// So many different values have the seven bytes of a trace's id that are surely random (Level 2).
const RANDOM: u64 = 1 << 56;

/// Begins spans. Without a collector it records nothing, and costs as much.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

#[derive(Debug)]
struct Recorder {
    /// Traces below this, by the part of their id that is surely random, are recorded: the same ones by every hub with this share.
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
    /// Records this share of all traces, from 0 to 1, into the queue. What finds no room there is dropped and counted.
    pub(super) fn recording(ratio: f64, queue: mpsc::Sender<Span>, meters: TraceMeters) -> Self {
        Self(Some(Arc::new(Recorder { below: share(ratio), queue, meters })))
    }

    /// Begins the span of a request that came in with this context, or begins a trace where it came with none and traces are
    /// recorded.
    pub fn begin(&self, from: Option<TraceContext>, name: &'static str, kind: SpanKind) -> OpenSpan {
        if from.is_some() {
            return self.begin_below(from, name, kind);
        }
        let recorder = self.0.as_ref();
        let begun = recorder.map(|recorder| (recorder, TraceContext::begin()));
        match begun.filter(|(recorder, context)| recorder.records(*context)) {
            Some((recorder, context)) => OpenSpan::recorded(recorder, context, None, name, kind),
            None => OpenSpan::unrecorded(None),
        }
    }

    /// Begins a span below another one; where there is none, there is no trace.
    pub fn begin_below(&self, above: Option<TraceContext>, name: &'static str, kind: SpanKind) -> OpenSpan {
        let recorder = self.0.as_ref();
        match recorder.zip(above).filter(|(recorder, above)| recorder.records(*above)) {
            Some((recorder, above)) => OpenSpan::recorded(recorder, above.child(), Some(above), name, kind),
            None => OpenSpan::unrecorded(above),
        }
    }
}

impl Recorder {
    /// Whoever says that a trace is not recorded is heeded; whoever says that it is has no more than the share.
    fn records(&self, context: TraceContext) -> bool {
        let random = u128::from_be_bytes(context.trace()) % u128::from(RANDOM);
        context.is_sampled() && random < u128::from(self.below)
    }

    fn put(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.meters.count(Fate::Dropped, 1);
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

/// A span under way. It ends when it is dropped.
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

    /// Where what follows from this belongs: to this span, or, where it is not recorded, to the one above it.
    pub fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// What a request says that is made in this span: an id of its own, also where it is not recorded.
    pub fn passed_on(&self) -> Option<TraceContext> {
        if self.recorded.is_some() { self.context } else { self.context.map(TraceContext::child) }
    }

    /// Says something about it. The value is made only where it is recorded.
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
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(recorded) = self.recorded.take() {
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
        let span = tracer.begin(context(VALUE), "publish", SpanKind::Server);
        assert_eq!(span.context(), context(VALUE), "what follows is a child of the publisher's span");
        let [first, second] = [span.passed_on().unwrap(), span.passed_on().unwrap()];
        assert_eq!(first.trace(), second.trace());
        assert_ne!(first.span(), second.span());
        assert_ne!(first.span(), span.context().unwrap().span());
    }

    #[test]
    fn recorded_spans_are_children_of_each_other_and_end_when_they_are_dropped() {
        let (tracer, mut spans, _) = recording(1.0, 8);
        let mut publish = tracer.begin(context(VALUE), "publish", SpanKind::Server);
        let append = publish.child("append", SpanKind::Internal);
        publish.note("answer", || "yes");
        publish.fail(|| "why".to_owned());
        assert_eq!(append.passed_on(), append.context(), "it has an id of its own already");
        drop((append, publish));
        let [append, publish] = [spans.try_recv().unwrap(), spans.try_recv().unwrap()];
        assert_eq!((publish.parent, append.parent), (context(VALUE), Some(publish.context)));
        assert_eq!(publish.attributes, [("answer", Value::from("yes"))]);
        assert_eq!((publish.name, publish.failure.as_deref()), ("publish", Some("why")));
        assert!(publish.begun <= append.begun && append.ended <= publish.ended);
        assert_eq!(append.context.trace(), context(VALUE).unwrap().trace());

        let begun = tracer.begin(None, "publish", SpanKind::Server).context().unwrap();
        assert!(begun.is_sampled());
        assert_eq!(spans.try_recv().unwrap().parent, None);
        assert_eq!(tracer.begin_below(None, "deliver", SpanKind::Client).context(), None);
    }

    #[test]
    fn a_publisher_may_keep_its_trace_out_and_cannot_bring_more_in_than_the_share() {
        let (all, mut spans, _) = recording(1.0, 8);
        let unsampled = context(&VALUE.replace("-01", "-00"));
        assert_eq!(all.begin(unsampled, "publish", SpanKind::Server).context(), unsampled);
        let (none, mut others, _) = recording(0.0, 8);
        assert_eq!(none.begin(context(VALUE), "publish", SpanKind::Server).context(), context(VALUE));
        assert_eq!(none.begin(None, "publish", SpanKind::Server).context(), None);
        assert!(spans.try_recv().is_err() && others.try_recv().is_err());
    }

    #[test]
    fn about_the_share_is_recorded_and_hubs_agree_about_which() {
        let (quarter, _spans, _) = recording(0.25, 1);
        let (half, _more, _) = recording(0.5, 1);
        let recorded = |tracer: &Tracer, at| tracer.0.as_ref().unwrap().records(at);
        let traces: Vec<_> = (0..4_000).map(|_| TraceContext::begin()).collect();
        let count = traces.iter().filter(|at| recorded(&half, **at)).count();
        assert!((1_800..=2_200).contains(&count), "{count}");
        assert!(traces.iter().filter(|at| recorded(&quarter, **at)).all(|at| recorded(&half, *at)));
    }

    #[test]
    fn spans_without_room_are_dropped_and_counted() {
        let (tracer, mut spans, meters) = recording(1.0, 1);
        for _ in 0..3 {
            tracer.begin(None, "publish", SpanKind::Server);
        }
        assert!(spans.try_recv().is_ok() && spans.try_recv().is_err());
        assert_eq!(meters.read(Fate::Dropped), 2);
    }
}

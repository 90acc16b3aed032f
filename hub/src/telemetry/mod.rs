//! Traces from publish to delivery, passed on by W3C Trace Context and sent to an OpenTelemetry collector if one is configured.
//!
//! A notification keeps the context that it came with, so that its trace goes on after any pause or restart. Without a collector
//! nothing is recorded, and what came without a trace goes out without one. `tracestate` is neither kept nor passed on: whatever a
//! vendor puts there for itself is not for strangers.

mod collector;
mod meters;
mod otlp;
mod span;

pub use collector::{Exporting, start};
pub use meters::TraceMeters;
pub use span::{OpenSpan, SpanKind, Tracer, Value};

pub use crate::trace_context::{TRACEPARENT, TraceContext};

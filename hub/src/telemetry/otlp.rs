//! Spans as a collector takes them: `ExportTraceServiceRequest` in the JSON mapping of OTLP 1.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::span::{Span, SpanKind, Value};

/// `STATUS_CODE_ERROR`
const FAILED: u8 = 2;

/// The body of the request that hands these over, as those of the hub with this URL.
pub(super) fn encode(spans: &[Span], hub_url: &str) -> Vec<u8> {
    let resource = [
        attribute("service.name", &"resync-hub".into()),
        attribute("service.version", &env!("CARGO_PKG_VERSION").into()),
        attribute("service.instance.id", &hub_url.to_owned().into()),
    ];
    let spans: Vec<_> = spans.iter().map(span).collect();
    let request = json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": env!("CARGO_PKG_NAME") }, "spans": spans }],
    }] });
    request.to_string().into_bytes()
}

/// Ids are hexadecimal, and numbers of 64 bits are texts.
fn span(span: &Span) -> Json {
    let Span { context, parent, name, kind, begun, ended, attributes, failure } = span;
    let attributes: Vec<_> = attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut json = json!({
        "traceId": hex::encode(context.trace()),
        "spanId": hex::encode(context.span()),
        "name": name,
        "kind": number(*kind),
        "startTimeUnixNano": nanoseconds(*begun),
        "endTimeUnixNano": nanoseconds(*ended),
        "attributes": attributes,
    });
    if let Some(parent) = parent {
        json["parentSpanId"] = hex::encode(parent.span()).into();
    }
    if let Some(why) = failure {
        json["status"] = json!({ "code": FAILED, "message": why });
    }
    json
}

fn attribute(name: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": name, "value": value })
}

fn number(kind: SpanKind) -> u8 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    }
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::TraceContext;

    #[test]
    fn a_span_is_written_as_the_json_mapping_of_otlp_says() {
        let context = |value: &str| TraceContext::parse(value.as_bytes()).unwrap();
        let at = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        let one = Span {
            context: context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            parent: Some(context("00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01")),
            name: "deliver",
            kind: SpanKind::Client,
            begun: at(1_700_000_000_123_456_789),
            ended: at(1_700_000_001_000_000_000),
            attributes: vec![("websub.outcome", "5xx".into()), ("http.response.status_code", 503_u16.into())],
            failure: Some("503".to_owned()),
        };
        let root = Span { parent: None, failure: None, kind: SpanKind::Server, ..one.clone() };
        let request: Json =
            serde_json::from_slice(&encode(&[one, root], "http://hub.example/websub/")).unwrap();
        let resource = &request["resourceSpans"][0];
        assert_eq!(
            resource["resource"]["attributes"][0],
            json!({ "key": "service.name", "value": { "stringValue": "resync-hub" } })
        );
        assert_eq!(
            resource["resource"]["attributes"][2],
            json!({ "key": "service.instance.id", "value": { "stringValue": "http://hub.example/websub/" } })
        );
        let spans = &resource["scopeSpans"][0]["spans"];
        assert_eq!(
            spans[0],
            json!({
                "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
                "spanId": "00f067aa0ba902b7",
                "parentSpanId": "b7ad6b7169203331",
                "name": "deliver",
                "kind": 3,
                "startTimeUnixNano": "1700000000123456789",
                "endTimeUnixNano": "1700000001000000000",
                "attributes": [
                    { "key": "websub.outcome", "value": { "stringValue": "5xx" } },
                    { "key": "http.response.status_code", "value": { "intValue": "503" } },
                ],
                "status": { "code": 2, "message": "503" },
            })
        );
        assert_eq!(spans[1]["kind"], 2);
        assert!(spans[1].get("parentSpanId").is_none() && spans[1].get("status").is_none());
    }
}

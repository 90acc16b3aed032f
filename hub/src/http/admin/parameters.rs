//! Parameters of queries and fields of bodies that an operation of the admin API does not know: each is named, with the one that was
//! meant. The document says which there are.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use resync_common::config::{hint, meant};
use serde_json::Value;
use url::form_urlencoded;
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::openapi::{operations, parameters};
use super::problem::Problem;

/// Where the paths of the document are.
pub(super) const BASE: &str = "/api/v1";
/// Characters of an unknown name that are repeated.
const SHOWN: usize = 64;

/// The parameters of each operation's query, by its method and path.
static KNOWN: LazyLock<HashMap<String, Vec<&str>>> = LazyLock::new(|| {
    operations()
        .map(|(which, operation)| (which, of_query(operation).map(|(name, _)| name).collect()))
        .collect()
});

/// The names of an operation's parameters, with their descriptions.
fn of_query(operation: &'static Value) -> impl Iterator<Item = (&'static str, &'static Value)> {
    let of_query = parameters(operation).filter(|one| one["in"] == "query");
    of_query.filter_map(|one| Some((one["name"].as_str()?, one)))
}

/// Refuses a query with a parameter that its operation does not know.
pub(super) async fn check_query(path: MatchedPath, request: Request, next: Next) -> Response {
    let method = if request.method() == http::Method::HEAD { "GET" } else { request.method().as_str() };
    let path = path.as_str();
    let known = KNOWN.get(&format!("{method} {}", path.strip_prefix(BASE).unwrap_or(path)));
    let query = request.uri().query().unwrap_or_default().as_bytes();
    let unknown = known.and_then(|known| {
        let mut names = form_urlencoded::parse(query).map(|(name, _)| name);
        let unknown = names.find(|name| !known.contains(&name.as_ref()))?;
        Some(misnamed(&unknown, "parameter", known))
    });
    match unknown {
        Some(why) => Problem::new(StatusCode::BAD_REQUEST, why).into_response(),
        None => next.run(request).await,
    }
}

/// Why a query cannot be understood, with what would be right where the parser says of which parameter it speaks.
pub(super) fn misunderstood(why: &str) -> String {
    let why = why.strip_prefix("Failed to deserialize query string: ").unwrap_or(why);
    let name = why.split(':').next().unwrap_or_default();
    let mut named = operations().flat_map(|(_, operation)| of_query(operation)).filter(|(of, _)| *of == name);
    let example = named.find_map(|(_, one)| Some((one.get("example")?, numbers(&one["schema"]))));
    let Some((example, numbers)) = example else { return format!("the query cannot be used: {why}") };
    let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
    match numbers {
        Some(numbers) => format!("{name}: write {numbers}, for example {name}={example}"),
        None => format!("{why}: write for example {name}={example}"),
    }
}

/// Which numbers a parameter takes, if it takes numbers.
fn numbers(schema: &Value) -> Option<String> {
    let least = schema["minimum"].as_f64()?;
    let most = schema["maximum"].as_f64();
    Some(most.map_or("a whole number".to_owned(), |most| format!("a number from {least} to {most}")))
}

/// What is wrong with a body that has a field which this type does not know.
pub(super) fn unknown_field<T: PartialSchema>(body: &[u8]) -> Option<String> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return None };
    let RefOr::T(Schema::Object(schema)) = T::schema() else { return None };
    let known: Vec<_> = schema.properties.keys().map(String::as_str).collect();
    fields.keys().find(|field| !known.contains(&field.as_str())).map(|field| misnamed(field, "field", &known))
}

fn misnamed(name: &str, what: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(SHOWN).collect();
    let all =
        if known.is_empty() { "there is none".to_owned() } else { format!("write {}", known.join(", ")) };
    let hint = hint(meant(name, known.iter().copied()), &all);
    format!("{shown:?} is not a {what} here: {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ToDeny;

    #[test]
    fn a_field_that_is_not_known_is_named_with_the_one_that_was_meant() {
        let wrong = |body: &str| unknown_field::<ToDeny>(body.as_bytes());
        let meant = wrong("{\"ids\": [7], \"raeson\": \"x\"}");
        assert_eq!(meant.as_deref(), Some("\"raeson\" is not a field here: did you mean reason?"));
        assert_eq!(
            wrong("{\"zzz\": 1}").as_deref(),
            Some("\"zzz\" is not a field here: write ids, reason, topic")
        );
        assert_eq!((wrong("{\"ids\": [7]}"), wrong("{"), wrong("7")), (None, None, None));
    }

    #[test]
    fn what_cannot_be_understood_comes_with_an_example() {
        let said = misunderstood("Failed to deserialize query string: limit: invalid digit found in string");
        assert_eq!(said, "limit: write a number from 1 to 1000, for example limit=100");
        let said = misunderstood("subscription: invalid digit found in string");
        assert_eq!(said, "subscription: write a whole number, for example subscription=7");
        assert_eq!(misunderstood("nonsense"), "the query cannot be used: nonsense");
    }
}

//! The `OpenAPI` document of the admin API: what the routes say of themselves, with an example of everything.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::api::described;
use super::problem::{self, Problem};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Admin API of resync-hub",
        description = "What an operator can see and do. Every request needs the operator's token. Lists come in pages: \
                       send `next` of one as `after` for the next. Errors are problem documents (RFC 9457)."
    ),
    servers((url = "/api/v1")),
    security(("operator" = [])),
    modifiers(&Operator),
    components(schemas(Problem))
)]
pub(super) struct Document;

/// Says how the operator's token is sent.
struct Operator;

impl Modify for Operator {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("operator", SecurityScheme::Http(bearer));
    }
}

/// The document, which is the same for the whole life of the process.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = serde_json::to_value(described().to_openapi()).unwrap_or_default();
    let examples = Examples::read();
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            name_problem(operation);
            examples.show_in(operation, &format!("{} {path}", method.to_uppercase()));
        }
    }
    document
});

/// The document as it is sent.
pub(super) static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());

/// Every operation, by its method and path.
pub(super) fn operations() -> impl Iterator<Item = (String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, operations)| {
        let operations = operations.as_object().into_iter().flatten();
        operations.map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    })
}

/// The parameters of an operation.
pub(super) fn parameters(operation: &Value) -> impl Iterator<Item = &Value> {
    operation["parameters"].as_array().into_iter().flatten()
}

/// Says of problems that their media type is not that of everything else.
fn name_problem(operation: &mut Value) {
    let content = operation.pointer_mut("/responses/default/content").and_then(Value::as_object_mut);
    let Some(content) = content else { return };
    if let Some(problem) = content.remove("application/json") {
        content.insert(problem::MEDIA_TYPE.to_owned(), problem);
    }
}

/// What is shown of the operations: parameters, bodies and answers as they may be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Examples {
    /// Parameters in paths, by their names.
    path: Map<String, Value>,
    /// Parameters of queries, by their names.
    query: Map<String, Value>,
    /// The answer of all that are refused.
    problem: Value,
    /// By method and path.
    operations: BTreeMap<String, Example>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    body: Option<Value>,
    answer: Option<Value>,
}

impl Examples {
    fn read() -> Self {
        serde_json::from_str(include_str!("examples.json")).expect("a test reads them")
    }

    fn show_in(&self, operation: &mut Value, which: &str) {
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            let of = if parameter["in"] == "path" { &self.path } else { &self.query };
            let example = of.get(parameter["name"].as_str().unwrap_or_default());
            put(Some(parameter), example);
        }
        let own = self.operations.get(which);
        let body = "/requestBody/content/application~1json";
        put(operation.pointer_mut(body), own.and_then(|own| own.body.as_ref()));
        let answer = "/responses/200/content/application~1json";
        put(operation.pointer_mut(answer), own.and_then(|own| own.answer.as_ref()));
        put(
            operation.pointer_mut("/responses/default/content/application~1problem+json"),
            Some(&self.problem),
        );
    }
}

fn put(place: Option<&mut Value>, example: Option<&Value>) {
    if let (Some(place), Some(example)) = (place, example) {
        place["example"] = example.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_and_every_parameter_has_an_example_and_none_is_left_over() {
        let mut missing = Vec::new();
        for (which, operation) in operations() {
            let unseen = parameters(operation).filter(|one| one["example"].is_null());
            missing.extend(unseen.map(|one| format!("{which} {}", one["name"])));
            let places = ["/requestBody/content", "/responses/200/content", "/responses/default/content"];
            let contents = places.iter().filter_map(|place| operation.pointer(place)?.as_object());
            // A backup is no text, and the document would contain itself.
            let is_shown = |(media, content): &(&String, &Value)| {
                *media == "application/octet-stream"
                    || which.contains("openapi")
                    || !content["example"].is_null()
            };
            missing.extend(
                contents.flatten().filter(|one| !is_shown(one)).map(|(media, _)| format!("{which} {media}")),
            );
        }
        assert_eq!(missing, Vec::<String>::new());
        let known: BTreeSet<_> = operations().map(|(which, _)| which).collect();
        let left_over: Vec<_> =
            Examples::read().operations.into_keys().filter(|one| !known.contains(one)).collect();
        assert_eq!(left_over, Vec::<String>::new());
    }
}

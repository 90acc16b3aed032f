"""Judges of strangers: an OpenAPI document is judged by the PyPI package openapi-spec-validator, and its examples and answers by its
schemas with jsonschema. Arguments: the document, and a list of answers with method, path, status, type and body."""

import json
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

document, answers = (json.load(open(name)) for name in sys.argv[1:])
validate(document)
base = document["servers"][0]["url"]


def described(answer):
    """What the document says of such an answer."""
    parts = answer["path"].split("?")[0].removeprefix(base).split("/")

    def fits(template):
        pattern = template.split("/")
        pairs = zip(pattern, parts)
        return len(pattern) == len(parts) and all(one == part or one.startswith("{") for one, part in pairs)

    template = min(filter(fits, document["paths"]), key=lambda template: template.count("{"))
    responses = document["paths"][template][answer["method"].lower()]["responses"]
    return responses.get(str(answer["status"]), responses["default"])


def judge(schema):
    return Draft202012Validator({**schema, "components": document["components"]})


def known(schema):
    """The properties of a schema, those that it takes from others included."""
    if "$ref" in schema:
        return known(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    names = dict(schema.get("properties", {}))
    for part in schema.get("allOf", []) + [one for one in schema.get("oneOf", []) if one.get("type") != "null"]:
        names.update(known(part))
    return names


def strange(value, schema):
    """The properties that no schema names, which its judge would let pass."""
    if isinstance(value, list) and "items" in schema:
        return [name for one in value for name in strange(one, schema["items"])]
    if not isinstance(value, dict):
        return []
    names = known(schema)
    below = [name for key, inner in value.items() if key in names for name in strange(inner, names[key])]
    return [key for key in value if key not in names] + below


examples = 0
for path, operations in document["paths"].items():
    for method, operation in operations.items():
        which = f"{method.upper()} {path}"
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        contents = [content for body in bodies for content in body.get("content", {}).values()]
        for place in contents + operation.get("parameters", []):
            if "example" not in place:
                continue
            examples += 1
            for error in judge(place["schema"]).iter_errors(place["example"]):
                sys.exit(f"the example of {which}: {error.json_path}: {error.message}")
            assert not strange(place["example"], place["schema"]), f"{which}: {strange(place['example'], place['schema'])}"
assert examples >= 90, f"{examples} examples"

for answer in answers:
    which = f"{answer['method']} {answer['path']}: {answer['status']}"
    content = described(answer).get("content")
    if content is None:
        assert answer["body"] is None, f"{which} has a body"
        continue
    assert answer["type"] in content, f"{which} is {answer['type']}"
    schema = content[answer["type"]]["schema"]
    for error in judge(schema).iter_errors(answer["body"]):
        sys.exit(f"{which}: {error.json_path}: {error.message}")
    assert not judge(schema).is_valid("something else"), f"{which} may be anything"
print(f"{len(answers)} answers are as described")

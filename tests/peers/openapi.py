"""Judges of strangers: an OpenAPI document is judged by the PyPI package openapi-spec-validator, and answers by its schemas with
jsonschema. Arguments: the document, and a list of answers with method, path, status, type and body."""

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


for answer in answers:
    which = f"{answer['method']} {answer['path']}: {answer['status']}"
    content = described(answer).get("content")
    if content is None:
        assert answer["body"] is None, f"{which} has a body"
        continue
    assert answer["type"] in content, f"{which} is {answer['type']}"
    schema = content[answer["type"]]["schema"]
    judge = Draft202012Validator({**schema, "components": document["components"]})
    for error in judge.iter_errors(answer["body"]):
        sys.exit(f"{which}: {error.json_path}: {error.message}")
    assert not judge.is_valid("something else"), f"{which} may be anything"
print(f"{len(answers)} answers are as described")

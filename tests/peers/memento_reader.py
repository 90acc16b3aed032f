"""memento_client as a reader of our Source: for each line `URL SECONDS` of the standard input, what it finds at that moment by the
TimeGate that the URL itself names, as a line of JSON. Moments are seconds of Unix time.
"""

import json
import sys
from datetime import datetime, timezone

from memento_client import MementoClient


def seconds(moment):
    return int(moment.replace(tzinfo=timezone.utc).timestamp())


for line in sys.stdin:
    url, moment = line.split()
    asked = datetime.fromtimestamp(int(moment), timezone.utc).replace(tzinfo=None)
    # Where it would look for a TimeGate that the URL does not name, there is none.
    info = MementoClient(timegate_uri="http://127.0.0.1:9/").get_memento_info(url, asked)
    mementos = {name: [found["uri"][0], seconds(found["datetime"])] for name, found in info["mementos"].items()}
    closest = mementos["closest"][0]
    answer = {
        "original": info["original_uri"],
        "timegate": info["timegate_uri"],
        "mementos": mementos,
        "is_timegate": MementoClient.is_timegate(info["timegate_uri"]),
        "is_memento": MementoClient.is_memento(closest),
    }
    print(json.dumps(answer), flush=True)

"""A server of Memento's authors that behaves in some thirty ways, most of them wrong. It chooses by `Prefer`, which is added here: the
first part of a path, such as `/tg_302,no_headers/tg/URI`, is the way of its TimeGate, a comma, and that of its mementos."""

import sys

from memento_test import server
from werkzeug.serving import make_server


def application(environ, start_response):
    way, _, rest = environ["PATH_INFO"].lstrip("/").partition("/")
    of_timegate, _, of_memento = way.partition(",")
    environ["SCRIPT_NAME"] = f"/{way}"
    environ["PATH_INFO"] = f"/{rest}"
    environ["HTTP_PREFER"] = of_timegate if rest.startswith("tg/") else of_memento
    server.HOST_NAME = f"http://{environ['HTTP_HOST']}/{way}/"
    return server.MementoServer()(environ, start_response)


listener = make_server("127.0.0.1", int(sys.argv[1]), application)
print("ready", flush=True)
listener.serve_forever()

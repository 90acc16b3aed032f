"""A hub of strangers: the PyPI package Flask-WebSub, with Celery's worker in the same process. It fetches a topic when it is told that
there is something new. Arguments: port, database, signature algorithm."""

import sys
import threading

from celery import Celery
from celery.contrib.testing.worker import start_worker
from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import make_server

port, database, algorithm = sys.argv[1:]
app = Flask(__name__)
app.config.update(PUBLISH_SUPPORTED=True, HUB_MIN_LEASE_SECONDS=1)
celery = Celery(broker="memory://", backend="cache+memory://")
hub = Hub(SQLite3HubStorage(database), celery, SIGNATURE_ALGORITHM=algorithm, BACKOFF_BASE=0.2)
app.register_blueprint(hub.build_blueprint("/hub"))

server = make_server("127.0.0.1", int(port), app, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
with start_worker(celery, pool="solo", perform_ping_check=False, loglevel="warning"):
    print("ready", flush=True)
    threading.Event().wait()

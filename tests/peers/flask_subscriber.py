"""A subscriber of strangers: the PyPI package Flask-WebSub finds the hub by the topic's links, subscribes, and renews on SIGUSR1.
Arguments: topic, port, database."""

import base64
import signal
import sys
import threading

from flask import Flask
from flask_websub.subscriber import SQLite3SubscriberStorage, SQLite3TempSubscriberStorage, Subscriber, discover
from werkzeug.serving import make_server

topic, port, database = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
app = Flask(__name__)
subscriber = Subscriber(SQLite3SubscriberStorage(database), SQLite3TempSubscriberStorage(database))
app.register_blueprint(subscriber.build_blueprint("/callbacks"))


def say(*words):
    print(*words, flush=True)


subscriber.add_success_handler(lambda topic, callback, mode: say(f"{mode}d: {topic}"))
subscriber.add_error_handler(lambda topic, callback, reason: say(f"denied: {topic} {reason}"))
subscriber.add_listener(lambda topic, callback, body: say(f"content: {topic} {base64.b64encode(body).decode()}"))

server = make_server("127.0.0.1", int(port), app, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
with app.test_request_context(base_url=f"http://127.0.0.1:{port}/"):
    callback = subscriber.subscribe(**discover(topic))
    while True:
        signal.sigwait([signal.SIGUSR1])
        subscriber.renew(callback)

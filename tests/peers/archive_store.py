"""Has a hub write a data folder, and packs it for tests/tests/hub/formats.rs.

    archive_store.py HUB ENGINE ARCHIVE

HUB is the program, ENGINE "fjall" or "sled". What it does, and what the test counts on, is in tests/tests/hub/stores/README.md.
"""

import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

SUBSCRIBERS = ("127.42.7.1", 4242)
HUB = "127.42.7.2:4243"
ENDPOINT = f"http://{HUB}/websub/"
TOPIC = "http://source.example/earlier/"
TEN_YEARS = 3650 * 24 * 3600
SETTINGS = {
    "ADMIN_LISTEN": "127.42.7.2:4244",
    "LEASE_MAX": "3650d",
    "LEASE_SPREAD": "0",
    "RETENTION_AGE": "3650d",
    "DELIVERY_SCHEDULE": '["30d"]',
    "DELIVERY_BREAKER_FAILURES": "0",
    "SECRETS_KEY": "5e" * 32,
}

seen = []
ended = threading.Event()


class Subscriber(http.server.BaseHTTPRequestHandler):
    """/late agrees and refuses deliveries, /well agrees and takes them, /asked never answers."""

    def log_message(self, *_):
        pass

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        seen.append(("asked", url.path))
        if url.path == "/asked":
            ended.wait()
            return
        self.answer(200, urllib.parse.parse_qs(url.query)["hub.challenge"][0].encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        seen.append(("got", self.path))
        self.answer(503 if self.path == "/late" else 204)


def until(what, condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    sys.exit(f"it never happened: {what}; seen: {seen}")


def is_up():
    try:
        urllib.request.urlopen(ENDPOINT)
    except urllib.error.HTTPError:
        pass
    except OSError:
        return False
    return True


def send(body, headers):
    status = urllib.request.urlopen(urllib.request.Request(ENDPOINT, body, headers)).status
    if status != 202:
        sys.exit(f"the hub answered {status}")


def subscribe(path, **more):
    callback = "http://{}:{}{}".format(*SUBSCRIBERS, path)
    form = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": callback, "hub.lease_seconds": TEN_YEARS}
    form.update({f"hub.{name}": value for name, value in more.items()})
    send(urllib.parse.urlencode(form).encode(), {"Content-Type": "application/x-www-form-urlencoded"})


def publish(body):
    send(body, {"Content-Type": "text/plain", "Link": f'<{TOPIC}>; rel="self", <{ENDPOINT}>; rel="hub"'})


def main(program, engine, archive):
    server = http.server.ThreadingHTTPServer(SUBSCRIBERS, Subscriber)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "data")
        environment = {**os.environ, "RESYNC_HUB_STORE_ENGINE": engine}
        environment.update({f"RESYNC_HUB_{key}": value for key, value in SETTINGS.items()})
        hub = subprocess.Popen([program, "--dev", "--listen", HUB, "--data-dir", data], env=environment)
        until("the hub is up", is_up)
        subscribe("/late", secret="s3cr3t of before")
        subscribe("/well")
        until("both are verified", lambda: sum(what == "asked" for what, _ in seen) == 2)
        # The answer to the second is on its way to the disk.
        time.sleep(1)
        publish(b"owed one")
        publish(b"owed two " + b"x" * 100_000)
        until("three deliveries", lambda: sum(what == "got" for what, _ in seen) == 3)
        subscribe("/asked")
        until("it is asked", lambda: ("asked", "/asked") in seen)
        # What was delivered is on its way to the disk.
        time.sleep(1)
        hub.terminate()
        hub.wait(30)
        ended.set()
        for useless in ("lock", "admin-token"):
            data.joinpath(useless).unlink(missing_ok=True)
        # fjall's journal is 64 MiB of nothing.
        for journal in data.glob("fjall/*.jnl"):
            subprocess.run(["fallocate", "--dig-holes", journal], check=True)
        tar = ["tar", "--sparse", "--sort=name", "--owner=0", "--group=0", "-C", folder, "-czf", archive, "data"]
        subprocess.run(tar, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

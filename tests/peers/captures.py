"""Writes captures of one URI for a web archive: `captures.py FILE URI`, and their times with their contents as JSON on the standard input."""

import json
import sys
from io import BytesIO

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

file, uri = sys.argv[1:]
with open(file, "wb") as out:
    writer = WARCWriter(out, gzip=True)
    for time, content in json.load(sys.stdin):
        body = content.encode()
        headers = [("Content-Type", "text/html"), ("Content-Length", str(len(body)))]
        head = StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")
        when = {"WARC-Date": time}
        writer.write_record(
            writer.create_warc_record(uri, "response", BytesIO(body), http_headers=head, warc_headers_dict=when)
        )

"""Signatures by Python's hmac and hashlib. Each line of the file that is named holds a method, a secret as it stands in a form, and a
body in hexadecimal; for each, one line says what X-Hub-Signature is."""

import hmac
import sys
from urllib.parse import parse_qs

for line in open(sys.argv[1], encoding="ascii"):
    method, secret, body = line.rstrip("\n").split(" ")
    key = parse_qs(f"hub.secret={secret}", strict_parsing=True)["hub.secret"][0].encode()
    print(f"{method}={hmac.new(key, bytes.fromhex(body), method).hexdigest()}")

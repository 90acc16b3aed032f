"""A publisher of strangers: the PyPI package django-push tells the hub that a topic has changed. Arguments: topic, hub."""

import sys

from django.conf import settings

settings.configure()

from django_push.publisher import ping_hub  # noqa: E402 (needs the settings)

answer = ping_hub(sys.argv[1], hub_url=sys.argv[2])
print(f"answered: {answer.status_code}")
answer.raise_for_status()

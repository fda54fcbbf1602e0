"""Delivery of events to webhooks, following the Standard Webhooks specification.

The body is `{"type": "kilonova.failed", "timestamp": …, "data": {…}}`. The header `webhook-id` is the same whenever an
event is sent again, so that the receiver can detect duplicates; `webhook-signature` is an HMAC-SHA256 of id, time and
body with the webhook's secret.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import socket
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import urllib3
from standardwebhooks import Webhook as Signer

from kilonova.errors import DeliveryError
from kilonova.model.event import Event
from kilonova.model.subscription import Webhook

_TIMEOUT = urllib3.Timeout(connect=5, read=10)
_LEAST, _MOST = 24, 64
"""Minimum and maximum length of a secret in bytes."""


@dataclass(frozen=True, slots=True)
class Message:
    """Message to a webhook: an id that is the same for the same event, and a body of JSON."""

    id: str
    body: str


def message(catalog: str, event: Event) -> Message:
    """Return the message for an event of the catalog of an identity."""
    data = {
        "catalog": catalog,
        "event": event.number,
        "kind": event.kind.value,
        "run": event.run,
        "binding": event.binding,
        "channels": list(event.channels),
        "text": event.text,
    }
    return _message(f"evt_{catalog}_{event.number}", event.kind.value.replace("-", "_"), event.time, data)


def test_message(catalog: str, now: datetime) -> Message:
    """Return a message to test a webhook with."""
    return _message(f"test_{uuid.uuid4().hex}", "test", now, {"catalog": catalog, "text": "a test message"})


def _message(identity: str, kind: str, time: datetime, data: Mapping[str, Any]) -> Message:
    body = {"type": f"kilonova.{kind}", "timestamp": time.isoformat(), "data": data}
    return Message(identity, json.dumps(body, ensure_ascii=False))


def send(
    webhook: Webhook, message: Message, now: datetime, environment: Mapping[str, str], inside: Collection[str]
) -> None:
    """Send a message to a webhook; redirects are not followed.

    The host name is resolved once; the resulting address is checked, and the message is sent to that address.

    Args:
        webhook: the webhook.
        message: the message.
        now: the current time.
        environment: the environment variables, with the secret.
        inside: hosts that may have addresses of this machine or of its link.

    Raises:
        DeliveryError: it was not accepted, or may not be sent to that address.
    """
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"kilonova/{version('kilonova')}",
        "webhook-id": message.id,
        "webhook-timestamp": str(int(now.timestamp())),
    }
    if webhook.secret is not None:
        signer = Signer(_secret(webhook.secret, environment))
        headers["webhook-signature"] = signer.sign(message.id, now, message.body)
    try:
        with _pool(webhook, inside) as pool:
            parts = urlsplit(webhook.url)
            answer = pool.request(
                "POST",
                urlunsplit(("", "", parts.path or "/", parts.query, "")),
                body=message.body.encode(),
                headers={**headers, "Host": parts.netloc},
                redirect=False,
                retries=False,
                preload_content=False,
            )
            status = answer.status
            answer.close()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise DeliveryError(
            f"the webhook {webhook.name} cannot be reached: {error}", hint="Check its URL and whether it runs"
        ) from None
    if 300 <= status < 400:
        raise DeliveryError(
            f"the webhook {webhook.name} answers with a redirect ({status}), which is not followed",
            hint="Give it the URL to which it redirects",
        )
    if not 200 <= status < 300:
        raise DeliveryError(
            f"the webhook {webhook.name} answers with HTTP status {status}",
            hint="See the log of its server; the event is delivered again later",
        )


def _pool(webhook: Webhook, inside: Collection[str]) -> urllib3.HTTPConnectionPool:
    """Return a connection pool to the address of a webhook's host, if messages may be sent there."""
    parts = urlsplit(webhook.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = sorted((family, str(to[0])) for family, *_, to in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    for _, address in found:
        if host not in inside and is_inside(address):
            raise DeliveryError(
                f"the webhook {webhook.name} is not notified: {address} is a loopback or link-local address",
                hint=f"List {host} in serve.webhooks if that is intended",
            )
    _, address = found[0]
    if parts.scheme == "https":
        return urllib3.HTTPSConnectionPool(
            address, port, timeout=_TIMEOUT, server_hostname=host, assert_hostname=host, cert_reqs="CERT_REQUIRED"
        )
    return urllib3.HTTPConnectionPool(address, port, timeout=_TIMEOUT)


_METADATA = ("100.100.100.200", "fd00:ec2::254")
"""Metadata service addresses of clouds that are not link-local."""


def is_inside(address: str) -> bool:
    """Return whether an IP address is loopback, link-local, unspecified, multicast or a cloud's metadata service.

    >>> is_inside("127.0.0.1"), is_inside("169.254.169.254"), is_inside("::ffff:127.0.0.1"), is_inside("10.0.0.7")
    (True, True, True, False)
    """
    found = ipaddress.ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None) or found
    return bool(
        mapped.is_loopback
        or mapped.is_link_local
        or mapped.is_unspecified
        or mapped.is_multicast
        or str(mapped) in _METADATA
    )


def _secret(variable: str, environment: Mapping[str, str]) -> str:
    secret = environment.get(variable)
    if secret is None:
        raise DeliveryError(
            f"the environment variable {variable}, which holds the secret, is not set",
            hint="Set it where the servers are started",
        )
    try:
        decoded = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        decoded = b""
    if not _LEAST <= len(decoded) <= _MOST:
        raise DeliveryError(
            f"the secret in {variable} is not base64 of {_LEAST} to {_MOST} bytes",
            hint="Make one with: openssl rand -base64 32",
        )
    return secret

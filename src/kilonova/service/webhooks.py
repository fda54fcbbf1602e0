"""Sending an event to a webhook, as the Standard Webhooks specification says.

The body is `{"type": "kilonova.failed", "timestamp": …, "data": {…}}`. The header `webhook-id` is the same whenever an
event is sent again, so that the receiver knows what it has taken already; `webhook-signature` is an HMAC-SHA256 by the
webhook's secret over id, time and body.
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

from kilonova.errors import Undelivered
from kilonova.model.event import Event
from kilonova.model.outlet import Webhook

_TIMEOUT = urllib3.Timeout(connect=5, read=10)
_LEAST, _MOST = 24, 64
"""How many bytes a secret has."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a webhook is sent.

    Attributes:
        id: the same for the same event.
        body: JSON.
    """

    id: str
    body: str


def message(catalog: str, event: Event) -> Message:
    """An event as a message.

    Args:
        catalog: the identity of the catalog.
        event: the event.
    """
    data = {
        "catalog": catalog,
        "event": event.number,
        "kind": event.kind.value,
        "run": event.run,
        "binding": event.binding,
        "channels": list(event.channels),
        "text": event.text,
    }
    return _message(f"evt_{catalog}_{event.number}", event.kind.value.replace(" ", "_"), event.time, data)


def trial(catalog: str, now: datetime) -> Message:
    """A message by which to try a webhook."""
    return _message(f"test_{uuid.uuid4().hex}", "test", now, {"catalog": catalog, "text": "a message to try a webhook"})


def _message(identity: str, kind: str, time: datetime, data: Mapping[str, Any]) -> Message:
    body = {"type": f"kilonova.{kind}", "timestamp": time.isoformat(), "data": data}
    return Message(identity, json.dumps(body, ensure_ascii=False))


def send(
    webhook: Webhook, message: Message, now: datetime, environment: Mapping[str, str], inside: Collection[str]
) -> None:
    """Send a message to a webhook; redirects are not followed.

    The address that its name has now is looked at, and it is to that address that the message goes.

    Args:
        webhook: the webhook.
        message: the message.
        now: the present moment.
        environment: where the secret is.
        inside: hosts that may be addresses of this machine or of its link.

    Raises:
        Undelivered: it was not taken, or may not be sent there.
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
        raise Undelivered(
            f"the webhook {webhook.name} cannot be reached: {error}", hint="Check its URL and whether it runs"
        ) from None
    if 300 <= status < 400:
        raise Undelivered(
            f"the webhook {webhook.name} answers with a redirect ({status}), which is not followed",
            hint="Give it the URL to which it redirects",
        )
    if not 200 <= status < 300:
        raise Undelivered(f"the webhook {webhook.name} answers with HTTP status {status}")


def _pool(webhook: Webhook, inside: Collection[str]) -> urllib3.HTTPConnectionPool:
    """Connections to the address of a webhook's host.

    Raises:
        Undelivered: it may not be sent there.
        OSError: there is no such host.
    """
    parts = urlsplit(webhook.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = sorted((family, str(to[0])) for family, *_, to in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    for _, address in found:
        if host not in inside and is_inside(address):
            raise Undelivered(
                f"the webhook {webhook.name} is not told: {address} is an address of this machine or its link",
                hint=f"List {host} in serve.webhooks if that is meant",
            )
    _, address = found[0]
    if parts.scheme == "https":
        return urllib3.HTTPSConnectionPool(
            address, port, timeout=_TIMEOUT, server_hostname=host, assert_hostname=host, cert_reqs="CERT_REQUIRED"
        )
    return urllib3.HTTPConnectionPool(address, port, timeout=_TIMEOUT)


_METADATA = ("100.100.100.200", "fd00:ec2::254")
"""Where clouds tell machines their secrets, beside link-local addresses."""


def is_inside(address: str) -> bool:
    """Whether an IP address is one of this machine, of its link, or of nobody in particular.

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
        raise Undelivered(
            f"there is no {variable} in the environment, which holds the secret",
            hint="Set it where the servers are started",
        )
    try:
        decoded = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        decoded = b""
    if not _LEAST <= len(decoded) <= _MOST:
        raise Undelivered(
            f"the secret in {variable} is not base64 of {_LEAST} to {_MOST} bytes",
            hint="Make one with: openssl rand -base64 32",
        )
    return secret

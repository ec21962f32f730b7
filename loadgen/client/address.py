"""Where requests go."""

from __future__ import annotations


def endpoint_url(base_url: str, endpoint: str) -> str:
    """`base_url` and `endpoint` joined; a base that ends in the endpoint's own /v1 does not get a second one.

    >>> endpoint_url("http://host:8000/v1", "/v1/models")
    'http://host:8000/v1/models'
    """
    base = base_url.rstrip("/")
    return (base.removesuffix("/v1") if endpoint.startswith("/v1/") else base) + endpoint

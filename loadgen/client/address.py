"""Where requests go, and by which TLS."""

from __future__ import annotations

import ssl

from loadgen.scenario import ScenarioError, Target


def endpoint_url(base_url: str, endpoint: str) -> str:
    """`base_url` and `endpoint` joined; a /v1 at the end of the base is the endpoint's own.

    >>> endpoint_url("http://host:8000/v1", "/v1/models")
    'http://host:8000/v1/models'
    """
    return base_url.rstrip("/").removesuffix("/v1") + endpoint


def tls_context(target: Target) -> ssl.SSLContext | None:
    """How to check the server: by `ca_file`, by the system's, or not at all if `insecure`. None for http.

    Raises ScenarioError when `ca_file` cannot be read or holds no certificate.
    """
    if not target.base_url.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:
        raise ScenarioError(f"target.ca_file {target.ca_file!r}: {error.strerror or error}") from error
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

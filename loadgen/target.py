"""A server under test, or several that share the load: where, which API, and how it is reached."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from loadgen import faults
from loadgen.backends import BACKENDS, CHAT, ENDPOINTS, BackendName, DialectName, dialect_at
from loadgen.fields import (
    NO_PROXY,
    ONE_OR_SEVERAL,
    BaseUrl,
    Count,
    DataFile,
    Endpoint,
    Headers,
    JsonObject,
    MetricsUrls,
    Money,
    ProxyUrl,
    Strict,
    Variable,
    base_url,
)

PAYERS = {"organization": "OpenAI-Organization", "project": "OpenAI-Project"}


class Target(Strict):
    """A live server, or several that share the load: `base_url` may be a list.

    `backend` says which API it speaks, and so which `endpoint` is asked; an endpoint alone tells it too.
    `api_key_env` names the variable that holds the key; the key itself is never stored.
    """

    base_url: Annotated[BaseUrl, WithJsonSchema(ONE_OR_SEVERAL)] = Field(
        description="such as http://127.0.0.1:8000, without the endpoint's path; of several servers, a list"
    )
    more_urls: tuple[BaseUrl, ...] = Field(
        default=(), strict=False, description="of further servers, where base_url is no list"
    )
    balance: Literal["round_robin", "random", "least_in_flight"] = Field(
        default="round_robin", description="which of several servers the next request goes to"
    )
    model: str | None = Field(default=None, description="left out, the only one that the server has")
    backend: BackendName | None = Field(
        default=None, description="which API, by the name that other benchmarks have for it"
    )
    endpoint: Endpoint = Field(default=CHAT, description="the API's path, such as /v1/completions")
    metrics: MetricsUrls = Field(
        default="auto",
        description="of its Prometheus metrics; auto: /metrics of each base_url; none: leave them",
    )
    api_key_env: Variable | None = Field(
        default=None, description="the environment variable that holds the key; none: no key at all"
    )
    headers: Headers = Field(
        default={}, repr=False, description="sent with every request; their values are never stored"
    )
    organization: str | None = Field(
        default=None, description="which organization pays: the header OpenAI-Organization"
    )
    project: str | None = Field(default=None, description="which project pays: the header OpenAI-Project")
    extra_body: JsonObject = Field(default={}, repr=False, description="merged into every request's body")
    connections: Literal["keep-alive", "fresh"] = Field(
        default="keep-alive", description="fresh: a new connection for every request"
    )
    ca_file: DataFile | None = Field(
        default=None, description="PEM file of the authority that signed the server's certificate"
    )
    insecure: bool = Field(default=False, description="do not verify the server's certificate")
    cert_file: DataFile | None = Field(default=None, description="PEM file of the client's own certificate")
    key_file: DataFile | None = Field(
        default=None, description="PEM file of its key, where cert_file does not hold it"
    )
    unix_socket: DataFile | None = Field(
        default=None, description="path of the socket to connect to, instead of base_url's host and port"
    )
    proxy: ProxyUrl | None = Field(
        default=None,
        repr=False,
        description="http://HOST:PORT of a proxy to go through; none: by no proxy at all",
    )
    accelerators: Count | None = Field(
        default=None, description="that answer, together: rates are given for each of them too"
    )
    usd_per_hour: Money | None = Field(
        default=None, description="what all of them cost in an hour: prices a million output tokens"
    )

    @model_validator(mode="before")
    @classmethod
    def _spelt_out(cls, data: Any) -> Any:
        """A list of base URLs, where a backend is found, and headers that have a name of their own."""
        if not isinstance(data, dict):
            return data
        if isinstance(urls := data.get("base_url"), list) and urls:
            _refuse_wrong(urls)
            data = data | {"base_url": urls[0], "more_urls": urls[1:]}
        backend = data.get("backend")
        if isinstance(backend, str) and backend in BACKENDS and data.get("endpoint") is None:
            data = data | {"endpoint": ENDPOINTS[BACKENDS[backend]]}
        payers = {header: data[key] for key, header in PAYERS.items() if isinstance(data.get(key), str)}
        if payers and isinstance(headers := data.get("headers", {}), dict):
            data = data | {"headers": payers | headers} | dict.fromkeys(PAYERS)
        return data

    @model_validator(mode="after")
    def _endpoint_tells(self) -> Self:
        told = dialect_at(self.endpoint)
        if self.backend is None and told is None:
            meant = faults.hint(self.endpoint, ENDPOINTS.values())
            rule = f"no API that is known by its path (backend says which it is){meant}"
            raise faults.InsideError(("endpoint",), rule)
        at = told and ENDPOINTS[told]
        if (
            at and told != self.dialect and at.startswith("/v1/") and at in self.endpoint
        ):  # none but OpenAI's own
            rule = f"{at} is not where {self.backend} is spoken: leave one of endpoint and backend out"
            raise faults.InsideError(("endpoint",), rule)
        return self

    @property
    def dialect(self) -> DialectName:
        """The API that it speaks."""
        if self.backend is not None:
            return BACKENDS[self.backend]
        found = dialect_at(self.endpoint)
        assert found is not None
        return found

    @property
    def urls(self) -> tuple[str, ...]:
        """The base URL of each server."""
        return (self.base_url, *self.more_urls)

    def each(self) -> list[Self]:
        """A target for each server."""
        return [self.model_copy(update={"base_url": url, "more_urls": ()}) for url in self.urls]

    @model_validator(mode="after")
    def _ways_agree(self) -> Self:
        of_tls = [name for name in ("ca_file", "insecure", "cert_file") if getattr(self, name)]
        if of_tls and not any(url.startswith("https:") for url in self.urls):
            raise ValueError(f"{of_tls[0]} is of use with TLS only: write https:// in base_url")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file is the key of a certificate: give cert_file too")
        if self.unix_socket and self.proxy not in (None, NO_PROXY):
            raise ValueError("a unix_socket is reached without a proxy: give one of them")
        if self.unix_socket and self.more_urls:
            raise ValueError("a unix_socket is one server: give one base_url")
        if len(set(self.urls)) < len(self.urls):
            raise faults.InsideError(("base_url",), "names a server twice")
        return self


def _refuse_wrong(urls: list[Any]) -> None:
    """What is wrong with one of a list is said of the key that the list was given for."""
    for url in urls:
        try:
            if not isinstance(url, str):
                raise ValueError("must be text, or a list of texts")
            base_url(url)
        except ValueError as problem:
            raise faults.InsideError(("base_url",), str(problem)) from None

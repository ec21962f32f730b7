"""Whom a target has us dial, and what is said of certificates that cannot serve."""

from __future__ import annotations

import base64
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loadgen.client.address import Address, Proxy, address
from loadgen.client.secrets import Secrets
from loadgen.scenario import ScenarioError
from loadgen.scenario import build as build_scenario
from loadgen.target import Target
from tests.fakes import self_signed


def of(base_url: str, **more: Any) -> Address:
    return address(Target(base_url=base_url, **more))


@pytest.mark.parametrize(
    ("base_url", "host", "port"),
    [
        ("http://gpu-7", "gpu-7", 80),
        ("https://gpu-7/api", "gpu-7", 443),
        ("http://10.0.0.7:8000/v1", "10.0.0.7", 8000),
        ("http://[::1]:8000", "::1", 8000),
        ("https://[2001:db8::7]", "2001:db8::7", 443),
    ],
)
def test_a_base_url_is_dialled_at_its_port_or_its_schemes(base_url: str, host: str, port: int) -> None:
    """Brackets are the URL's and no part of an IPv6 address; TLS there is with https and only with it."""
    found = of(base_url)
    assert (found.host, found.port) == found.dialled == (host, port)
    assert (found.tls is not None) == base_url.startswith("https:")


def test_a_proxy_is_dialled_in_the_targets_stead() -> None:
    """Who asks is told to it in Basic's form, percent signs undone; TLS still has to meet the target."""
    found = of("https://[::7]", proxy="http://me%40us:p%3Aw@proxy:3128")
    authorization = "Basic " + base64.b64encode(b"me@us:p:w").decode()
    assert found.proxy == Proxy("proxy", 3128, authorization)
    assert found.dialled == ("proxy", 3128)
    assert (found.authority, found.host, found.is_tunnelled) == ("[::7]:443", "::7", True)
    assert not of("http://gpu", proxy="http://[::8]").is_tunnelled
    assert of("http://gpu", proxy="http://[::8]").dialled == ("::8", 80)
    assert of("http://gpu", proxy="none").proxy is None


def test_a_proxys_password_is_shown_by_nothing() -> None:
    """Neither by what is kept of the scenario, nor by the address, nor where a server echoes it."""
    url = "http://user7:hunter2hunter2@proxy:3128"
    target = Target(base_url="http://gpu", proxy=url)
    asked = build_scenario(
        {
            "target": {"base_url": "http://gpu", "proxy": url},
            "load": {"arrivals": {"kind": "burst"}, "num_requests": 1},
        }
    ).as_asked()
    assert asked["target"]["proxy"] == "http://***@proxy:3128"
    encoded = base64.b64encode(b"user7:hunter2hunter2").decode()
    shown = repr(address(target)) + Secrets.of(target, None).masked(f"no hunter2hunter2, no {encoded}")
    assert "hunter2" not in shown
    assert encoded not in shown


def test_our_own_certificate_is_read_with_its_key(tmp_path: Path) -> None:
    """Whether the key has a file of its own or stands behind the certificate."""
    self_signed(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    assert of("https://gpu", cert_file=str(cert), key_file=str(key)).tls is not None
    assert of("https://gpu", cert_file=str(both)).tls is not None


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        ("gone.pem", "key.pem", "target.cert_file .*gone.pem': No such file"),
        ("cert.pem", "gone.pem", "target.key_file .*gone.pem': No such file"),
        ("cert.pem", None, "target.cert_file .*cert.pem': no PEM .* in the same file; give key_file"),
        ("cert.pem", "other/key.pem", "target.cert_file .*cert.pem': no PEM .* in '.*other/key.pem'"),
        ("junk.pem", "key.pem", "target.cert_file .*junk.pem': no PEM certificate"),
        ("cert.pem", "locked.pem", "target.key_file .*locked.pem': a password locks the key"),
    ],
)
def test_a_certificate_that_cannot_serve_is_one_line(
    cert: str, key: str | None, told: str, tmp_path: Path
) -> None:
    """It names the field, the file and what to do; nobody is asked for a password at the terminal."""
    (tmp_path / "other").mkdir()
    self_signed(tmp_path)
    self_signed(tmp_path / "other")
    (tmp_path / "junk.pem").write_text("junk")
    lock = f"openssl pkey -in {tmp_path}/key.pem -out {tmp_path}/locked.pem -aes128 -passout pass:secret"
    subprocess.run(lock.split(), check=True, capture_output=True)
    files = {"cert_file": str(tmp_path / cert), "key_file": key and str(tmp_path / key)}
    with pytest.raises(ScenarioError, match=told) as caught:
        of("https://gpu", **files)
    assert "\n" not in str(caught.value)


def test_insecure_shows_our_certificate_and_asks_for_none(tmp_path: Path) -> None:
    """The two have nothing to do with each other."""
    self_signed(tmp_path)
    tls = of(
        "https://gpu", insecure=True, cert_file=f"{tmp_path}/cert.pem", key_file=f"{tmp_path}/key.pem"
    ).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"base_url": "http://gpu", "cert_file": "a.pem"}, "write https:// in base_url"),
        ({"base_url": "https://gpu", "key_file": "a.pem"}, "give cert_file too"),
        ({"base_url": "http://gpu", "unix_socket": "s", "proxy": "http://p"}, "give one of them"),
        ({"base_url": "http://gpu", "proxy": "https://p"}, "that speak https are not supported"),
        (
            {"base_url": "http://gpu", "proxy": "socks5h://u:hunter2@p"},
            "socks5h are not supported",
        ),
        ({"base_url": "http://gpu", "proxy": "hunter2@p:3128"}, "write http://host:port, or none"),
        ({"base_url": "http://gpu", "proxy": "http://"}, "write http://host:port, or none"),
        ({"base_url": "http://gpu", "proxy": "http://p/hunter2"}, "without a path"),
        ({"base_url": "http://gpu", "proxy": "http://p:99999"}, "a port is a number"),
        ({"base_url": "http://gpu", "proxy": "http://[::1:3128"}, "brackets"),
        ({"base_url": "http://[::1:3128"}, "brackets"),
        ({"base_url": "http://gpu", "unix_socket": ""}, "must be the path of a file"),
    ],
)
def test_ways_that_lead_nowhere_are_refused_in_a_line(target: dict[str, Any], told: str) -> None:
    """With what to write instead, and never with the value, which may hold a password."""
    load = {"arrivals": {"kind": "burst"}, "num_requests": 1}
    with pytest.raises(ScenarioError, match=told) as caught:
        build_scenario({"target": target, "load": load})
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)

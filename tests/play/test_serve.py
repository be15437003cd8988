"""The server: its own files to its own machine, and a refusal for everything else."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import PAGE

from mgmem.errors import UsageError
from mgmem.play.serve import POLICY, Server, open_server
from mgmem.play.site import shipped_site


def ask(site, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", site.server_port, timeout=10)
    try:
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers
    finally:
        connection.close()


def send(site, content, patience=10):
    """Bytes as they are; what comes back until the server is done, or nothing."""
    with socket.create_connection(("127.0.0.1", site.server_port), timeout=patience) as line:
        try:
            line.sendall(content)
            line.shutdown(socket.SHUT_WR)
            reply = b""
            while part := line.recv(65536):
                reply += part
            return reply
        except ConnectionError:
            return b""


def still_serves(site):
    status, content, _ = ask(site)
    return status == 200 and content == (PAGE / "index.html").read_bytes()


def test_every_file_of_the_page_is_served_as_what_it_is(site):
    for name, content in shipped_site().items():
        status, served, headers = ask(site, f"/{name}")
        assert status == 200
        assert served == content
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert ask(site, "/js/main.js")[2]["Content-Type"].startswith("text/javascript")
    assert ask(site, "/")[1] == ask(site, "/index.html?whatever")[1]


def test_head_says_what_get_would_give(site):
    status, content, headers = ask(site, "/memory.bin", "HEAD")
    assert (status, content) == (200, b"")
    assert int(headers["Content-Length"]) == (PAGE / "memory.bin").stat().st_size


def test_the_policy_of_the_page_and_of_the_server_are_one(site):
    assert f'content="{POLICY}"' in (PAGE / "index.html").read_text()
    for path in ("/", "/nothing"):
        assert ask(site, path)[2]["Content-Security-Policy"].startswith(POLICY)
    text = (PAGE / "index.html").read_text()
    assert (
        re.findall(
            r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://(?!www\.w3\.org/2000/svg)", text
        )
        == []
    )


@pytest.mark.parametrize(
    "path",
    [
        "/../serve.py", "/js/../../serve.py", "/%2e%2e/serve.py", "/..%2fserve.py", "//etc/passwd",
        "/js/", "/js", "/memory.bin/", "/\\..\\serve.py", "/index.html%00",
        "/.git/config", "/js//main.js",
    ],
)  # fmt: skip
def test_there_is_no_way_out_of_the_page(site, path):
    assert ask(site, path)[0] == 404


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"]
)
def test_only_get_and_head_are_answered(site, method):
    assert ask(site, "/", method)[0] in (405, 501)


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "example.org:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.example.org:{port}",
        "",
    ],
)
def test_another_host_is_refused(site, host):
    assert ask(site, Host=host.format(port=site.server_port))[0] == 403


def test_the_own_names_are_not(site):
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert ask(site, Host=f"{name}:{site.server_port}")[0] == 200


def test_no_host_or_two_are_refused(site):
    assert b" 403 " in send(site, b"GET / HTTP/1.1\r\n\r\n")
    own = f"127.0.0.1:{site.server_port}".encode()
    assert b" 403 " in send(site, b"GET / HTTP/1.1\r\nHost: %s\r\nHost: evil\r\n\r\n" % own)


@pytest.mark.parametrize(
    "origin", ["https://example.org", "null", "http://127.0.0.1", "https://127.0.0.1:{port}"]
)
def test_another_origin_is_refused(site, origin):
    assert ask(site, Origin=origin.format(port=site.server_port))[0] == 403


def test_the_own_origin_is_not(site):
    assert ask(site, Origin=f"http://127.0.0.1:{site.server_port}")[0] == 200


def test_an_absolute_address_is_not_fetched(site):
    assert ask(site, "http://example.org/index.html")[0] in (403, 404)


@pytest.mark.parametrize(
    "content",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"",
    ],
)
def test_huge_and_malformed_requests_are_refused_and_it_keeps_serving(site, content):
    assert b" 200 " not in send(site, content).split(b"\r\n")[0]
    assert still_serves(site)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=300))
def test_no_bytes_bring_it_down(site, noise):
    send(site, noise)
    send(site, b"GET " + noise)
    assert still_serves(site)


def test_somebody_who_never_finishes_keeps_nobody_waiting(site):
    with socket.create_connection(("127.0.0.1", site.server_port)) as slow:
        slow.sendall(b"GET / HT")
        started = time.monotonic()
        assert still_serves(site)
        assert time.monotonic() - started < 5


def test_a_taken_port_leads_to_the_next_free_one(site):
    other = open_server({}, site.server_port)
    try:
        assert other.server_port > site.server_port
    finally:
        other.server_close()


def test_it_is_for_this_machine_only(site):
    assert site.server_address[0] == "127.0.0.1"
    with pytest.raises(UsageError, match="this machine only"):
        Server({}, 0, host="0.0.0.0")


@pytest.mark.parametrize("port", [-1, 65_536])
def test_ports_that_are_none_are_refused(port):
    with pytest.raises(UsageError, match="port"):
        open_server({}, port)


def test_the_command_serves_says_so_and_ends_with_ctrl_c(site):
    command = [
        sys.executable,
        "-m",
        "mgmem",
        "play",
        "--no-browser",
        "--port",
        str(site.server_port),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background inherit a Ctrl-C that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert f"port {site.server_port} is taken; using" in process.stdout.readline()
        line = process.stdout.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert complaints == ""

"""Bytes from a server into a file that grows, whatever the server and the network do meanwhile."""

import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from liveasr.clients.fetch import Fetch
from liveasr.clients.remote import RemoteFile
from liveasr.errors import FetchError, OutputError
from tests.file_server import Served, serving

CONTENT = np.random.default_rng(1).bytes(1_000_000)
SHA256 = "ab" * 32
NO_SERVERS = ("https://[::1/x", "http://\x01/x", "https://xn--a/x", f"http://{'x' * 70_000}/x", "http://", "ftp://x/y")
"""What cannot be the URL of a file, for reasons that different layers find."""


class Download:
    """A part in a folder, what was reported of it, and how it is fetched."""

    def __init__(self, folder: Path) -> None:
        self.part = folder / "x.gguf.part"
        self.identity = folder / "x.gguf.part.id"
        self.reports: list[tuple[int, int | None]] = []

    def __call__(
        self, url: str, *, size_bytes: int | None = None, sha256: str | None = None,
        patience_s: float = 5, stall_s: float = 5,
    ) -> bytes:  # fmt: skip
        fetch = Fetch(self.part, self.identity, lambda came, total: self.reports.append((came, total)))
        remote = RemoteFile(url, {"X-Mine": "yes"}, size_bytes, sha256)
        fetch.download(remote, patience_s=patience_s, stall_s=stall_s)
        return self.part.read_bytes()

    def begun(self, content: bytes, identity: str) -> None:
        self.part.write_bytes(content)
        self.identity.write_text(identity)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(CONTENT) as server:
        yield server


@pytest.fixture
def download(tmp_path: Path) -> Download:
    return Download(tmp_path)


def starts(served: Served) -> list[int]:
    return [start for _, _, start in served.asked]


# Whole.


def test_a_file_comes_whole_and_every_piece_is_told(served: Served, download: Download) -> None:
    assert download(f"{served.url}/a/x.gguf") == CONTENT
    assert served.asked == [("GET", "/a/x.gguf", 0)]
    assert served.seen[0]["x-mine"] == "yes"
    assert served.seen[0]["accept-encoding"] == "identity"
    assert download.reports[-1] == (len(CONTENT), len(CONTENT))
    assert [came for came, _ in download.reports] == sorted(came for came, _ in download.reports)
    assert len(download.reports) > 5


def test_a_file_of_untold_length_comes_whole(served: Served, download: Download) -> None:
    served.length = None
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert download.reports[-1] == (len(CONTENT), None)


def test_an_empty_file_comes_too(served: Served, download: Download) -> None:
    served.content = b""
    assert download(f"{served.url}/x.gguf") == b""


# Broken off.


@pytest.mark.parametrize("etag", ['"one"', 'W/"weak"'])
def test_what_breaks_off_is_gone_on_with(served: Served, download: Download, etag: str) -> None:
    served.etag = etag
    served.break_at = [300_000, 300_001, 900_000]
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert starts(served) == [0, 300_000, 300_001, 900_000]


def test_what_an_earlier_process_left_is_gone_on_with(served: Served, download: Download) -> None:
    download.begun(CONTENT[:400_000], '"one"')
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert starts(served) == [400_000]
    assert download.reports[0][0] > 400_000


def test_an_identity_that_is_no_text_is_that_of_nothing(served: Served, download: Download) -> None:
    download.begun(b"x" * 400_000, "")
    download.identity.write_bytes(b"\xff\xfe")
    assert download(f"{served.url}/x.gguf") == CONTENT


def test_a_known_sha256_says_that_it_is_the_same_file_on_any_server(served: Served, download: Download) -> None:
    download.begun(CONTENT[:400_000], SHA256)
    served.etag = '"another server"'
    assert download(f"{served.url}/x.gguf", sha256=SHA256) == CONTENT
    assert starts(served) == [400_000]


@pytest.mark.parametrize(
    ("identity", "etag", "sha256"),
    [
        ('"zero"', '"one"', None),
        ("", '"one"', None),
        ('"one"', None, None),
        ('"one"', '"one"', SHA256),
        ("cd" * 32, '"one"', SHA256),
    ],
)
def test_the_beginning_of_another_version_is_not_gone_on_with(
    served: Served, download: Download, identity: str, etag: str | None, sha256: str | None
) -> None:
    download.begun(b"old" * 100_000, identity)
    served.etag = etag
    assert download(f"{served.url}/x.gguf", sha256=sha256) == CONTENT
    assert starts(served)[-1] == 0


def test_a_file_that_changes_while_it_comes_is_begun_anew(served: Served, download: Download) -> None:
    download.begun(b"old" * 100_000, '"one"')
    served.etag, served.headers = None, {"Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT"}
    served.break_at = [1_000_000, 500_000]  # the first answer is of no use
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert starts(served) == [300_000, 0, 500_000]


def test_a_server_that_knows_no_ranges_sends_all_again(served: Served, download: Download) -> None:
    served.ranges = False
    served.break_at = [300_000]
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert starts(served) == [0, 300_000]


def test_a_server_that_knows_no_ranges_and_always_breaks_off_is_given_up(served: Served, download: Download) -> None:
    served.ranges = False
    served.break_at = [300_000] * 100
    with pytest.raises(
        FetchError, match=r"the connection to 127\.0\.0\.1:\d+ failed \(.+\); try again, or liveasr models pull --from"
    ):
        download(f"{served.url}/x.gguf", patience_s=1)
    assert 2 <= len(served.asked) <= 6


def test_more_than_all_was_left_behind(served: Served, download: Download) -> None:
    download.begun(CONTENT + b"more", '"one"')
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert starts(served) == [len(CONTENT) + 4, 0]


def test_all_was_there_before_the_last_process_was_stopped(served: Served, download: Download) -> None:
    download.begun(CONTENT, SHA256)
    assert download(f"{served.url}/x.gguf", size_bytes=len(CONTENT), sha256=SHA256) == CONTENT
    assert served.asked == []


def test_a_stalled_connection_is_put_up_again(served: Served, download: Download) -> None:
    served.stall_at = [200_000]
    assert download(f"{served.url}/x.gguf", stall_s=0.3) == CONTENT
    assert starts(served) == [0, 200_000]


def test_a_server_that_stalls_for_good_is_given_up_and_what_came_is_kept(served: Served, download: Download) -> None:
    served.stall_at = [200_000] * 100
    with pytest.raises(
        FetchError, match=r"127\.0\.0\.1:\d+ has stopped sending; try again, or liveasr models pull --from"
    ):
        download(f"{served.url}/x.gguf", stall_s=0.3, patience_s=0.5)
    assert download.part.read_bytes() == CONTENT[:200_000]


# Stopped.


def test_who_stops_a_fetch_ends_it_with_the_next_piece_and_keeps_what_came(served: Served, tmp_path: Path) -> None:
    stop = threading.Event()
    part, identity = tmp_path / "part", tmp_path / "id"
    fetch = Fetch(part, identity, lambda came, _total: stop.set() if came > 300_000 else None, stop)
    with pytest.raises(FetchError, match="the fetch was stopped"):
        fetch.download(RemoteFile(f"{served.url}/x.gguf"))
    assert 300_000 < part.stat().st_size < len(CONTENT)
    assert CONTENT.startswith(part.read_bytes())
    assert identity.read_text() == '"one"'
    with pytest.raises(FetchError, match="the fetch was stopped"):
        Fetch(part, identity, lambda _came, _total: None, stop).copy(Path(__file__))


def test_who_stops_a_fetch_does_not_wait_until_it_is_tried_again(served: Served, tmp_path: Path) -> None:
    class StoppedWhileItWaits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout
            self.set()
            return True

    served.break_at = [300_000]
    part, identity, stop = tmp_path / "part", tmp_path / "id", StoppedWhileItWaits()
    with pytest.raises(FetchError, match="the fetch was stopped"):
        Fetch(part, identity, lambda _came, _total: None, stop).download(RemoteFile(f"{served.url}/x.gguf"))
    assert starts(served) == [0]
    assert part.read_bytes() == CONTENT[:300_000]


# Lies and refusals.


@pytest.mark.parametrize("difference", [1, -1])
def test_a_length_that_is_not_the_expected_one_is_refused_at_once(
    served: Served, download: Download, difference: int
) -> None:
    with pytest.raises(FetchError, match=rf"would send 1000000 bytes where {1_000_000 + difference} were expected"):
        download(f"{served.url}/x.gguf", size_bytes=len(CONTENT) + difference)
    assert not download.part.exists()


def test_a_length_longer_than_what_comes_is_a_broken_connection(served: Served, download: Download) -> None:
    served.length = 10
    with pytest.raises(FetchError, match="try again"):
        download(f"{served.url}/x.gguf", patience_s=0.5)


def test_a_file_of_untold_length_that_ends_too_early_is_one_too(served: Served, download: Download) -> None:
    served.length = None
    served.break_at = [10_000] * 100
    served.ranges = False
    with pytest.raises(FetchError, match=r"sent 10000 of 1000000 bytes"):
        download(f"{served.url}/x.gguf", size_bytes=len(CONTENT), patience_s=0.3)


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        (404, r"has no /below/x\.gguf; liveasr models pull --from names another source"),
        (401, r"does not give /below/x\.gguf to everyone \(401\)"),
        (403, r"does not give /below/x\.gguf to everyone \(403\)"),
        (410, "answered 410 Gone"),
        (429, "answered 429 Too Many Requests; try again later"),
        (500, "answered 500 Internal Server Error; try again later"),
        (799, "answered 799; try again later"),
    ],
)
def test_a_refusal_is_one_line(served: Served, download: Download, status: int, complaint: str) -> None:
    served.status = status
    with pytest.raises(FetchError, match=rf"^127\.0\.0\.1:\d+ {complaint}") as caught:
        download(f"{served.url}/below/x.gguf")
    assert str(caught.value).isprintable()
    assert not download.part.exists()


def test_a_server_that_is_busy_in_between_is_waited_for(served: Served, download: Download) -> None:
    served.break_at = [300_000]
    served.statuses = [None, 503, 429]
    assert download(f"{served.url}/x.gguf") == CONTENT
    assert starts(served) == [0, 300_000, 300_000, 300_000]


def test_redirects_are_followed_and_secrets_stay_at_home(served: Served, tmp_path: Path) -> None:
    with serving(b"") as front:
        front.redirect_to = f"{served.url}/elsewhere"
        remote = RemoteFile(f"{front.url}/x.gguf", {"Authorization": "Bearer secret"})
        Fetch(tmp_path / "part", tmp_path / "id", lambda _came, _total: None).download(remote)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert front.seen[0]["authorization"] == "Bearer secret"
    assert served.asked == [("GET", "/elsewhere", 0)]
    assert "authorization" not in served.seen[0]


def test_a_redirect_in_a_circle_is_told(served: Served, download: Download) -> None:
    served.redirect_to = f"{served.url}/again"
    with pytest.raises(FetchError, match=r"the connection to 127\.0\.0\.1:\d+ failed \(.*redirects"):
        download(f"{served.url}/x.gguf")


def test_no_server_is_told_at_once(download: Download) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(
            FetchError, match=rf"no connection to 127\.0\.0\.1:{port} \(Connection refused\); is there a network"
        ):
            download(f"http://127.0.0.1:{port}/x.gguf")


@pytest.mark.parametrize(
    ("proxy", "complaint"),
    [
        ("gopher://127.0.0.1:1", "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names is none: "),
        ("socks5://127.0.0.1:PORT", r"no connection to no\.invalid "),
        ("http://127.0.0.1:PORT", r"no connection to no\.invalid "),
    ],
)
def test_a_proxy_that_is_not_there_is_told(
    download: Download, monkeypatch: pytest.MonkeyPatch, proxy: str, complaint: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ALL_PROXY", proxy.replace("PORT", str(nobody.getsockname()[1])))
        with pytest.raises(FetchError, match=complaint) as caught:
            download("http://no.invalid/x.gguf")
    assert str(caught.value).isprintable()


def test_an_address_that_is_none_is_told(download: Download) -> None:
    for url in ("http://[x/y.gguf", "http://a b/x.gguf", "http://no.invalid/x.gguf", *NO_SERVERS):
        with pytest.raises(FetchError) as caught:
            download(url, patience_s=0)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("url", NO_SERVERS)
def test_a_redirect_to_what_is_no_server_is_told(served: Served, download: Download, url: str) -> None:
    served.redirect_to = url[:10_000]
    with pytest.raises(FetchError) as caught:
        download(f"{served.url}/x.gguf", patience_s=0)
    assert str(caught.value).isprintable()


def test_it_is_the_server_that_does_not_answer_that_is_named(served: Served, download: Download) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        served.redirect_to = f"http://{place}/x.gguf"
        with pytest.raises(FetchError, match=f"^no connection to {place} "):
            download(f"{served.url}/x.gguf", patience_s=0)


def test_certificates_that_are_not_there_are_told(download: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(FetchError, match=r"^the certificates that SSL_CERT_FILE or .* cannot be read: No such file"):
        download("https://127.0.0.1:1/x.gguf")


# The disk.


def test_too_little_space_is_told_before_anything_comes(
    served: Served, download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(download.part.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=999_999))
    with pytest.raises(
        OutputError, match=r"the disk is full: 1\.0 MB are needed, 1\.0 MB are free; make room, or let LIVE"
    ):
        download(f"{served.url}/x.gguf")
    assert not download.part.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("size", [20, len(CONTENT)])
def test_a_disk_that_fills_meanwhile_is_told(served: Served, download: Download, size: int) -> None:
    download.part.symlink_to("/dev/full")
    served.content = CONTENT[:size]
    with pytest.raises(OutputError, match=re.escape(f"{download.part.parent}: the disk is full; make room, or let")):
        download(f"{served.url}/x.gguf")


def test_a_folder_that_may_not_be_written_is_named(served: Served, tmp_path: Path) -> None:
    (tmp_path / "x.gguf.part").mkdir()
    with pytest.raises(OutputError, match=re.escape(f"{tmp_path / 'x.gguf.part'}: cannot be written: Is a directory")):
        Download(tmp_path)(f"{served.url}/x.gguf")


# From a folder.


def test_a_file_of_this_computer_is_copied(tmp_path: Path, download: Download) -> None:
    source = tmp_path / "source.gguf"
    source.write_bytes(CONTENT)
    download.begun(b"old", "old")
    Fetch(download.part, download.identity, lambda came, total: download.reports.append((came, total))).copy(source)
    assert download.part.read_bytes() == CONTENT
    assert download.identity.read_text() == ""
    assert download.reports == [(len(CONTENT), len(CONTENT))]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, download: Download) -> None:
    with pytest.raises(FetchError, match=re.escape(f"{tmp_path}: cannot be read: Is a directory")):
        Fetch(download.part, download.identity, lambda _came, _total: None).copy(tmp_path)

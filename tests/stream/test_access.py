"""Who may connect: every way to bring a token, and the ways that strangers try."""

from http import HTTPStatus

import pytest

from liveasr.errors import UsageError
from liveasr.stream.access import Access, Asked, host_name, is_loopback, token_of

HOME = "127.0.0.1:8765"


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "127.0.0.1", "localhost:8765", "[::1]:8765", "app.localhost:80"])
def test_without_a_token_this_computer_is_welcome_by_its_own_names(host: str) -> None:
    assert Access().refusal(Asked(host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "evil.example@localhost",
        "localhost/evil.example",
        "10.0.0.1",
        "[::",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str) -> None:
    assert Access().refusal(Asked(host)) is HTTPStatus.FORBIDDEN
    assert Access().refusal(Asked(host, f"http://{host}")) is HTTPStatus.FORBIDDEN


def test_serving_everyone_takes_any_name() -> None:
    assert Access(local_only=False).refusal(Asked("captions.example")) is None


def test_with_a_token_any_name_will_do() -> None:
    assert Access("secret").refusal(Asked("captions.example", token="secret")) is None  # noqa: S106 - not a real one


@pytest.mark.parametrize("token", [None, "", "Secret", "secret ", "secre", "secrets", "sécret", "\ud800"])
def test_any_other_token_is_refused(token: str | None) -> None:
    assert Access("secret").refusal(Asked(HOME, token=token)) is HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("token", ["", "two words", "schlüssel", "line\n"])
def test_a_token_that_no_header_can_carry_is_refused_at_once(token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        Access(token)


def test_a_page_of_the_server_itself_is_welcome() -> None:
    assert Access().refusal(Asked(HOME, f"http://{HOME}")) is None
    assert Access().refusal(Asked(HOME, f"https://{HOME}")) is None


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://localhost:8765",
        f"chrome-extension://{HOME}",
        f"http://{HOME}/",
        "",
        "file://",
        "http://[::",
    ],
)
def test_a_page_of_another_origin_is_refused_with_and_without_a_token(origin: str) -> None:
    assert Access().refusal(Asked(HOME, origin)) is HTTPStatus.FORBIDDEN
    assert Access("secret").refusal(Asked(HOME, origin, "secret")) is HTTPStatus.FORBIDDEN


def test_a_page_of_an_allowed_origin_is_welcome() -> None:
    access = Access(origins=("http://127.0.0.1:9999", "null"))
    assert access.refusal(Asked(HOME, "http://127.0.0.1:9999")) is None
    assert access.refusal(Asked(HOME, "null")) is None
    assert access.refusal(Asked(HOME, "http://127.0.0.1:999")) is HTTPStatus.FORBIDDEN
    assert Access(origins=("*",)).refusal(Asked(HOME, "http://anywhere.example")) is None


@pytest.mark.parametrize(
    "origin",
    [
        "app.example",
        "https://App.example",
        "https://a@app.example",
        "https://app.example/",
        "https://app.example/path",
        "http://[::",
        "",
    ],
)
def test_an_origin_that_is_none_is_refused_at_once(origin: str) -> None:
    with pytest.raises(UsageError, match="no origin"):
        Access(origins=(origin,))


@pytest.mark.parametrize("origin", ["https://app.example:443", "http://app.example:80"])
def test_a_port_that_browsers_leave_out_is_refused_at_once(origin: str) -> None:
    with pytest.raises(UsageError, match="leave this port out"):
        Access(origins=(origin,))


def test_a_proxy_may_pass_on_the_name_of_an_allowed_origin() -> None:
    access = Access(origins=("https://captions.example",))
    assert access.refusal(Asked("captions.example", "https://captions.example")) is None
    assert access.refusal(Asked("other.example")) is HTTPStatus.FORBIDDEN


def test_a_token_comes_in_a_header_the_query_a_subprotocol_or_a_cookie() -> None:
    assert token_of({"authorization": "Bearer a"}, {}, {}, []) == "a"
    assert token_of({"authorization": "bearer  a "}, {}, {}, []) == "a"
    assert token_of({}, {"token": "b"}, {}, []) == "b"
    assert token_of({}, {}, {}, ["liveasr.v1", "liveasr.token.c"]) == "c"
    assert token_of({}, {}, {"liveasr_token": "d"}, ["liveasr.v1"]) == "d"
    assert token_of({"host": "a:81"}, {}, {"liveasr_token_81": "d", "liveasr_token_82": "e"}, []) == "d"
    assert token_of({"authorization": "Basic a"}, {}, {}, []) is None
    assert token_of({}, {}, {}, []) is None


@pytest.mark.parametrize(
    ("host", "name"), [("a.example:80", "a.example"), ("[::1]:80", "::1"), ("LOCALHOST", "localhost"), ("[", "")]
)
def test_the_name_of_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


def test_loopback_names_and_addresses() -> None:
    assert all(is_loopback(name) for name in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(name) for name in ("0.0.0.0", "::", "10.0.0.1", "example.org", "notlocalhost", ""))  # noqa: S104

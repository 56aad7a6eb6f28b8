"""What is told of a model on its way: how much, how fast, how long; and which state a model is in."""

import pytest

from liveasr.model_registry import RegisteredFile, RegisteredModel
from liveasr.stream.pull_state import OnDisk, Pull, PullInfo, PullProgress, describe

FILES = ("encoder.gguf", "writer.gguf")


def model(*sizes: int | None) -> RegisteredModel:
    files = tuple(
        RegisteredFile(name, {"url": "https://x.test/"}, size) for name, size in zip(FILES, sizes, strict=True)
    )
    return RegisteredModel("pair", ("zh", "en"), "MIT", {"q8": files, "f32": files})


def described(
    *,
    installed: bool = False,
    begun_bytes: int = 0,
    served_as: str | None = None,
    pull: Pull | None = None,
    error: str | None = None,
    now_s: float = 0,
) -> PullInfo:
    on_disk = OnDisk(installed, begun_bytes)
    return describe(model(300, 700), on_disk, served_as=served_as, pull=pull, error=error, now_s=now_s)


def progress(pull: Pull, now_s: float) -> PullProgress:
    found = pull.progress(now_s)
    assert found is not None
    return found


def test_nothing_is_told_before_the_first_file_is_begun() -> None:
    pull = Pull("pair", FILES)
    assert pull.progress(100) is None
    pull.begin("encoder.gguf")
    assert pull.progress(100) == PullProgress(
        file="encoder.gguf", number=1, files=2, came_bytes=0, total_bytes=None, bytes_per_s=None, left_s=None
    )


def test_speed_and_time_left_follow_from_what_came() -> None:
    pull = Pull("pair", FILES)
    pull.begin("writer.gguf")
    for second in range(4):
        pull.came(100 * second, 1000, 10 + second)
    found = progress(pull, 13)
    assert (found.number, found.came_bytes, found.total_bytes) == (2, 300, 1000)
    assert (found.bytes_per_s, found.left_s) == (100, 7)


def test_what_an_earlier_fetch_left_is_no_speed() -> None:
    pull = Pull("pair", FILES)
    pull.begin("encoder.gguf")
    pull.came(900_000, 1_000_000, 10)
    assert progress(pull, 10.5).bytes_per_s is None
    pull.came(920_000, 1_000_000, 12)
    assert (progress(pull, 12).bytes_per_s, progress(pull, 12).left_s) == (10_000, 8)


def test_the_speed_is_that_of_the_last_seconds_and_falls_to_nothing_when_nothing_comes() -> None:
    pull = Pull("pair", FILES)
    pull.begin("encoder.gguf")
    for tenth in range(200):  # ten seconds at 1000 a second, then ten at 10
        came = tenth * 100 if tenth < 100 else 10_000 + tenth - 100
        pull.came(came, 1_000_000, tenth / 10)
    assert progress(pull, 19.9).bytes_per_s == 10
    speeds = [progress(pull, 19.9 + second).bytes_per_s or 0 for second in range(7)]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[-1] == 0
    assert progress(pull, 26).left_s is None


def test_a_source_that_tells_no_length_leaves_the_rest_open() -> None:
    pull = Pull("pair", FILES)
    pull.begin("encoder.gguf")
    pull.came(0, None, 0)
    pull.came(500, None, 2)
    assert (progress(pull, 2).bytes_per_s, progress(pull, 2).left_s) == (250, None)


def test_the_next_file_begins_at_nothing() -> None:
    pull = Pull("pair", FILES)
    pull.begin("encoder.gguf")
    pull.came(0, 300, 0)
    pull.came(300, 300, 2)
    pull.begin("writer.gguf")
    assert progress(pull, 2) == PullProgress(
        file="writer.gguf", number=2, files=2, came_bytes=0, total_bytes=None, bytes_per_s=None, left_s=None
    )


@pytest.mark.parametrize(
    ("installed", "begun_bytes", "served_as", "error", "state"),
    [
        (False, 0, None, None, "available"),
        (False, 10, None, None, "begun"),
        (True, 0, None, None, "installed"),
        (True, 10, "pair-f32", None, "served"),
        (False, 10, None, "no network", "failed"),
        (True, 0, "pair-f32", "no network", "served"),  # someone else installed it meanwhile
    ],
)
def test_a_model_nobody_fetches_is_as_the_disk_has_it(
    installed: bool, begun_bytes: int, served_as: str | None, error: str | None, state: str
) -> None:
    other = Pull("another", ["x.gguf"])
    found = described(installed=installed, begun_bytes=begun_bytes, served_as=served_as, error=error, pull=other)
    assert (found.state, found.begun_bytes, found.served_as) == (state, begun_bytes, served_as)
    assert found.error == (error if state == "failed" else None)
    assert found.progress is None


def test_a_model_on_its_way_is_fetched_then_opened() -> None:
    pull = Pull("pair", FILES)
    assert (described(pull=pull).state, described(pull=pull).progress) == ("fetching", None)
    pull.begin("encoder.gguf")
    pull.came(10, 20, 0)
    found = described(pull=pull, begun_bytes=10)
    assert (found.state, found.progress) == ("fetching", pull.progress(0))
    pull.open()
    assert (described(pull=pull).state, described(pull=pull).progress) == ("opening", None)


@pytest.mark.parametrize(("sizes", "size_bytes"), [((300, 700), 1000), ((300, None), None), ((None, None), None)])
def test_the_size_is_told_where_all_of_it_is_known(sizes: tuple[int | None, ...], size_bytes: int | None) -> None:
    nothing = OnDisk(installed=False, begun_bytes=0)
    found = describe(model(*sizes), nothing, served_as=None, pull=None, error=None, now_s=0)
    assert (found.name, found.languages, found.licence) == ("pair", ("zh", "en"), "MIT")
    assert found.size_bytes == size_bytes

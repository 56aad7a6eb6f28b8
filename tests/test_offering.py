"""Models as a server offers them: those it begins with, and those that join it later."""

from pathlib import Path

import pytest

from liveasr import offering, options, store
from liveasr.engines import sensevoice
from liveasr.errors import ModelFileError
from liveasr.offering import Offers
from liveasr.stream.service import OfferedModel
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, said
from tests.models import write_model

SENSEVOICE = sensevoice.ARCHITECTURE
WRITER = FakeAutoregressiveEngine([said("a")])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_server_gives_the_partials_of_another_model_to_those_that_need_it(folder: Path) -> None:
    path = write_model(folder / "sensevoice-small-q8.gguf", SENSEVOICE, "q8_0")
    offered = [OfferedModel("plain", [FakeEngine([said("a")])]), OfferedModel("fun-asr-nano", [WRITER])]

    def chosen(wanted: str | None) -> tuple[list[bool], Path | None]:
        models, found = offering.with_partials(offered, wanted)
        assert [model.name for model in models] == ["plain", "fun-asr-nano"]
        return [model.two_pass for model in models], found

    assert chosen(None) == ([False, True], path)
    assert chosen("digits") == ([True, True], store.built_in("digits"))
    assert chosen("none")[1] is None


# Those that join later.


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeEngine]:
    """Every file is opened as a stand-in, of one that writes where it is called nano; those that were, by name."""
    found: dict[str, FakeEngine] = {}

    def open_engine(path: Path, _threads: int | None = None) -> FakeEngine:
        if path.stem == "broken":
            raise ModelFileError(path, "is broken")
        made = FakeAutoregressiveEngine([said("a")]) if path.stem.startswith("nano") else FakeEngine([said("a")])
        found[path.stem] = made
        return made

    monkeypatch.setattr(offering, "open_engine", open_engine)
    monkeypatch.setattr(options, "open_engine", open_engine)
    return found


@pytest.mark.usefixtures("opened")
def test_a_model_of_the_registry_may_be_called_as_it_is_there(folder: Path) -> None:
    path = write_model(folder / "sensevoice-small-q8.gguf", SENSEVOICE, "q8_0")
    (offer,), _ = Offers(None, "none").open([path])
    assert (offer.name, list(offer.also)) == ("sensevoice-small-q8", ["sensevoice-small", "sensevoice-small:q8"])


def test_one_that_writes_brings_the_best_other_model_for_its_partials(
    folder: Path, opened: dict[str, FakeEngine]
) -> None:
    offers = Offers(threads=1, partials=None)
    assert offers.open([store.built_in("digits")])[1] is None
    plain, partials = offers.open_another(folder / "plain.gguf")
    assert (plain.name, plain.two_pass, plain.demonstration, partials) == ("plain", False, False, None)
    write_model(folder / "sensevoice-small-q8.gguf", SENSEVOICE, "q8_0")
    writer, partials = offers.open_another(folder / "nano.gguf")
    assert writer.two_pass
    assert partials is not None
    assert (partials[0], partials[1][-1]) == ("sensevoice-small-q8", opened["sensevoice-small-q8"])
    second, partials = offers.open_another(folder / "nano-2.gguf")  # shares them
    assert (second.two_pass, partials) == (True, None)


def test_one_that_wants_others_than_the_server_has_does_without(folder: Path, opened: dict[str, FakeEngine]) -> None:
    write_model(folder / "sensevoice-small-q8.gguf", SENSEVOICE, "q8_0")
    offers = Offers(threads=1, partials=None)
    assert offers.open([folder / "nano.gguf"])[1] is not None
    write_model(folder / "sensevoice-small-f16.gguf", SENSEVOICE, "f16")  # better
    writer, partials = offers.open_another(folder / "nano-2.gguf")
    assert (writer.two_pass, partials) == (False, None)
    assert not opened["nano-2"].closed


def test_what_cannot_be_opened_leaves_nothing_open(
    folder: Path, opened: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = Offers(threads=1, partials=None)
    offers.open([store.built_in("digits")])
    with pytest.raises(ModelFileError, match="is broken"):
        offers.open_another(folder / "broken.gguf")
    monkeypatch.setattr(offering, "partials_for", lambda *_: folder / "broken.gguf")
    with pytest.raises(ModelFileError, match="is broken"):
        offers.open_another(folder / "nano.gguf")
    assert opened["nano"].closed
    monkeypatch.setattr(offering, "partials_for", lambda *_: folder / "plain.gguf")
    assert offers.open_another(folder / "nano.gguf")[1] is not None  # what failed is not taken for what is there

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from liveasr.clients.targets import STDIN, Job, OutputFile, Recording, find_recordings, plan
from liveasr.clients.writers import Format
from liveasr.errors import AudioError, OutputError, UsageError


def make(folder: Path, *names: str) -> list[Path]:
    """Files with their own names in them."""
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name, encoding="utf-8")
    return paths


def found(*paths: Path) -> list[str]:
    """Names of the recordings below the given paths, of which nothing must be wrong."""
    problems, recordings = find_recordings(paths)
    assert problems == []
    return [str(recording.relative) for recording in recordings]


def complaints(*paths: Path) -> list[str]:
    problems, recordings = find_recordings(paths)
    assert recordings == []
    return [str(problem) for problem in problems]


def planned(
    paths: list[Path], formats: list[Format], output: Path | None, *, force: bool = False
) -> dict[str, list[str]]:
    """Name of each recording -> where its formats go, below the folder of the first recording."""
    recordings = find_recordings(paths)[1]
    jobs = plan(recordings, formats, None if output is None else str(output), force=force)
    for job in jobs:
        for format_, path in job.outputs:
            assert path is None or path.suffix == f".{format_}" or path == output
    return {job.recording.name: [path.name for _, path in job.outputs if path] for job in jobs}


# Which recordings.


def test_a_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert find_recordings(make(tmp_path, "talk.xyz", "noending")) == (
        [],
        [Recording(tmp_path / "talk.xyz", Path("talk.xyz")), Recording(tmp_path / "noending", Path("noending"))],
    )


def test_a_missing_file_is_left_for_the_reader_to_tell(tmp_path: Path) -> None:
    assert found(tmp_path / "missing.wav") == ["missing.wav"]


def test_stdin_has_a_name_to_write_under() -> None:
    assert find_recordings([STDIN]) == ([], [Recording(STDIN, Path("stdin"))])


def test_a_folder_means_all_recordings_below_it_in_order(tmp_path: Path) -> None:
    make(tmp_path, "b.wav", "a.MP3", "c/d.webm", "c/a.m4a", "notes.txt", "a.srt", "cover.jpg", "c/e/f.opus")
    assert found(tmp_path) == ["a.MP3", "b.wav", "c/a.m4a", "c/d.webm", "c/e/f.opus"]


@pytest.mark.parametrize(
    "ending", ["wav", "flac", "ogg", "opus", "mp3", "m4a", "webm", "mp4", "mkv", "mov", "aac", "wma"]
)
def test_a_folder_means_every_common_format(ending: str, tmp_path: Path) -> None:
    make(tmp_path, f"x.{ending}")
    assert found(tmp_path) == [f"x.{ending}"]


def test_what_is_hidden_in_a_folder_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, "talk.mp3", "._talk.mp3", ".trash/old.wav")
    assert found(tmp_path) == ["talk.mp3"]
    assert found(tmp_path / "._talk.mp3") == ["._talk.mp3"]
    assert found(tmp_path / ".trash") == ["old.wav"]


def test_transcripts_in_a_folder_are_no_recordings(tmp_path: Path) -> None:
    make(tmp_path, "talk.mp3", "talk.json", "talk.txt", "talk.srt", "talk.vtt", "talk.tsv", "talk.json.part")
    assert found(tmp_path) == ["talk.mp3"]


@pytest.mark.parametrize("names", [[], ["notes.txt"]])
def test_a_folder_without_recordings_is_told(names: list[str], tmp_path: Path) -> None:
    make(tmp_path, *names)
    assert complaints(tmp_path) == [f"{tmp_path}: has no recordings in it"]


class Locked:
    """Folders and files that nobody may look into; root may look into all real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._locked: set[Path] = set()
        scandir, stat = os.scandir, os.stat

        def guarded_scandir(path: str) -> Iterator[os.DirEntry[str]]:
            self._check(Path(path))
            return scandir(path)

        def guarded_stat(path: object, **options: object) -> os.stat_result:
            if isinstance(path, str | Path):
                for parent in Path(path).parents:
                    self._check(parent)
            return stat(path, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "scandir", guarded_scandir)
        monkeypatch.setattr(os, "stat", guarded_stat)

    def add(self, path: Path) -> None:
        self._locked.add(path)

    def _check(self, path: Path) -> None:
        if path in self._locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Locked:
    return Locked(monkeypatch)


def test_a_folder_that_may_not_be_read_is_told_once(tmp_path: Path, locked: Locked) -> None:
    make(tmp_path, "a.wav")
    locked.add(tmp_path)
    assert complaints(tmp_path) == [f"{tmp_path}: cannot be read: Permission denied"]


def test_a_folder_that_may_not_be_read_keeps_no_other_from_being_read(tmp_path: Path, locked: Locked) -> None:
    make(tmp_path, "a/a.wav", "b/b.wav", "c.wav")
    locked.add(tmp_path / "a")
    problems, recordings = find_recordings([tmp_path])
    assert [str(problem) for problem in problems] == [f"{tmp_path / 'a'}: cannot be read: Permission denied"]
    assert [str(recording.relative) for recording in recordings] == ["b/b.wav", "c.wav"]


def test_a_file_in_a_locked_folder_is_left_for_the_reader_to_tell(tmp_path: Path, locked: Locked) -> None:
    locked.add(tmp_path)
    assert found(tmp_path / "a.wav") == ["a.wav"]


def test_an_output_in_a_locked_folder_is_left_for_the_writer_to_tell(tmp_path: Path, locked: Locked) -> None:
    (recording,) = make(tmp_path / "in", "a.wav")
    locked.add(tmp_path / "out")
    assert planned([recording], ["txt"], tmp_path / "out" / "a.txt") == {"a.wav": ["a.txt"]}


# What goes where.


def test_without_an_output_all_goes_to_stdout(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a.wav", "b.wav")
    assert plan(find_recordings([a, b])[1], ["srt"], None, force=False) == [
        Job(a, (("srt", None),)),
        Job(b, (("srt", None),)),
    ]


def test_several_formats_do_not_fit_on_stdout(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several formats need files to go to: add --output FOLDER"):
        planned(make(tmp_path, "a.wav"), ["srt", "txt"], None)


def test_one_recording_in_one_format_goes_to_the_file_that_is_named(tmp_path: Path) -> None:
    output = tmp_path / "transcripts" / "Talk of Monday"
    assert plan(find_recordings(make(tmp_path, "a.wav"))[1], ["srt"], str(output), force=False) == [
        Job(tmp_path / "a.wav", (("srt", output),))
    ]


def test_an_output_that_is_a_folder_gets_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (job,) = plan(find_recordings(make(tmp_path, "a.wav"))[1], ["srt"], str(tmp_path / "out"), force=False)
    assert job.outputs == (("srt", tmp_path / "out" / "a.srt"),)


def test_several_recordings_and_formats_get_a_file_each(tmp_path: Path) -> None:
    paths = make(tmp_path, "a.wav", "b.mp3")
    assert planned(paths, ["srt", "txt"], tmp_path / "out") == {
        "a.wav": ["a.srt", "a.txt"],
        "b.mp3": ["b.srt", "b.txt"],
    }


def test_a_folder_keeps_its_shape(tmp_path: Path) -> None:
    make(tmp_path / "in", "talk.wav", "monday/talk.wav", "tuesday/late/talk.wav")
    jobs = plan(find_recordings([tmp_path / "in"])[1], ["txt"], str(tmp_path / "out"), force=False)
    assert [job.outputs[0][1] for job in jobs] == [
        tmp_path / "out" / name for name in ("monday/talk.txt", "talk.txt", "tuesday/late/talk.txt")
    ]


def test_recordings_that_differ_in_their_ending_keep_it(tmp_path: Path) -> None:
    paths = make(tmp_path, "talk.wav", "talk.mp3", "other.mp3")
    assert planned(paths, ["txt"], tmp_path / "out") == {
        "talk.wav": ["talk.wav.txt"],
        "talk.mp3": ["talk.mp3.txt"],
        "other.mp3": ["other.txt"],
    }


def test_dots_in_a_name_are_kept(tmp_path: Path) -> None:
    paths = make(tmp_path, "2024.05.01 talk.wav", "2024.05.02 talk.wav")
    assert planned(paths, ["txt"], tmp_path / "out") == {
        "2024.05.01 talk.wav": ["2024.05.01 talk.txt"],
        "2024.05.02 talk.wav": ["2024.05.02 talk.txt"],
    }


def test_two_recordings_of_one_name_are_refused_before_one_is_lost(tmp_path: Path) -> None:
    paths = make(tmp_path, "monday/talk.wav", "tuesday/talk.wav")
    with pytest.raises(UsageError, match="several recordings would be written there"):
        planned(paths, ["txt"], tmp_path / "out")


def test_a_file_where_a_folder_is_needed_is_refused(tmp_path: Path) -> None:
    a, b, output = make(tmp_path, "a.wav", "b.wav", "notes")
    for paths, formats in (([a, b], ["txt"]), ([a], ["txt", "srt"])):
        with pytest.raises(OutputError, match=r"notes: is a file; several recordings or formats need a folder"):
            plan(find_recordings(paths)[1], formats, output, force=True)  # type: ignore[arg-type]


def test_files_that_exist_are_kept_unless_forced(tmp_path: Path) -> None:
    paths = make(tmp_path, "a.wav", "b.wav")
    make(tmp_path / "out", "b.txt")
    with pytest.raises(OutputError, match=r"b\.txt: exists already; use --force to replace it"):
        planned(paths, ["txt"], tmp_path / "out")
    assert planned(paths, ["txt"], tmp_path / "out", force=True) == {"a.wav": ["a.txt"], "b.wav": ["b.txt"]}


def test_a_recording_is_never_an_output(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a.wav", "b.txt")
    (tmp_path / "link").symlink_to(a)
    for paths, output in (([a], a), ([a], tmp_path / "link"), ([b, a], tmp_path)):
        with pytest.raises(UsageError, match="is one of the recordings"):
            planned(paths, ["txt"], output, force=True)


# A file that appears when it is complete.


def test_a_file_appears_under_its_name_when_it_is_complete(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "new" / "a.txt")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt.part"]
    file.write("你好\n")
    assert file.part.read_text(encoding="utf-8") == "你好\n"  # at once, so that a crash loses none of it
    file.commit()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt"]
    assert file.path.read_bytes() == "你好\n".encode()


def test_the_old_file_stands_until_the_new_one_is_complete(tmp_path: Path) -> None:
    (path,) = make(tmp_path, "a.txt")
    file = OutputFile(path)
    file.write("new")
    assert path.read_text(encoding="utf-8") == "a.txt"
    file.commit()
    assert path.read_text(encoding="utf-8") == "new"


def test_what_was_written_before_it_was_abandoned_stands_beside_the_old_file(tmp_path: Path) -> None:
    (path,) = make(tmp_path, "a.txt")
    file = OutputFile(path)
    file.write("half")
    file.abandon()
    file.abandon()
    assert path.read_text(encoding="utf-8") == "a.txt"
    assert file.part.read_text(encoding="utf-8") == "half"


def test_a_name_that_is_no_utf_8_can_be_written_about(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "a.json")
    file.write(os.fsdecode(b"talk\xff.wav"))
    file.commit()
    assert file.path.read_bytes() == rb"talk\udcff.wav"


@pytest.mark.parametrize("name", ["notes/a.txt", "notes/b/a.txt"])
def test_a_file_in_the_place_of_the_folder_is_told(name: str, tmp_path: Path) -> None:
    (notes,) = make(tmp_path, "notes")
    with pytest.raises(OutputError) as caught:
        OutputFile(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: cannot be written: {notes} is no folder"


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    file = OutputFile(tmp_path / "a.txt")
    with pytest.raises(OutputError, match="cannot be written: Is a directory; what was written is in"):
        file.commit()


class FullDisk:
    """A file that takes nothing more."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self.flush()


def test_a_full_disk_is_told_with_the_place_of_what_was_written(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "a.txt")
    file.write("one\n")
    file._file.close()
    file._file = FullDisk()  # type: ignore[assignment]
    message = f"{file.path}: cannot be written: No space left on device; what was written is in {file.part}"
    with pytest.raises(OutputError, match=f"^{re.escape(message)}$"):
        file.write("two\n")
    with pytest.raises(OutputError, match=f"^{re.escape(message)}$"):
        file.commit()
    file.abandon()
    assert not file.path.exists()
    assert file.part.read_text(encoding="utf-8") == "one\n"


def test_problems_are_errors_of_the_recording(tmp_path: Path) -> None:
    problems, _ = find_recordings([tmp_path])
    assert isinstance(problems[0], AudioError)
    assert problems[0].path == tmp_path


@pytest.mark.parametrize(
    ("output", "formats", "expected"),
    [
        ("x.srt", [], ("srt", "x.srt")),
        ("x.SRT", [], ("srt", "x.SRT")),
        ("x.srt", ["json"], ("json", "x.srt")),
        ("x.docx", ["txt"], ("txt", "x.docx")),
        ("x", [], ("txt", "x")),
        ("-", [], ("txt", None)),
        ("fresh/", [], ("txt", "fresh/a.txt")),
        ("fresh.1/", [], ("txt", "fresh.1/a.txt")),
    ],
)
def test_the_name_of_an_output_tells_what_it_is(
    output: str,
    formats: list[Format],
    expected: tuple[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (job,) = plan(find_recordings(make(tmp_path, "a.wav"))[1], formats, output, force=False)
    ((format_, path),) = job.outputs
    assert (format_, None if path is None else str(path)) == expected


@pytest.mark.parametrize("names", [["a.wav"], ["a.wav", "b.wav"]])
def test_an_ending_that_is_no_format_is_asked_about(tmp_path: Path, names: list[str]) -> None:
    recordings = find_recordings(make(tmp_path, *names))[1]
    with pytest.raises(UsageError, match=r"talk\.docx: what is written there\? \.txt, .* add --format, or a slash$"):
        plan(recordings, [], str(tmp_path / "talk.docx"), force=True)
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".docx"] == []


def test_several_recordings_do_not_make_a_folder_of_what_is_named_like_a_file(tmp_path: Path) -> None:
    recordings = find_recordings(make(tmp_path, "a.wav", "b.wav"))[1]
    with pytest.raises(OutputError, match="is a file; several recordings or formats need a folder"):
        plan(recordings, [], str(tmp_path / "two.txt"), force=False)

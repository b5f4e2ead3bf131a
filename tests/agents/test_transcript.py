import json
import logging
from pathlib import Path

import pytest

from ironworks.agents.transcript import MAX_LINE, FileTranscript


def test_output_and_events_are_in_files_as_they_come(tmp_path: Path) -> None:
    transcript = FileTranscript(tmp_path / "run" / "issue" / "work-1")
    transcript.raw("stdout", b"\xff\x00hello\n")
    transcript.raw("stderr", b"oh\n")
    transcript.event("message", text="hi \ud800", cost=1.5)
    folder = tmp_path / "run" / "issue" / "work-1"
    assert (folder / "stdout.log").read_bytes() == b"\xff\x00hello\n"
    assert (folder / "stderr.log").read_bytes() == b"oh\n"
    event = json.loads((folder / "events.jsonl").read_text("utf-8"))
    assert (event["kind"], event["text"], event["cost"]) == ("message", "hi \ud800", 1.5)
    transcript.close()


@pytest.mark.spec("AG-8")
def test_a_file_stops_growing_at_its_limit_and_says_so_once(tmp_path: Path) -> None:
    transcript = FileTranscript(tmp_path, max_file=10_000)
    for _ in range(100):
        transcript.raw("stdout", b"x" * 999 + b"\n")
    transcript.raw("stderr", b"still kept")
    text = (tmp_path / "stdout.log").read_bytes()
    assert len(text) < 10_100
    assert text.count(b"no more than 10000 bytes are kept") == 1
    assert (tmp_path / "stderr.log").read_bytes() == b"still kept"
    transcript.close()


@pytest.mark.spec("AG-8")
@pytest.mark.parametrize("chunk", [1, 4096, 65_536, 65_537, 200_000])
def test_a_long_line_is_cut_wherever_the_chunks_end(tmp_path: Path, chunk: int) -> None:
    data = b"a" * 150_000 + b"\n" + b"b" * 150_000 + b"\nshort\n"
    transcript = FileTranscript(tmp_path)
    for start in range(0, len(data), chunk):
        transcript.raw("stdout", data[start : start + chunk])
    transcript.close()
    lines = (tmp_path / "stdout.log").read_bytes().split(b"\n")
    assert [len(line) for line in lines] == [MAX_LINE + 11, MAX_LINE + 11, 5, 0]
    assert lines[0].endswith(b"a [line cut]")
    assert lines[2] == b"short"


@pytest.mark.spec("AG-8")
def test_a_huge_event_is_cut_but_stays_json(tmp_path: Path) -> None:
    transcript = FileTranscript(tmp_path)
    transcript.event("message", text="ä" * 1_000_000)
    transcript.event("message", text="next")
    transcript.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert [json.loads(line).get("cut") for line in lines] == [True, None]
    assert max(map(len, lines)) <= MAX_LINE


def test_a_restart_continues_the_files(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        transcript = FileTranscript(tmp_path)
        transcript.raw("stdout", text)
        transcript.close()
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo\n"


@pytest.mark.spec("AG-8")
def test_a_full_disk_is_noted_once_and_never_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "stdout.log").symlink_to("/dev/full")
    transcript = FileTranscript(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            transcript.raw("stdout", b"lost")
        transcript.event("message", text="kept")
    transcript.close()
    assert "No space" in transcript.problem
    assert len(caplog.records) == 1
    assert "kept" in (tmp_path / "events.jsonl").read_text("utf-8")


@pytest.mark.spec("AG-8")
def test_a_folder_that_cannot_be_made_is_noted_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    transcript = FileTranscript(tmp_path / "file" / "logs")
    transcript.raw("stdout", b"lost")
    transcript.event("message")
    transcript.close()
    assert transcript.problem


def test_what_is_not_kept_is_counted(tmp_path: Path) -> None:
    transcript = FileTranscript(tmp_path, max_file=100)
    transcript.raw("stdout", b"x" * 90)
    assert transcript.dropped == 0
    transcript.raw("stdout", b"y" * 30)
    transcript.raw("stdout", b"z" * 1000)
    transcript.close()
    assert transcript.dropped == 20 + 1000

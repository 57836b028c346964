"""Pictures, histograms, texts and hyperparameters are read from event files as torch's own writer and TensorFlow's summaries write them,
within limits, and a list of the few that are kept lies with the results."""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime import media
from training_runtime.elastic.script_logs import event_files
from training_runtime.elastic.script_logs.event_files import Medium
from training_runtime.elastic.script_logs.event_folders import EventFolders
from training_runtime.elastic.script_logs.media_list import MediaList
from training_runtime.elastic.script_logs.summaries import histograms, hparams
from training_runtime.errors import ProtocolError

PNG = b"\x89PNG\r\n\x1a\n"


def one(folder: Path) -> bytes:
    (file,) = folder.glob("events.out.tfevents.*")
    return file.read_bytes()


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    folder = tmp_path_factory.mktemp("torch")
    with SummaryWriter(str(folder)) as writer:
        for step in (1, 2):
            writer.add_image("digit", torch.rand(1, 8, 8), step)
            writer.add_images("digits", torch.rand(4, 3, 8, 8), step)
            writer.add_text("note", f"**step** {step} <b>", step, walltime=1000.0)
            writer.add_histogram("weights", torch.linspace(-1.0, 3.0, 400), step)
        writer.add_scalar("loss", 0.5, 1)
        writer.add_histogram("constant", torch.zeros(9), 1)
        writer.add_audio("sound", torch.rand(1, 100), 1)
        writer.add_pr_curve("curve", torch.ones(4), torch.rand(4), 1)
    return folder


def tensorflows() -> bytes:
    """As tf.summary and Keras write them: tensors, with what they are for in the first value of a tag only."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.histogram import metadata as of_histograms
    from tensorboard.plugins.image import metadata as of_images
    from tensorboard.plugins.text import metadata as of_texts
    from tensorboard.util.tensor_util import make_tensor_proto

    said = (
        ("picture", make_tensor_proto([b"8", b"8", PNG + b"first", PNG + b"second"]), of_images.create_summary_metadata("", "")),
        ("words", make_tensor_proto([b"one", "zwölf".encode()]), of_texts.create_summary_metadata("", "")),
        ("layer", make_tensor_proto([[0.0, 1.0, 3.0], [1.0, 2.0, 1.0]], dtype="float64"), of_histograms.create_summary_metadata("", "")),
    )
    written = b""
    for step in (1, 2):
        for tag, tensor, metadata in said:
            value = Summary.Value(tag=tag, tensor=tensor, metadata=metadata if step == 1 else None)
            written += framed(Event(wall_time=5.0, step=step, summary=Summary(value=[value])).SerializeToString())
    return written


def framed(event: bytes) -> bytes:
    return struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4)


def test_what_torch_writes(torchs: Path) -> None:
    data = one(torchs)
    chunk = event_files.read(data, 0)
    assert (chunk.offset, chunk.damaged, chunk.too_large) == (len(data), 0, 0)
    found = {(each.kind, each.tag, each.step): each for each in chunk.media}
    assert sorted({(kind, tag) for kind, tag, _ in found}) == [
        ("histogram", "constant"), ("histogram", "weights"), ("image", "digit"), ("image", "digits"), ("text", "note"),
    ]  # fmt: skip
    for tag in ("digit", "digits"):
        ((at, size),) = found["image", tag, 2].pieces
        assert data[at : at + size].startswith(PNG) and data[at : at + size].endswith(b"IEND\xaeB`\x82")
    ((at, size),) = found["text", "note", 2].pieces
    assert (data[at : at + size], found["text", "note", 2].t) == (b"**step** 2 <b>", 1000.0)
    drawn = found["histogram", "weights", 1].histogram
    assert drawn is not None and (drawn.low, drawn.high, len(drawn.counts)) == (-1.0, 3.0, media.BINS)
    assert sum(drawn.counts) == pytest.approx(400, rel=1e-4)
    same = found["histogram", "constant", 1].histogram
    assert same is not None and same.low < 0 < same.high and sum(same.counts) == 9


def test_hyperparameters_and_their_figures_are_found_in_the_folder_that_torch_makes_for_them(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for name, rate in (("a", 0.1), ("b", 3)):
            writer.add_hparams({"lr": rate, "amp": True, "optimizer": "adam"}, {"hparam/accuracy": 0.9}, run_name=name)
    found = EventFolders(tmp_path, {}).read(now=0.0, all_of_it=True)
    plain = {"lr": "0.1", "amp": "1", "optimizer": "adam"}  # torch writes a truth as a number
    assert found.parameters == plain | {"b/lr": "3", "b/amp": "1", "b/optimizer": "adam"}
    assert [each.name for each in found.figures] == ["hparam/accuracy", "b/hparam/accuracy"]


def test_hyperparameters_of_every_kind() -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    said = HParamsPluginData()
    values = said.session_start_info.hparams
    values["amp"].bool_value, values["rate"].number_value, values["depth"].number_value = True, 1e-4, 12
    values["name"].string_value, values["none"].null_value, values["x" * 900].string_value = "a" * 9000, 0, "cut"
    found = hparams.read(said.SerializeToString())
    assert found.pop("x" * hparams.LONGEST_NAME) == "cut"
    assert found == {"amp": "True", "rate": "0.0001", "depth": "12", "name": "a" * hparams.LONGEST_VALUE}


def test_what_tensorflow_writes() -> None:
    data = tensorflows()
    media_found = event_files.read(data, 0).media
    assert [(each.kind, each.tag, each.step) for each in media_found] == [
        (kind, tag, step) for step in (1, 2) for kind, tag in (("image", "picture"), ("text", "words"), ("histogram", "layer"))
    ]
    for picture, words, layer in (media_found[:3], media_found[3:]):
        assert [data[at : at + size] for at, size in picture.pieces] == [PNG + b"first", PNG + b"second"]
        assert [data[at : at + size] for at, size in words.pieces] == [b"one", "zwölf".encode()]
        assert layer.histogram is not None and (layer.histogram.low, layer.histogram.high) == (0.0, 2.0)
        assert (sum(layer.histogram.counts[:20]), sum(layer.histogram.counts[20:])) == (pytest.approx(3), pytest.approx(1))


@pytest.mark.parametrize("size", [1, 13, 500])
def test_wherever_a_file_is_cut_each_is_found_once_and_where_it_stands(torchs: Path, size: int) -> None:
    data = one(torchs)
    found, offset = [], 0
    for end in (*range(0, len(data), max(size, len(data) // 400)), len(data)):
        chunk = event_files.read(data[offset:end], offset)
        assert chunk.needs == 0 or chunk.needs > end - chunk.offset
        found += chunk.media
        offset = chunk.offset
    assert found == list(event_files.read(data, 0).media)


@given(st.binary(max_size=400))
def test_whatever_stands_in_an_event_nothing_is_raised(data: bytes) -> None:
    def inside(number: int, message: bytes) -> bytes:
        return bytes([number << 3 | 2]) + struct.pack("B", len(message) & 0x7F | 0x80) + bytes([len(message) >> 7]) + message

    for nested in (data, inside(1, b"tag") + inside(8, data), inside(1, b"tag") + inside(5, data), inside(1, b"tag") + inside(4, data)):
        event_files.read(framed(inside(5, inside(1, nested))), 7)
    with contextlib.suppress(ProtocolError):  # nothing else, of what is no list of media; {} is an empty one
        media.parse(data)


@pytest.mark.parametrize(
    "bucket",
    [
        (0.0, 1.0, 0.0),
        (1.0, 0.0, 5.0),
        (float("nan"), 1.0, 1.0),
        (-1e308, 1e308, 1.0),
        (0.0, 5e-324, 1.0),
        (0.0, 1.0, -3.0),
    ],
)
def test_what_cannot_be_drawn_is_no_histogram(bucket: tuple[float, float, float]) -> None:
    assert histograms.binned([bucket]) is None
    assert histograms.binned([]) is None


def test_a_hostile_record_is_passed_over_with_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    good = framed(Event(step=3, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1.0)])).SerializeToString())
    bad = framed(b"\x2a\xff\xff\xff\xff\x0f")
    many = framed(b"\x08\x01" * 30_000)
    large = framed(bytes(event_files.MOST_EVENT_BYTES + 1))
    (tmp_path / "events.out.tfevents.1").write_bytes(bad + good + many + large + good + b"\xff" * 64)
    follower = EventFolders(tmp_path, {})
    found = [(each.name, each.step) for each in follower.read(now=0.0, all_of_it=True).figures]
    assert found == [("loss", 3), ("loss", 3)]
    assert follower.read(now=9.0, all_of_it=True).figures == []
    said = capfd.readouterr().err.splitlines()
    assert sorted(said) == sorted(set(said)) and len(said) == 3, said
    assert all(line.startswith("events.out.tfevents.1 ") for line in said)


def test_a_picture_larger_than_a_look_is_read_when_it_is_whole(tmp_path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    image = Summary.Image(encoded_image_string=PNG + bytes(1_500_000))
    data = framed(Event(step=1, summary=Summary(value=[Summary.Value(tag="large", image=image)])).SerializeToString())
    path, follower = tmp_path / "events.out.tfevents.1", EventFolders(tmp_path, {})
    path.write_bytes(data[:-1])
    assert follower.read(now=0.0, all_of_it=True).media == []
    path.write_bytes(data)
    ((file, found),) = follower.read(now=0.0, all_of_it=False).media
    assert (file, found.pieces[0][1]) == (path.name, 1_500_000 + len(PNG))


def test_the_list_keeps_the_first_the_last_and_some_between_of_each_tag(tmp_path: Path) -> None:
    kept = MediaList(tmp_path)
    assert not kept.write()
    for step in (*range(1000), 999):
        kept.add("events", Medium("text", "no\nte", step, 1.0, ((step, 1),)))
    for number in range(media.MOST_TAGS + 5):
        kept.add("events", Medium("image", f"{number}", 0, 1.0, ((0, 1),)))
    assert kept.write() and not kept.write()
    text, *images = media.parse((tmp_path / media.FILE_NAME).read_bytes())
    steps = [each.step for each in text.entries]
    assert (text.name, steps[0], steps[-1], len(steps)) == ("no?te", 0, 999, media.MOST_ENTRIES)
    assert max(after - before for before, after in pairwise(steps)) <= 4 * 1000 / media.MOST_ENTRIES
    assert len(images) == media.MOST_TAGS
    again = MediaList(tmp_path)
    again.add("other", Medium("text", "no?te", 5000, 1.0, ((1, 1),)))
    assert again.write() and again.tags == media.MOST_TAGS + 1
    assert media.parse((tmp_path / media.FILE_NAME).read_bytes())[0].entries[-1].file == "other"


def test_a_list_that_somebody_has_spoilt_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / media.FILE_NAME).write_text('{"tags": [{"kind": "page"}]}')
    assert MediaList(tmp_path).tags == 0

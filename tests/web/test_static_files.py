"""Static files as the web process serves them: whole, in part, or not again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from webapp.static_files import StaticFiles


@pytest.fixture
def get(tmp_path: Path, settings: Any) -> Any:
    """get("style.css", HTTP_RANGE=...) -> the answer."""
    (tmp_path / "style.css").write_text("body { margin: 0 }")
    settings.STATIC_ROOT = tmp_path
    middleware = StaticFiles(lambda request: HttpResponse("no file", status=404))
    return lambda name, method="get", **headers: middleware(getattr(RequestFactory(), method)(f"/static/{name}", **headers))


def test_a_file_is_sent_whole_and_not_streamed(get: Any) -> None:
    answer = get("style.css")
    assert (answer.status_code, answer.streaming, answer.content) == (200, False, b"body { margin: 0 }")
    assert answer["Content-Type"].startswith("text/css")
    assert answer["Content-Length"] == "18"
    head = get("style.css", "head")
    assert (head.status_code, head.content, head["Content-Length"]) == (200, b"", "18")


def test_what_a_browser_has_is_not_sent_again_and_a_part_where_that_is_asked_for(get: Any) -> None:
    assert get("style.css", HTTP_IF_NONE_MATCH=get("style.css")["ETag"]).status_code == 304
    part = get("style.css", HTTP_RANGE="bytes=0-3")
    assert (part.status_code, part.content) == (206, b"body")
    assert get("style.css", HTTP_RANGE="bytes=99-").status_code == 416


def test_what_is_no_file_is_for_the_pages(get: Any) -> None:
    assert get("../style.css").content == get("another.css").content == b"no file"

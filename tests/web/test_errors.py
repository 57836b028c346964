"""Pages that say what went wrong, where the database has been away meanwhile."""

from __future__ import annotations

import threading

import pytest
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.http import HttpRequest
from django.test import RequestFactory

from experiments.models import User
from experiments.views import errors


def request_of(user: User | AnonymousUser) -> HttpRequest:
    request = RequestFactory().get("/projects/987654/")
    request.user = user
    request.session = SessionStore()
    return request


@pytest.mark.django_db(transaction=True)
def test_a_thread_whose_connection_was_cut_shows_the_page_and_keeps_no_connection(alice: User) -> None:
    seen: list[object] = []

    def render() -> None:
        connection.ensure_connection()
        connection.connection.close()  # as a server that is restarted does
        try:
            seen.append(errors.not_found(request_of(alice), Exception()).status_code)
            seen.append(connection.connection)
        except Exception as error:
            seen.append(error)
        finally:
            connection.connection = None

    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    assert seen == [404, None]

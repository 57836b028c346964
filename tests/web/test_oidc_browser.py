"""Single sign-on in a browser, at a provider that others wrote, which knows its clients and where they may send people back to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from oidc_provider_mock import User, run_server_in_thread
from playwright.sync_api import expect

from tests import cast
from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, agree, violations
from tests.web.test_people_browser import fits

PEOPLE = [
    User(sub="erin", claims={"preferred_username": "erin.moss", "email": "erin@example.org", "email_verified": True}),
    User(sub="bob", claims={"preferred_username": "robert"}),
]


@pytest.fixture(scope="module")
def provider(site: Site) -> Iterator[None]:
    with run_server_in_thread(require_client_registration=True, require_nonce=True, user_claims=PEOPLE) as server:
        issuer = f"http://localhost:{server.server_port}"
        wanted = {"redirect_uris": [f"{site.pages['url']}/login/oidc/callback/"], "scope": "openid profile email"}
        client = httpx.post(f"{issuer}/oauth2/clients", json=wanted).raise_for_status().json()
        site.tell(f"provider {issuer} {client['client_id']} {client['client_secret']}")
        yield


def from_the_login(page: Any) -> None:
    page.get_by_role("link", name="Log in with Example SSO").click()


def from_the_profile(page: Any) -> None:
    page.get_by_role("button", name="Link to Example SSO").click()


def log_in(page: Any, *, by: Callable[[Any], None], who: str) -> None:
    """`by`: what is clicked here. Its pages have a style sheet from the open internet, which tests do without."""
    page.route("**/*.min.css", lambda route: route.fulfill(body="", content_type="text/css"))
    by(page)
    page.wait_for_url("**/oauth2/authorize**")
    page.get_by_role("button", name=who, exact=True).click()


def test_somebody_new_logs_in_and_lands_where_they_wanted_to(provider: None, visit: Visit, site: Site) -> None:
    page = visit(username="")
    page.goto(site.pages["url"] + site.pages["cluster"])
    page.wait_for_url("**/login/**")
    assert not violations(page, WCAG)
    log_in(page, by=from_the_login, who="erin")
    page.wait_for_url("**" + site.pages["cluster"])
    expect(page.locator(".user-name")).to_have_text("erin.moss")
    page.goto(site.pages["url"] + "/profile/")
    expect(page.locator("main")).to_contain_text("You log in with Example SSO as erin.moss")
    expect(page.locator("main")).to_contain_text("This account has none.")
    assert not violations(page, WCAG)
    assert fits(page)


def test_the_password_stays_a_way_in(provider: None, visit: Visit, site: Site) -> None:
    page = visit(username="", width=360, theme="dark")
    page.goto(site.pages["url"] + "/login/?next=/cluster/")
    assert not violations(page, BY_LOOK)
    assert fits(page)
    page.get_by_label("Username").fill("alice")
    page.get_by_label("Password").fill(cast.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/cluster/")


@pytest.mark.parametrize("script", [True, False])
def test_an_account_is_linked_and_logged_in_to_and_unlinked(script: bool, provider: None, visit: Visit, site: Site) -> None:
    page = visit(username="bob", script=script, width=360, theme="dark")
    page.goto(site.pages["url"] + "/profile/")
    page.get_by_label("Your password").fill(cast.PASSWORD)
    log_in(page, by=from_the_profile, who="bob")
    expect(page.locator(".notes")).to_contain_text("Your account is linked")
    expect(page.locator("main")).to_contain_text("You log in with Example SSO as robert")
    if script:
        assert not violations(page, BY_LOOK)
        assert fits(page)

    again = visit(username="")
    again.goto(site.pages["url"] + "/login/")
    log_in(again, by=from_the_login, who="bob")
    expect(again.locator(".user-name")).to_have_text("bob")

    page.get_by_role("button", name="Unlink").click()
    if script:
        agree(page)
    expect(page.locator(".notes")).to_contain_text("not linked to Example SSO any more")

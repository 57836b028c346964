"""Log-ins by OpenID Connect: the provider's side of them, by Authlib, which keeps state, nonce and PKCE's verifier in the session.

Only the code flow: the browser brings a code, for which the provider answers to us alone with an ID token. What is believed of that is what
its own key has signed, for us, now, for this very log-in. Authlib is imported by those who use it: it takes ten megabytes.
"""

from __future__ import annotations

import functools
import logging
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

from experiments.accounts import identities
from experiments.errors import DomainError

CLIENT = "studio"  # what Authlib calls what it keeps in sessions
TIMEOUT_S = 10.0
METADATA_S = 3600
MOST_BEGUN = 10  # log-ins that a browser has begun and not finished
BEGAN_S = 3600  # between a log-in's beginning and its end
# Those that are signed with a key of which we know the public half. "none" is no signature, and HS256 one by the client's secret.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"})

log = logging.getLogger(__name__)


class Failed(DomainError):
    """Nobody is logged in by the provider. The sentence is for who tried."""


@dataclass(frozen=True)
class Purpose:
    """What a log-in was begun for: the page to go on to (a path here), and whose account it is to be linked to, where it is for that."""

    to: str
    links: int | None = None


def is_on() -> bool:
    return bool(settings.EDT_OIDC_ISSUER and settings.EDT_OIDC_CLIENT_ID)


def begin(request: HttpRequest, purpose: Purpose, *, callback: str) -> str:
    """The provider's address to send the browser to. `callback`: ours, to which it comes back. Raises Failed."""
    try:
        client = _client()
        made = client.create_authorization_url(callback)
    except Exception as error:
        raise _failed(error) from error
    _forget_oldest(request)
    if not request.user.is_authenticated:
        request.session.set_expiry(BEGAN_S)  # a session of nobody need not stay for weeks
    client.save_authorize_data(request, redirect_uri=callback, purpose=asdict(purpose), began=time.time(), **made)
    return str(made["url"])


def _forget_oldest(request: HttpRequest) -> None:
    """Who begins again and again, in many tabs or by a script, has a session of a size all the same."""
    begun = [name for name in request.session.keys() if name.startswith(f"_state_{CLIENT}_")]  # noqa: SIM118  (it cannot be walked through)
    for name in sorted(begun, key=lambda name: float(request.session[name]["exp"]))[: -(MOST_BEGUN - 1)]:
        del request.session[name]


def purpose_of(request: HttpRequest) -> Purpose | None:
    """Of the log-in whose answer the browser brings; None where this browser has begun none such, or not in the last hour."""
    from authlib.integrations.django_client import DjangoIntegration

    kept = DjangoIntegration(CLIENT).get_state_data(request.session, request.GET.get("state", ""))
    if kept is None or kept["began"] < time.time() - BEGAN_S:
        return None
    return Purpose(**kept["purpose"])


def finish(request: HttpRequest) -> identities.Claims:
    """Who it is, by what the browser has brought, which is good for this once. Raises Failed."""
    if said := request.GET.get("error"):
        why = request.GET.get("error_description") or said
        raise Failed(f"{_name()} did not log you in: {why[:200]}")
    try:
        client = _client()
        token = client.authorize_access_token(request, claims_options=_claims_options(client))
        found = dict(token.get("userinfo") or {})  # of the ID token, which it has checked
        return identities.read(
            {**_more(client, token, found), **found},
            issuer=settings.EDT_OIDC_ISSUER,
            username=settings.EDT_OIDC_USERNAME_CLAIM,
            groups=settings.EDT_OIDC_GROUPS_CLAIM,
        )
    except Exception as error:
        raise _failed(error) from error


def _claims_options(client: Any) -> dict[str, dict[str, Any]]:
    """Beside what the standard wants of each ID token: this provider's, and for us."""
    return {
        "iss": {"essential": True, "value": client.server_metadata["issuer"]},
        "aud": {"essential": True, "value": client.client_id},
    }


def _more(client: Any, token: Any, found: dict[str, Any]) -> dict[str, Any]:
    """What the provider says beside the ID token: some have names, addresses and groups only there."""
    if not found or not client.server_metadata.get("userinfo_endpoint"):
        return {}
    try:
        said = dict(client.userinfo(token=token))
    except ValueError:  # requests' own errors of JSON are ones, too
        log.warning("what %s says of people at its userinfo endpoint is no JSON: the ID token alone counts", _name())
        return {}
    # As the standard demands: an answer about somebody else was put in the place of this one's.
    return said if said.get("sub") == found.get("sub") else {}


def _client() -> Any:
    """With what the provider says of itself, asked anew each hour."""
    return _made(
        settings.EDT_OIDC_ISSUER,
        settings.EDT_OIDC_CLIENT_ID,
        settings.EDT_OIDC_CLIENT_SECRET,
        settings.EDT_OIDC_SCOPES,
        int(time.time() // METADATA_S),
    )


@functools.lru_cache(maxsize=1)
def _made(issuer: str, client_id: str, secret: str, scopes: str, hour: int) -> Any:  # noqa: ARG001  (a new hour, a new client)
    from authlib.integrations.django_client import OAuth

    client = OAuth().register(
        CLIENT,
        client_id=client_id,
        client_secret=secret or None,
        server_metadata_url=f"{issuer}/.well-known/openid-configuration",
        client_kwargs={"scope": scopes, "code_challenge_method": "S256", "default_timeout": TIMEOUT_S},
    )
    said = client.load_server_metadata()
    if str(said.get("issuer", "")).rstrip("/") != issuer:
        raise Misconfigured(f"EDT_OIDC_ISSUER is {issuer}, and the provider there says that it is {said.get('issuer')!r}")
    if lacking := [name for name in ("authorization_endpoint", "token_endpoint", "jwks_uri") if not said.get(name)]:
        raise Misconfigured(f"{issuer} does not say its {', '.join(lacking)}")
    if urlsplit(issuer).scheme != "https":
        log.warning("EDT_OIDC_ISSUER is no https address: whoever is on the way to it can log in as anybody")
    signed = sorted(ALGORITHMS.intersection(said.get("id_token_signing_alg_values_supported") or ["RS256"]))
    if not signed:
        raise Misconfigured(f"{issuer} signs ID tokens in no way that is known here: RS256 is what every provider can")
    said["id_token_signing_alg_values_supported"] = signed
    said["token_endpoint_auth_method"] = _authentication(secret, said.get("token_endpoint_auth_methods_supported"))
    return client


class Misconfigured(Exception):
    """What an administrator of the studio has to set right."""


def _authentication(secret: str, offered: list[str] | None) -> str:
    """How we say who we are: by the header unless the provider takes the form alone."""
    if not secret:
        return "none"
    return "client_secret_post" if offered and "client_secret_basic" not in offered else "client_secret_basic"


def _failed(error: Exception) -> Failed:
    """Whatever a provider sends, or does not, is no error of ours: the log says what it was, the page what to do."""
    from authlib.common.errors import AuthlibBaseError
    from joserfc.errors import JoseError
    from requests import ConnectionError, RequestException, Timeout

    if isinstance(error, Failed):
        return error
    expected = isinstance(error, RequestException | JoseError | AuthlibBaseError | Misconfigured | identities.Unusable)
    log.warning("a log-in by %s failed: %s: %s", _name(), type(error).__name__, error, exc_info=not expected)
    if isinstance(error, ConnectionError | Timeout):
        return Failed(f"{_name()} cannot be reached at this moment: try again.")
    return Failed(
        f"The answer of {_name()} cannot be used: try again. If that does not help, an administrator finds the reason in the log."
    )


def _name() -> str:
    return str(settings.EDT_OIDC_NAME)

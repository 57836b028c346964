"""An OpenID provider that can be told to lie, over HTTP. All that a client asks of one is here; what it says, and how it signs that, is the
test's. For an honest one that others wrote see tests/web/test_oidc_browser.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jws
from joserfc.jwk import KeySet, RSAKey

CLIENT, SECRET = "edt-studio", "between the two"


@dataclass
class Provider:
    """`said`: of the person who logs in; the rest is what it does wrong. `asked`: of its token endpoint, each form that was sent."""

    said: dict[str, Any] = field(default_factory=lambda: {"sub": "4711", "preferred_username": "erin"})
    userinfo: Any = None  # what it says beside the ID token; None: it has no such address
    changes: dict[str, Any] = field(default_factory=dict)  # of the claims of the ID token; None takes one away
    metadata: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "RS256"
    sign_with: Any = None  # another key than the one that it shows
    id_token: bool = True
    status: int = 200  # of its token endpoint
    address: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": secrets.token_hex(4)}))
    asked: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def log_in(self, address: str) -> str:
        """Somebody logs in there: what the browser was sent to, and what it comes back with, as query."""
        sent = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert address.startswith(f"{self.address}/authorize?")
        assert (sent["client_id"], sent["response_type"], sent["code_challenge_method"]) == (CLIENT, "code", "S256")
        code = secrets.token_hex(8)
        self.codes[code] = sent
        return f"code={code}&state={sent['state']}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked.append(form)
        began = self.codes.pop(form.get("code", ""), None)
        if self.status != 200:
            return self.status, {"error": "server_error"}
        if began is None or began["redirect_uri"] != form.get("redirect_uri") or not _proves(form.get("code_verifier", ""), began):
            return 400, {"error": "invalid_grant"}
        answer: dict[str, Any] = {"access_token": "of this log-in", "token_type": "Bearer", "expires_in": 300}
        return 200, answer | ({"id_token": self.signed(began)} if self.id_token else {})

    def signed(self, began: dict[str, str]) -> str:
        now = int(time.time())
        usual = {"iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": began.get("nonce")}
        claims = {name: value for name, value in {**usual, **self.said, **self.changes}.items() if value is not None}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        said = f"{_text(json.dumps(header).encode())}.{_text(json.dumps(claims).encode())}"
        if self.algorithm == "none":
            return f"{said}."
        if (
            self.algorithm == "HS256"
        ):  # by the public key, which everybody knows: a library that asks the token how it is signed is taken in
            return f"{said}.{_text(hmac.digest(self.key.as_pem(private=False), said.encode(), 'sha256'))}"
        return jws.serialize_compact(header, json.dumps(claims), self.sign_with or self.key, algorithms=[self.algorithm])

    def describes(self) -> dict[str, Any]:
        here = self.address
        ends = {"authorization_endpoint": f"{here}/authorize", "token_endpoint": f"{here}/token", "jwks_uri": f"{here}/keys"}
        more = {"userinfo_endpoint": f"{here}/userinfo"} if self.userinfo is not None else {}
        return {"issuer": here, "id_token_signing_alg_values_supported": ["RS256", "none", "HS256"], **ends, **more, **self.metadata}


@contextmanager
def provider(**facts: Any) -> Iterator[Provider]:
    made = Provider(**facts)

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {
                "/.well-known/openid-configuration": made.describes,
                "/keys": lambda: KeySet([made.key]).as_dict(private=False),
                "/userinfo": lambda: made.userinfo,
            }.get(self.path)
            self._answer(404, {}) if found is None else self._answer(200, found())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._answer(*made.token(form | {"authorization": self.headers.get("Authorization", "")}))

        def _answer(self, status: int, what: Any) -> None:
            body = what.encode() if isinstance(what, str) else json.dumps(what).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        made.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def _proves(verifier: str, began: dict[str, str]) -> bool:
    """RFC 7636: who asks for the token is who began."""
    return _text(hashlib.sha256(verifier.encode()).digest()) == began["code_challenge"]


def _text(what: bytes) -> str:
    return base64.urlsafe_b64encode(what).decode().rstrip("=")

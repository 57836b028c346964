"""E-mails on their way: to a real SMTP server, with a login and over TLS, and what becomes of those that it does not take."""

from __future__ import annotations

import asyncio
import datetime as dt
import email
import email.policy
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import environ
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from experiments.models import Delivery, NotificationKind, Project, RunState, TrainingRun, User
from experiments.notifications import deliveries
from experiments.runs import states
from tests import cast

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("said")]
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
PASSWORD = "p@ss word"


class PostOffice:
    """An SMTP server on a port of its own; with a certificate, TLS and a login are needed. `refusing`: what it answers to a mail."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.taken: list[tuple[str, list[str], EmailMessage]] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self.refusing = ""
        self._options: dict[str, Any] = {}
        if certificate is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(certificate)
            self._options = {"tls_context": tls, "require_starttls": True, "authenticator": self._authenticate, "auth_required": True}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> PostOffice:
        self._thread.start()
        serving = self._loop.create_server(lambda: SMTP(self, loop=self._loop, hostname="127.0.0.1", **self._options), "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        if self.refusing:
            return self.refusing
        read = email.message_from_bytes(envelope.content or b"", policy=email.policy.default)  # type: ignore[arg-type]
        assert isinstance(read, EmailMessage)
        self.taken.append((str(envelope.mail_from), envelope.rcpt_tos, read))
        return "250 Taken"


@pytest.fixture
def told(project: Project, alice: User, settings: Any) -> Iterator[Callable[[str], Delivery]]:
    """`told(url)`: Alice's run has ended, and she wants to know by e-mail, by way of the server that EDT_EMAIL_URL names."""

    def ended(url: str, name: str = "Größe 漢 <b>") -> Delivery:
        settings.EDT_EMAIL, settings.EDT_PUBLIC_URL = True, "https://studio.example.org"
        settings.DEFAULT_FROM_EMAIL = "EDT Studio <studio@example.org>"
        for key, value in environ.Env.email_url_config(url).items():
            setattr(settings, key, value)
        cast.choose_notifications(alice, ways={NotificationKind.COMPLETED: ["mail"]}, email="alice@example.org")
        run: TrainingRun = cast.run(project, by=alice, name=name)
        states.transition(run, RunState.COMPLETED, reason="It finished.", now=NOW)
        return Delivery.objects.get()

    yield ended
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False


def test_a_mail_arrives_as_it_was_meant(told: Callable[[str], Delivery]) -> None:
    with PostOffice() as office:
        delivery = told(f"smtp://127.0.0.1:{office.port}")
        assert deliveries.send_due(lambda: NOW) == 1
        assert deliveries.send_due(lambda: NOW) == 0
    ((sender, recipients, mail),) = office.taken
    assert (sender, recipients) == ("studio@example.org", ["alice@example.org"])
    run = TrainingRun.objects.get()
    assert mail["Subject"].strip() == f"[EDT Studio] Größe 漢 <b> (run {run.pk}) has completed."
    assert (mail["From"], mail["To"]) == ("EDT Studio <studio@example.org>", "alice@example.org")
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"] == f"<delivery-{delivery.pk}.{int(NOW.timestamp())}@example.org>"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().splitlines() == [
        f"Größe 漢 <b> (run {run.pk}) has completed.",
        "",
        f"https://studio.example.org/runs/{run.pk}/",
    ]


def test_what_the_server_does_not_take_is_tried_again_and_then_given_up(told: Callable[[str], Delivery]) -> None:
    with PostOffice() as office:
        office.refusing = "451 Come back later"
        delivery = told(f"smtp://127.0.0.1:{office.port}")
        assert deliveries.send_due(lambda: NOW) == 0
        delivery.refresh_from_db()
        assert (delivery.attempts, delivery.done_at, "Come back later" in delivery.outcome) == (1, None, True)
        assert deliveries.send_due(lambda: NOW + dt.timedelta(seconds=29)) == 0
        office.refusing = ""
        assert deliveries.send_due(lambda: NOW + dt.timedelta(seconds=30)) == 1
    assert len(office.taken) == 1
    Delivery.objects.update(done_at=None, next_at=NOW)
    assert deliveries.send_due(lambda: NOW) == 0, "the server is gone"
    at = NOW
    for _ in range(2 * len(deliveries.WAITS_S)):
        at += dt.timedelta(days=1)
        deliveries.send_due(lambda at=at: at)
    delivery.refresh_from_db()
    assert delivery.done_at is not None
    assert delivery.attempts == len(deliveries.WAITS_S) + 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that only those trust who are told to, with its key, in one file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "post office")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key(), serial_number=x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "office.pem"
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM) + secret)
    return path


def test_the_password_goes_only_to_a_server_that_proves_who_it_is(
    told: Callable[[str], Delivery], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostOffice(certificate) as office:
        delivery = told(f"smtp+tls://studio:p%40ss%20word@127.0.0.1:{office.port}")
        assert deliveries.send_due(lambda: NOW) == 0
        delivery.refresh_from_db()
        assert "CERTIFICATE_VERIFY_FAILED" in delivery.outcome
        assert not office.logins
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert deliveries.send_due(lambda: NOW + dt.timedelta(minutes=1)) == 1
    assert office.logins == [(b"studio", PASSWORD.encode())]
    assert len(office.taken) == 1


def test_a_wrong_password_is_said_and_not_kept(told: Callable[[str], Delivery], certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with PostOffice(certificate) as office:
        delivery = told(f"smtp+tls://studio:guessed@127.0.0.1:{office.port}")
        assert deliveries.send_due(lambda: NOW) == 0
    delivery.refresh_from_db()
    assert "Authentication" in delivery.outcome
    assert "guessed" not in delivery.outcome
    assert not office.taken

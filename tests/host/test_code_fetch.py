"""What a machine lacks for fetching code by git is said; how it is fetched is tested in domain/test_git.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_runtime.host.environments import code_fetch, git_steps
from training_runtime.host.environments.git_steps import GitSource


def wanted(scheme: str = "https", *, pinned: tuple[str, ...] = ("192.0.2.1",)) -> GitSource:
    return GitSource(f"{scheme}://git.example.org/x.git", scheme, "git.example.org", 443, pinned, "", "", "alice:word", "key", "")


@pytest.mark.parametrize(("missing", "scheme"), [("git", "https"), ("ssh", "ssh")])
def test_a_machine_without_the_program_says_so(missing: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_fetch.shutil, "which", lambda name, path: None if name == missing else f"/usr/bin/{name}")
    spec = code_fetch.FetchSpec(str(tmp_path), str(tmp_path), 1.0, 1, wanted(scheme))
    with pytest.raises(git_steps.Failed, match=f"{missing} is not installed on the studio's machine"):
        code_fetch._fetch(spec)


def test_git_asks_nobody_and_goes_where_the_studio_has_looked(tmp_path: Path) -> None:
    network = {"HTTPS_PROXY": "http://proxy:3128", "SSL_CERT_FILE": "/etc/ours.pem"}
    found = git_steps.environment(wanted(), tmp_path, network)
    said = {found[f"GIT_CONFIG_KEY_{number}"]: found[f"GIT_CONFIG_VALUE_{number}"] for number in range(int(found["GIT_CONFIG_COUNT"]))}
    assert said["http.curloptResolve"] == "git.example.org:443:192.0.2.1"
    assert said["http.followRedirects"] == "false"
    assert "HTTPS_PROXY" not in found, "a proxy would look the name up anew"
    assert (found["GIT_TERMINAL_PROMPT"], found["GIT_ALLOW_PROTOCOL"], found["GIT_SSL_CAINFO"]) == ("0", "https", "/etc/ours.pem")
    by_proxy = git_steps.environment(wanted(pinned=()), tmp_path, network)
    assert by_proxy["HTTPS_PROXY"] == "http://proxy:3128"
    assert 'HostName="192.0.2.1"' in git_steps.environment(wanted("ssh"), tmp_path, {})["GIT_SSH_COMMAND"]

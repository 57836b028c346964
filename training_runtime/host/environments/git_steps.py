"""The commands by which git brings one commit as a zip, run inside the box by `code_fetch`. Nothing is checked out: what comes stays
objects of git's until `git archive` writes them, so that neither hooks nor filters nor links of a repository do anything here.

What a repository is told to be is said by environment variables; an address never stands where git would take it for an option.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ZIP, KEY, HOSTS = "code.zip", "key", "known_hosts"
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)
_EVERYTHING = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_MOST_NAMED = 8
# Which tree it is decides the zip, not when it was fetched: the same code is stored once.
_ALWAYS = {
    f"GIT_{who}_{what}": said
    for who in ("AUTHOR", "COMMITTER")
    for what, said in (("NAME", "studio"), ("EMAIL", "studio@localhost"), ("DATE", "946684800 +0000"))
}


@dataclass(frozen=True)
class GitSource:
    """`address`: https:// or ssh:// or user@host:path, and `host`, `port` of it; `pinned`: the addresses of that host that were looked at,
    none: a proxy is asked. `ref`: a branch, a tag or a commit; empty: what the repository says. `folder` of the tree, empty: all of it.
    `token`: user:token, or the token alone. `key`: a private key of ssh's; `host_key`: what the server's is known to be."""

    address: str
    scheme: str
    host: str
    port: int
    pinned: tuple[str, ...]
    ref: str
    folder: str
    token: str
    key: str
    host_key: str


class Failed(Exception):
    """The message is the sentence for people."""


class GitFailed(Exception):
    """git exited with an error; the message is what it wrote to standard error."""


def fetch(wanted: GitSource, at: Path, network: Mapping[str, str]) -> str:
    """The commit's full id; its tree is in `at`/ZIP. Raises Failed."""
    git = _Git(wanted, at, network)
    try:
        commit = git.commit()
        tree = git.tree(commit)
        made = git.run("commit-tree", "-m", "code", tree).strip()
        git.run("archive", "--format=zip", f"--output={at / ZIP}", made)
    except GitFailed as said:
        raise Failed(explained(str(said), wanted)) from None
    return commit


class _Git:
    def __init__(self, wanted: GitSource, at: Path, network: Mapping[str, str]) -> None:
        self.wanted, self.at, self.network = wanted, at, network
        self.repository = at / "repository"
        self.repository.mkdir()
        self.run("init", "--quiet", "--bare", ".")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.repository,
            env=environment(self.wanted, self.at, self.network),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise GitFailed(done.stderr.decode(errors="replace") or f"git {words[0]} ended with {done.returncode}")
        return done.stdout.decode(errors="replace")

    def commit(self) -> str:
        ref, there = self.wanted.ref, self._there()
        names = [name for name in (f"refs/heads/{ref}", f"refs/tags/{ref}", ref if not ref or ref == "HEAD" else "") if name in there]
        if not ref and "HEAD" in there:
            names = ["HEAD"]
        if names:
            self._bring(names[0])
            return self._resolved("FETCH_HEAD")
        if _FULL_COMMIT.fullmatch(ref):
            try:
                self._bring(ref)
                return self._resolved("FETCH_HEAD")
            except GitFailed:  # not every server gives commits that nothing points to
                pass
        if not _COMMIT.fullmatch(ref):
            raise Failed(_no_such(ref, there))
        self.run("fetch", "--quiet", "--no-tags", "--", self.wanted.address, *_EVERYTHING)
        try:
            return self._resolved(ref)
        except GitFailed:
            raise Failed(f"There is no commit {ref} in this repository, nor a branch or tag of this name.") from None

    def tree(self, commit: str) -> str:
        if not self.wanted.folder:
            return self._resolved(commit, "tree")
        with contextlib.suppress(GitFailed):
            found = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{self.wanted.folder}").strip()
            if self.run("cat-file", "-t", found).strip() == "tree":
                return found
        raise Failed(f"There is no folder {self.wanted.folder} in commit {commit[:12]}: correct it, or leave it empty.")

    def _there(self) -> dict[str, str]:
        """What branches and tags there are, by their full names."""
        lines = self.run("ls-remote", "--", self.wanted.address).splitlines()
        return {name: commit for commit, _, name in (line.partition("\t") for line in lines) if name}

    def _bring(self, name: str) -> None:
        words = ("fetch", "--quiet", "--no-tags", "--depth=1", "--", self.wanted.address, name)
        try:
            self.run(*words)
        except GitFailed as said:
            if "shallow" not in str(said):
                raise
            self.run(*(word for word in words if word != "--depth=1"))

    def _resolved(self, name: str, kind: str = "commit") -> str:
        return self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{{kind}}}").strip()


def environment(wanted: GitSource, at: Path, network: Mapping[str, str]) -> dict[str, str]:
    """Of git, and of all that it starts: no settings but these, nobody to ask, one protocol."""
    own = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(at / "home"),
        "LANG": "C.UTF-8",
        "LANGUAGE": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_ALLOW_PROTOCOL": wanted.scheme,
        "GIT_SSH_COMMAND": ssh(wanted, at),
    }
    own |= {name: network[of] for name, of in (("GIT_SSL_CAINFO", "SSL_CERT_FILE"), ("GIT_SSL_CAPATH", "SSL_CERT_DIR")) if of in network}
    proxies = {name: value for name, value in network.items() if name.lower().endswith("_proxy")} if not wanted.pinned else {}
    said = _settings(wanted)
    count = {"GIT_CONFIG_COUNT": str(len(said))}
    keys = {f"GIT_CONFIG_KEY_{number}": name for number, (name, _) in enumerate(said)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(said)}
    return proxies | _ALWAYS | own | count | keys | values


def _settings(wanted: GitSource) -> list[tuple[str, str]]:
    said = [
        ("http.followRedirects", "false"),
        ("http.lowSpeedLimit", "1000"),
        ("http.lowSpeedTime", "20"),
        ("core.hooksPath", os.devnull),
        ("credential.helper", ""),
        ("gc.auto", "0"),
    ]
    if wanted.pinned:
        said.append(("http.curloptResolve", f"{wanted.host}:{wanted.port}:{','.join(_bracketed(each) for each in wanted.pinned)}"))
    if wanted.token and wanted.scheme == "https":
        pair = wanted.token if ":" in wanted.token else f"x-access-token:{wanted.token}"
        header = base64.b64encode(pair.encode()).decode()
        said.append((f"http.https://{_bracketed(wanted.host)}:{wanted.port}/.extraHeader", f"Authorization: Basic {header}"))
    return said


def ssh(wanted: GitSource, at: Path) -> str:
    """With the key of this repository and no other, to the address that was looked at; the server's key is the one that is known."""
    options = {
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "IdentityFile": str(at / KEY),
        "StrictHostKeyChecking": "yes" if wanted.host_key else "accept-new",
        "UserKnownHostsFile": str(at / HOSTS),
        "GlobalKnownHostsFile": os.devnull,
        "HashKnownHosts": "no",
        "HostKeyAlias": wanted.host,
        "UpdateHostKeys": "no",
        "ConnectTimeout": "10",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
    }
    if wanted.pinned:
        options["HostName"] = wanted.pinned[0]
    return shlex.join(["ssh", "-F", os.devnull, *(word for name, value in options.items() for word in ("-o", f'{name}="{value}"'))])


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _no_such(ref: str, there: Mapping[str, str]) -> str:
    if not there:
        return "The repository is empty: push a commit to it first."
    names = [name for name in there if name.startswith(("refs/heads/", "refs/tags/")) and not name.endswith("^{}")]
    named = ", ".join(name.split("/", 2)[2] for name in names[:_MOST_NAMED])
    return f"There is no branch or tag {ref or 'HEAD'} in this repository: name one of those that there are ({named})."


_EXPLAINED = (
    (
        ("invalid format", "error in libcrypto", "load key", "passphrase"),
        "The deploy key is not a private key of ssh's, or has a passphrase: give one that has none.",
    ),
    (
        ("authentication failed", "could not read username", "could not read password", "error: 401", "error: 403", "permission denied ("),
        "{host} does not let the studio read this repository: give a deploy key or a token that may, or correct the one that was given.",
    ),
    (
        ("host key verification failed", "remote host identification has changed"),
        "{host} has another ssh key than when code was fetched from it before: if it is right that it has, give the deploy key again.",
    ),
    (
        ("repository not found", "error: 404", "not found", "does not appear to be a git repository", "does not exist"),
        "There is no such repository at {host}: correct the address, or give a deploy key or a token if it is a private one.",
    ),
    (
        ("redirect", "error: 301", "error: 302", "error: 307", "error: 308"),
        "{host} sends on to another address: give that address itself.",
    ),
    (
        ("certificate",),
        "The certificate of {host} is not one that this machine trusts: an administrator names its authority with SSL_CERT_FILE.",
    ),
    (
        ("file size limit", "file too large", "signal 25", "no space left"),
        "The repository is too large: name a branch or a tag instead of a commit, or leave data sets out of it.",
    ),
    (
        ("connection refused", "timed out", "couldn't connect", "failed to connect", "could not resolve", "unreachable", "too slow"),
        "{host} does not answer: correct the address, or try again when it does.",
    ),
)


def explained(said: str, wanted: GitSource) -> str:
    """What git said as a sentence with what to do."""
    low = said.lower()
    for words, sentence in _EXPLAINED:
        if any(word in low for word in words):
            return sentence.format(host=wanted.host)
    lines = [line for line in said.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "nothing")
    clean = "".join(c if c.isprintable() else "?" for c in last.removeprefix("fatal:").removeprefix("error:").strip(" ."))[:300]
    return f"git could not fetch it, and says: {clean}."

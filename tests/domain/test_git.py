"""Code from a git repository, from a real server over https: fetched by a boxed process, kept as an uploaded zip is, and fetched again."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import services
from experiments.accounts import sealed
from experiments.definitions import gitcode
from experiments.definitions.gitcode import GitRefused
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.models import DefinitionVersion, Project, TrainingDefinition, User
from tests import cast
from tests.gitserver import HOST, NEEDED, TOKEN, GitServer, Repository, SshServer, git, serving

pytestmark = [pytest.mark.django_db, NEEDED]
NO_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nnothing\n-----END OPENSSH PRIVATE KEY-----"
CODE = {"main.py": cast.MAIN_PY, "training/digits/run.py": "x = 1\n", "training/digits/lib/net.py": "y = 2\n"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with serving(tmp_path_factory.mktemp("git")) as server:
        yield server


@pytest.fixture
def names(server: GitServer) -> Callable[[str], tuple[str, Repository]]:
    """A new repository: its address, and the repository."""

    def make(name: str) -> tuple[str, Repository]:
        free = next(f"{name}{number}" for number in range(100) if not (server.root / f"{name}{number}.git").exists())
        return server.address(free), server.make(free)

    return make


@pytest.fixture(autouse=True)
def trusted(server: GitServer, settings: Any, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    settings.EDT_GIT_ALLOW = [HOST]
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def create(project: Project, by: User, address: str, **said: Any) -> DefinitionVersion:
    return services.create_definition_from_git(project, by=by, name="digits", git_address=address, **said)


def refused(call: Callable[[], object]) -> dict[str, list[str]]:
    with pytest.raises(DomainError) as error:
        call()
    found: dict[str, list[str]] = error.value.fields
    assert all(message.endswith(".") for messages in found.values() for message in messages)
    return found


def files(version: DefinitionVersion, home: Path) -> list[str]:
    with zipfile.ZipFile(home / "bundles" / f"{version.bundle.sha256}.zip") as archive:
        return sorted(info.filename for info in archive.infolist() if not info.is_dir())


def test_a_repository_becomes_a_version_as_a_zip_does(project: Project, alice: User, names: Any, home: Path) -> None:
    address, repository = names("public")
    commit = repository.commit(CODE)
    version = create(project, alice, address, command="main.py --epochs 2")
    assert (version.git_address, version.git_ref, version.git_folder, version.git_commit) == (address, "", "", commit)
    assert files(version, home) == sorted(CODE)
    assert (bundles.code_dir(version.bundle) / "main.py").read_text() == cast.MAIN_PY
    assert version.file_name.startswith("public")
    assert version.definition.git_access == ""
    assert not [path.name for path in (home / "tmp").iterdir() if path.name.startswith("git-")]


def test_branches_tags_commits_and_folders_are_found(project: Project, alice: User, names: Any, home: Path) -> None:
    address, repository = names("public")
    first = repository.commit(CODE, tag="v1")
    second = repository.commit({"main.py": "print(2)\n"})
    third = repository.commit({"main.py": "print(3)\n"}, branch="feature/new")
    said = {ref: create(project, alice, address, git_ref=ref).git_commit for ref in ("", "main", "v1", "feature/new", first, first[:9])}
    assert said == {"": second, "main": second, "v1": first, "feature/new": third, first: first, first[:9]: first}
    version = create(project, alice, address, git_ref="v1", git_folder="training/digits/", command="run.py")
    assert (version.git_folder, files(version, home)) == ("training/digits", ["lib/net.py", "run.py"])
    same = create(project, alice, address, git_ref="main", git_folder="training/digits")
    assert same.bundle == version.bundle, "the same tree is stored once, whichever commit it is of"


def test_a_commit_that_no_branch_has_any_more_is_found_as_long_as_the_server_has_it(project: Project, alice: User, names: Any) -> None:
    address, repository = names("public")
    lost = repository.commit(CODE)
    git(repository.work, "commit", "--quiet", "--amend", "--message", "other")
    git(repository.work, "push", "--quiet", "--force", "origin", "main")
    assert create(project, alice, address, git_ref=lost).git_commit == lost
    for unknown in (lost[::-1], "abcdef012"):
        said = refused(lambda unknown=unknown: create(project, alice, address, git_ref=unknown))
        assert said == {"git_address": [f"There is no commit {unknown} in this repository, nor a branch or tag of this name."]}


def test_a_private_repository_needs_its_token_which_is_kept_for_this_address_alone(project: Project, alice: User, names: Any) -> None:
    address, repository = names("private")
    repository.commit(CODE)
    assert "deploy key or a token" in refused(lambda: create(project, alice, address))["git_address"][0]
    assert "deploy key or a token" in refused(lambda: create(project, alice, address, git_credential="wrong"))["git_address"][0]
    assert not TrainingDefinition.objects.exists()
    definition = create(project, alice, address, git_credential=f" {TOKEN}\n").definition
    stored = TrainingDefinition.objects.get(pk=definition.pk).git_access
    assert stored
    assert TOKEN not in stored
    assert TOKEN in sealed.unseal(stored, purpose=gitcode.PURPOSE)
    with pytest.raises(sealed.Unreadable):
        sealed.unseal(stored, purpose="something else")
    latest = repository.commit({"main.py": "print(2)\n"})
    again = services.fetch_again(definition, by=alice)
    assert again is not None
    assert (again.number, again.git_commit) == (2, latest)
    elsewhere, other = names("private")
    other.commit(CODE)
    assert "token" in refused(lambda: services.add_version_from_git(definition, by=alice, git_address=elsewhere))["git_address"][0]
    copy = services.copy_definition(again, to=project, by=alice)
    assert (copy.git_commit, copy.definition.git_access) == (latest, ""), "who copies it has no right to the repository by that"


def test_fetching_again_says_where_nothing_has_changed_and_keeps_all_else(project: Project, alice: User, names: Any) -> None:
    address, repository = names("public")
    repository.commit(CODE)
    asked = {"command": "main.py", "distributed": "single", "max_slots": 3, "packages": "studio"}
    version = create(project, alice, address, git_ref="main", **asked)
    definition = version.definition
    assert services.fetch_again(definition, by=alice) is None
    commit = repository.commit({"main.py": "print(2)\n"})
    again = services.fetch_again(definition, by=alice)
    assert again is not None
    assert (again.git_ref, again.git_commit) == ("main", commit)
    assert {name: getattr(again, name) for name in asked} == asked
    kept = services.add_version(definition, by=alice, command="main.py --lr 1")
    assert (kept.git_address, kept.git_commit) == (address, commit), "the same code is of the same commit"
    uploaded = services.add_version(definition, by=alice, upload=cast.zipped(), file_name="mine.zip")
    assert uploaded.git_address == ""
    assert "uploaded" in refused(lambda: services.fetch_again(definition, by=alice))["git_address"][0]


@pytest.mark.parametrize(
    ("said", "field", "words"),
    [
        ({"git_ref": "nope"}, "git_address", "There is no branch or tag nope in this repository: name one of those that there are (main)."),
        ({"git_folder": "nope"}, "git_address", "There is no folder nope in commit"),
        ({"git_folder": "main.py"}, "git_address", "There is no folder main.py in commit"),
        ({"git_ref": "--upload-pack=touch /tmp/x"}, "git_ref", "is no name of a branch or tag"),
        ({"git_ref": "main^{tree}"}, "git_ref", "is no name of a branch or tag"),
        ({"git_folder": "../up"}, "git_folder", "is no folder of a repository"),
        ({"git_credential": "-----BEGIN\0"}, "git_credential", "paste it anew"),
        ({"git_credential": "two\nlines"}, "git_credential", "paste it anew"),
        ({"command": "train.py"}, "command", "train.py is not in the zip"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    said: dict[str, str], field: str, words: str, project: Project, alice: User, names: Any
) -> None:
    address, repository = names("public")
    repository.commit(CODE)
    found = refused(lambda: create(project, alice, address, **said))
    assert list(found) == [field]
    assert words in found[field][0]
    assert not TrainingDefinition.objects.exists()


def test_a_repository_that_is_not_there_or_empty_or_elsewhere_is_said(project: Project, alice: User, names: Any, server: GitServer) -> None:
    def said(address: str) -> str:
        return refused(lambda: create(project, alice, address))["git_address"][0]

    assert "There is no such repository at 127.0.0.1" in said(server.address("nowhere"))
    assert "The repository is empty" in said(names("public")[0])
    assert "sends on to another address" in said(server.address("moved"))
    assert "does not answer" in said(f"https://{HOST}:1/x.git")


def test_a_certificate_that_nobody_knows_is_refused(project: Project, alice: User, names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address, repository = names("public")
    repository.commit(CODE)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "SSL_CERT_FILE" in refused(lambda: create(project, alice, address))["git_address"][0]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "-oProxyCommand=touch /tmp/x",
        "--upload-pack=touch",
        "file:///etc",
        "/etc/passwd",
        "../x",
        "ext::sh -c touch% /tmp/x",
        "http://example.org/x.git",
        "git://example.org/x.git",
        "https://example.org",
        "https://alice:word@example.org/x.git",
        "https://token@example.org/x.git",
        "ssh://-oProxyCommand=x/y.git",
        "ssh://-x@example.org/y.git",
        "git@-oProxyCommand=x:y.git",
        "git@example.org:-x",
        "-git@example.org:x",
        "https://example.org/x.git?y",
        "https://exa mple.org/x.git",
        "https://example.org/x\n.git",
        "https://[::1/x",
        "https://example.org:99999/x",
        "https://" + "x" * 600 + "/y",
        "https://exämple.org/x.git",
    ],
)
def test_other_addresses_are_refused_before_anything_is_started(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gitcode.subprocess, "Popen", None)
    with pytest.raises(GitRefused):
        gitcode.checked(address, "", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]"])
@pytest.mark.parametrize("form", ["https://{}/x.git", "ssh://git@{}/x.git"])
def test_what_is_not_on_the_open_internet_is_asked_only_where_an_administrator_allows_it(
    form: str, host: str, settings: Any, project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EDT_GIT_ALLOW = []
    monkeypatch.setenv("HTTPS_PROXY", "http://10.0.0.9:3128")  # who asks for a number is looked at all the same
    monkeypatch.setattr(gitcode.subprocess, "Popen", None)
    if host == "localhost":
        monkeypatch.delenv("HTTPS_PROXY")
    said = refused(lambda: create(project, alice, form.format(host), git_credential="-----BEGIN OPENSSH PRIVATE KEY-----"))
    assert "an administrator can allow it (EDT_GIT_ALLOW)" in said["git_address"][0]


def test_links_in_a_repository_are_refused_as_in_a_zip(project: Project, alice: User, names: Any) -> None:
    address, repository = names("public")
    (repository.work / "passwd").symlink_to("/etc/passwd")
    repository.commit(CODE)
    assert "passwd" in refused(lambda: create(project, alice, address))["upload"][0]


def test_nothing_of_a_repository_is_run(project: Project, alice: User, names: Any, tmp_path: Path, home: Path) -> None:
    """Neither filters nor hooks nor submodules."""
    address, repository = names("public")
    git(repository.work, "config", "-f", ".gitmodules", "submodule.sub.path", "sub")
    git(repository.work, "config", "-f", ".gitmodules", "submodule.sub.url", "ext::sh -c 'touch /tmp/owned'")
    version_of = repository.commit({**CODE, ".gitattributes": "*.py filter=evil export-subst\n", ".gitconfig": "[filter]"})
    assert create(project, alice, address).git_commit == version_of
    assert not Path("/tmp/owned").exists()


def test_too_much_time_and_too_large_a_repository_are_ended(project: Project, alice: User, names: Any, settings: Any) -> None:
    address, repository = names("public")
    repository.commit({**CODE, "data.txt": "".join(f"{number * 7919 % 1000003}\n" for number in range(200_000))})
    settings.EDT_GIT_FETCH_S = 0.0
    assert "had not come within 0 s" in refused(lambda: create(project, alice, address))["git_address"][0]
    settings.EDT_GIT_FETCH_S, settings.EDT_MAX_UPLOAD_BYTES = 60.0, 200_000
    assert "large" in next(iter(refused(lambda: create(project, alice, address)).values()))[0]


def test_a_deploy_key_opens_a_repository_and_the_servers_key_is_remembered(
    project: Project, alice: User, names: Any, server: GitServer
) -> None:
    address, repository = names("keyed")
    name = address.rsplit("/", 1)[1]
    first, ssh = repository.commit(CODE), SshServer(server.root)
    with ssh.serving() as port:
        at = f"ssh://git@{HOST}:{port}/{name}"
        other = SshServer(server.root).client_key
        assert "deploy key" in refused(lambda: create(project, alice, at, git_credential=other))["git_address"][0]
        assert "not a private key" in refused(lambda: create(project, alice, at, git_credential=NO_KEY))["git_address"][0]
        version = create(project, alice, at, git_credential=ssh.client_key, git_ref="main")
        assert (version.git_commit, version.git_address) == (first, at)
        old = repository.commit({"main.py": "print(2)\n"})
        repository.commit({"main.py": "print(3)\n"})
        assert services.add_version_from_git(version.definition, by=alice, git_address=at, git_ref=old[:12]).git_commit == old
    assert "PRIVATE" not in TrainingDefinition.objects.get().git_access
    with ssh.serving(port):
        said = refused(lambda: services.add_version_from_git(version.definition, by=alice, git_address=at))
        assert "has another ssh key than when code was fetched from it before" in said["git_address"][0]
        again = services.add_version_from_git(version.definition, by=alice, git_address=at, git_credential=ssh.client_key)
        assert again.number == 3


def test_an_ssh_address_needs_a_key(project: Project, alice: User) -> None:
    assert list(refused(lambda: create(project, alice, "git@github.com:someone/project.git"))) == ["git_credential"]


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b/commit/abc"),
        ("git@github.com:a/b.git", "https://github.com/a/b/commit/abc"),
        ("ssh://git@gitlab.com/a/b/c.git", "https://gitlab.com/a/b/c/-/commit/abc"),
        ("https://gitlab.example.org/a/b", "https://gitlab.example.org/a/b/-/commit/abc"),
        ("https://bitbucket.org/a/b", "https://bitbucket.org/a/b/commits/abc"),
        ("https://git.example.org/a/b", ""),
        ('https://github.com/a"><script>/b', ""),
        ("", ""),
    ],
)
def test_a_commit_is_linked_where_its_page_is_known(address: str, page: str) -> None:
    assert gitcode.page_of(address, "abc") == page

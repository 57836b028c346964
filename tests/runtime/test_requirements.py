"""What is read of an upload's requirements, what is refused and how, and what counts as the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.environments import base as bases
from training_runtime.environments import problems
from training_runtime.environments.base import Base
from training_runtime.environments.folders import folder_name
from training_runtime.environments.readiness import Build, Verdict, decide
from training_runtime.environments.requirements import Allowed, Line, Refused, find, from_text, key, read, to_text

BASE = Base("3.11", "linux", (("numpy", "2.4.6"), ("torch", "2.13.0+cpu")))


def of(text: str, *, allowed: Allowed | None = None, **files: str) -> tuple[Line, ...]:
    there = {"requirements.txt": text} | {name.replace("__", "/").replace("_txt", ".txt"): each for name, each in files.items()}
    return read("requirements.txt", lambda path: there[path].encode(), allowed=allowed)


@pytest.mark.parametrize(
    ("files", "script", "found"),
    [
        (["main.py", "requirements.txt"], "main.py", "requirements.txt"),
        (["a/main.py", "a/requirements.txt", "requirements.txt"], "a/main.py", "a/requirements.txt"),
        (["a/main.py", "requirements.txt"], "a/main.py", "requirements.txt"),
        (["a/main.py", "a/pyproject.toml", "requirements.txt"], "a/main.py", "requirements.txt"),
        (["main.py", "pyproject.toml"], "", "pyproject.toml"),
        (["main.py", "docs/requirements.txt"], "main.py", ""),
    ],
)
def test_which_file_says_it(files, script, found):
    assert find(files, script) == found


def test_lines_keep_their_numbers_through_comments_continuations_and_other_files():
    found = of(
        "# what we need\n\nTorch >= 2  # the base's\nfoo[a,b]==1.0 ; python_version > '3' \\\n   --hash=sha256:00\n-r more.txt\n"
        "--prefer-binary\nlast",
        more_txt="x\n",
    )
    assert [(line.name, line.where) for line in found] == [
        ("torch", "requirements.txt line 3"),
        ("foo", "requirements.txt line 4"),
        ("x", "more.txt line 1"),
        ("last", "requirements.txt line 8"),
    ]
    assert found[1].text == 'foo[a,b]==1.0; python_version > "3"'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-e .", "line 2: editable packages (-e) are not installed"),
        ("-e git+https://example.org/x", "editable"),
        ("./mine", "is a file or folder"),
        ("../x.whl", "is a file or folder"),
        ("file:///etc/x", "is a file or folder"),
        ("mine-1.0-py3-none-any.whl", "is a file or folder"),
        ("git+https://token:secret@example.org/x.git", "is an address without a name"),
        ("https://example.org/x.whl", "is an address without a name"),
        ("x @ git+https://example.org/x", "x comes from an address"),
        ("x @ http://example.org/x.whl", "no https address"),
        ("x @ file:///etc/passwd", "no https address"),
        ("--index-url https://example.org/simple", "--index-url is not taken from uploads"),
        ("-ihttps://example.org/simple", "--index-url is not taken from uploads"),
        ("--extra-index-url=https://example.org/simple", "--extra-index-url is not taken"),
        ("-c limits.txt", "constraints files (-c) are not read"),
        ("-r /etc/passwd", "is not a file of the upload"),
        ("-r ../outside.txt", "is not a file of the upload"),
        ("-r https://example.org/r.txt", "is not a file of the upload"),
        ("-r nowhere.txt", "there is no nowhere.txt in the upload"),
        ("-r requirements.txt", "names itself again"),
        ("--global-option x", "the option --global-option is not known here"),
        ("x=1", "x=1 is not a requirement: write it as NAME"),
        ("x==${VERSION}", "variables such as ${NAME} are not filled in"),
        ("import torch", "is not a requirement"),
    ],
)
def test_what_names_a_place_or_cannot_be_read_is_refused_with_its_line(line, says):
    with pytest.raises(Refused) as refused:
        of(f"ok\n{line}\n")
    assert str(refused.value).startswith("requirements.txt line 2: ")
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


def test_an_administrator_may_allow_addresses():
    found = of("--index-url https://example.org/simple\nx @ git+https://example.org/x\n", allowed=Allowed(addresses=True))
    assert [line.text for line in found] == ["--index-url https://example.org/simple", "x @ git+https://example.org/x"]
    assert from_text(to_text(found)) == found


def test_a_file_of_powershell_is_read_and_one_that_is_no_text_is_not():
    assert read("requirements.txt", lambda _: "tqdm\r\nrich\r\n".encode("utf-16"))[1].name == "rich"
    with pytest.raises(Refused, match="not text"):
        read("requirements.txt", lambda _: b"\xff\x00\x81x")
    with pytest.raises(Refused, match="larger than 256 KiB"):
        read("requirements.txt", lambda _: b"x\n" * 200_000)


def test_a_project_file_says_it_with_lines():
    text = '[project]\nname = "x"\ndependencies = [\n  "tqdm>=4",\n  "torch",\n]\n'
    assert [(line.name, line.number) for line in read("a/pyproject.toml", lambda _: text.encode())] == [("tqdm", 4), ("torch", 5)]
    assert read("pyproject.toml", lambda _: b"[tool.ruff]\nline-length = 100\n") == ()
    for wrong in (b"[project", b'[project]\ndynamic = ["dependencies"]', b"[project]\ndependencies = 3", b"project = 3"):
        with pytest.raises(Refused, match=r"requirements\.txt|texts"):
            read("pyproject.toml", lambda _, wrong=wrong: wrong)


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True)
REQUIREMENTS = st.lists(st.tuples(NAMES, st.sampled_from(["", "==1.0", ">=2,<3", "~=1.4"])), min_size=1, max_size=8)


@given(REQUIREMENTS, st.randoms(use_true_random=False))
def test_order_spelling_and_comments_make_no_other_environment(wanted, random):
    shuffled = [(name.upper().replace("-", "_"), version) for name, version in wanted]
    random.shuffle(shuffled)
    one = of("".join(f"{name}{version}\n" for name, version in wanted))
    other = of("# words\n" + "".join(f"\n{name} {version}   # why\n" for name, version in shuffled))
    assert key(one) == key(other)
    assert from_text(to_text(one)) == one
    assert key(of("".join(f"{name}{version}\n" for name, version in wanted) + "one-more-package-than-that\n")) != key(one)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_sentence(text):
    try:
        lines = of(text)
    except Refused as refused:
        assert "requirements.txt" in str(refused)
    else:
        assert from_text(to_text(lines)) == lines


@pytest.mark.parametrize(
    ("text", "contradicts"),
    [
        ("torch", False),
        ("torch>=2", False),
        ("torch==2.13.0", False),
        ("torch==1.13", True),
        ("numpy<2", True),
        ("numpy==1.26; python_version < '3'", False),
        ("torchvision==0.1", False),
    ],
)
def test_what_is_never_replaced_must_satisfy_the_line(text, contradicts):
    said = bases.contradiction(of(f"tqdm\n{text}\n"), BASE)
    assert bool(said) == contradicts
    if said:
        assert said.startswith("requirements.txt line 2 asks for ")
        assert "is not replaced: write" in said


def test_the_base_and_the_lock_make_the_folder():
    lock = "tqdm==4.67 \\\n    --hash=sha256:00\n"
    other = Base("3.11", "linux", (("numpy", "2.4.6"), ("torch", "2.13.0+cu126")))
    names = {
        folder_name(lock, base.key, prefix=prefix)
        for lock, base in ((lock, BASE), (lock.replace("67", "68"), BASE), (lock, other))
        for prefix in ("/a", "/b")
    }
    assert len(names) == 6
    assert folder_name(f"# words\n\n{lock}", BASE.key, prefix="/a") in names
    assert bases.packages(lock + "x @ https://example.org/x.whl\n--index-url y\n") == (("tqdm", "4.67"), ("x", "https://example.org/x.whl"))


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (
            "error: No solution found\n  cause: Because nosuch was not found in the package registry and you require nosuch",
            "requirements.txt line 1: nosuch>=1 is not in the package index",
        ),
        (
            "error: No solution found\n  cause: Because old==1 depends on torch<2 and you require old, we can conclude that your "
            "requirements are unsatisfiable.",
            "requirements.txt line 2 (old) does not fit the rest, or Python 3.11, numpy",
        ),
        (
            "error: Failed to fetch: `https://me:secret@example.org/simple`\n cause: dns error",
            "The package index cannot be reached from here",
        ),
        (
            "error: Failed to build `old==1`\n  cause: The build backend returned an error",
            "requirements.txt line 2: old has no wheel for Python 3.11",
        ),
        ("error: something new", "The environment could not be built: something new."),
    ],
)
def test_the_errors_of_uv_become_a_sentence(output, says):
    said = problems.explain(output, of("nosuch>=1\nold\n"), base=BASE.words, node="here")
    assert said.startswith(says)
    assert "secret" not in said


def test_a_run_is_planned_where_its_environment_is_ready_and_fails_when_nobody_can_build_it():
    ready, failed, going = Build("ready"), Build("failed", problem="line 2"), Build("building", detail="resolving")
    assert decide({"a": ready, "b": going, "c": failed}) == Verdict(on=frozenset({"a"}))
    assert decide({"a": Build("wanted"), "b": going, "c": failed}).waits == "Building the environment on b: resolving"
    assert decide({"a": failed, "b": failed}) == Verdict(fails="line 2")
    assert decide({}).waits

"""How the machine reaches packages: what is taken for the builder, of which settings, and what it has to be able to read."""

from __future__ import annotations

from pathlib import Path

from training_runtime.environments import network

PROXY = "http://me:secret@proxy:3128"


def test_proxies_certificates_and_indexes_are_taken_and_nothing_else(tmp_path: Path) -> None:
    given = {"HTTPS_PROXY": PROXY, "no_proxy": "10.0.0.0/8", "UV_INDEX_URL": "https://a/simple", "UV_INDEX_OURS_PASSWORD": "x"}
    none = {"DATABASE_URL": "y", "HOME": str(tmp_path), "UV_CACHE_DIR": "/elsewhere", "PIP_CONFIG_FILE": "/dev/null", "HTTP_PROXY": ""}
    assert network.settings(given | none, prefix=str(tmp_path)) == given


def test_what_pip_is_set_to_is_taken_where_uv_is_set_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a/simple\nextra-index-url = https://b/simple\n    https://c/simple\ncert = /etc/hosts\n"
    )
    found = network.settings({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}, prefix="/nowhere")
    assert found["UV_DEFAULT_INDEX"] == "https://a/simple"
    assert found["UV_INDEX"] == "https://b/simple https://c/simple"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match", "pip takes the best version of all its indexes"
    assert found["SSL_CERT_FILE"] == "/etc/hosts"
    assert network.settings({"PIP_INDEX_URL": "https://d/simple"}, prefix=str(tmp_path))["UV_DEFAULT_INDEX"] == "https://d/simple"
    both = {"PIP_INDEX_URL": "https://d/simple", "UV_INDEX_URL": "https://e/simple", "PIP_CONFIG_FILE": "/dev/null"}
    assert network.settings(both, prefix="/nowhere") == {"UV_INDEX_URL": "https://e/simple"}


def test_a_broken_file_of_pip_is_left_to_pip(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("index-url = no section\n")
    assert "UV_DEFAULT_INDEX" not in network.settings({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}, prefix="/nowhere")


def test_folders_that_are_named_can_be_read(tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "index" / "simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    named = {"UV_FIND_LINKS": f"{wheels},https://a/wheels", "UV_INDEX": f"file://{index} /not/there", "SSL_CERT_FILE": "/etc/hosts"}
    assert network.folders(named) == (str(wheels), str(index.parent), "/etc/hosts")


def test_hosts_of_proxies_and_of_indexes_are_known() -> None:
    given = {
        "HTTPS_PROXY": PROXY,
        "no_proxy": "internal.example",
        "UV_DEFAULT_INDEX": "https://me:secret@a.example/simple",
        "UV_INDEX": "ours=http://10.0.0.7:3141/root/simple https://b.example/simple",
        "UV_FIND_LINKS": "/opt/wheels,https://c.example/wheels",
    }
    assert network.servers(given) == ("proxy", "c.example", "a.example", "10.0.0.7", "b.example")
    assert network.servers({"http_proxy": "proxy:3128", "UV_INDEX": "file:///opt/simple", "UV_INDEX_URL": "http://["}) == ("proxy",)

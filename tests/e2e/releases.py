"""A copy of the code as one release, and what turns it into the next: for tests of upgrades. The next one speaks a version more, with
fields and messages that this one does not know, and has a migration."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.e2e.studio import REPOSITORY

PARTS = ("manage.py", "webapp", "experiments", "training_runtime", "edt_client", "templates", "static")
SETTINGS = {"EDT_SANDBOX_READ": sys.prefix}  # its packages are those of the environment that runs the tests
UNKNOWN = '{"type":"in_the_next_version","x":[1]}'
MIGRATION = """
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "{last}")]
    operations = [
        migrations.CreateModel(
            name="NextRelease{number}", fields=[("id", models.BigAutoField(primary_key=True)), ("words", models.TextField(default="x"))]
        )
    ]
"""


def install(folder: Path) -> Path:
    """This release in a new folder, with an environment of its own that has the packages of this one."""
    folder.mkdir(mode=0o755)
    for name in PARTS:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name)  # with what is compiled already
        else:
            shutil.copy2(source, folder / name)
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    there = sysconfig.get_path("purelib", vars={"base": str(folder / ".venv")})
    Path(there, "packages.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    setup = [folder / ".venv" / "bin" / "python", "-m", "training_runtime.host.runs.fabric", folder / ".venv"]  # as tools/setup.sh does
    subprocess.run(setup, cwd=folder, check=True, capture_output=True)
    return folder


def upgrade(folder: Path) -> None:
    """To the next release, in place, as an update of a clone does."""
    runtime = folder / "training_runtime"
    for path in (runtime / "protocol.py", runtime / "node" / "messages.py"):
        text = path.read_text()
        version = int(re.findall(r"^VERSION = (\d+)", text, re.MULTILINE)[0])
        text = re.sub(r"^VERSION = \d+", f"VERSION = {version + 1}", text, flags=re.MULTILINE)
        path.write_text(re.sub(r"^OLDEST = \d+", f"OLDEST = {version}", text, flags=re.MULTILINE))
    field = '    in_the_next_version: str = "what the next release says"\n'
    _patch(runtime / "protocol.py", "    isolated: bool = False\n", after=field)
    _patch(runtime / "node" / "messages.py", "    several: bool = False\n", after=field)
    sends = "        connection.sendall(encode(message))\n"
    _patch(runtime / "host" / "client.py", sends, before=f"        connection.sendall(b'{UNKNOWN}\\n')\n")
    says = "                await self._say(told.wanted)\n"
    gateway = folder / "experiments" / "cluster" / "gateway.py"
    _patch(gateway, says, before=f"                await self.send(text_data='{UNKNOWN}')\n")
    _add_migration(folder / "experiments" / "migrations")


def spoken(folder: Path, module: str) -> int:
    """The version that the release installed there speaks: of `protocol`, or of the stream (`node/messages`)."""
    return int(re.findall(r"^VERSION = (\d+)", (folder / "training_runtime" / f"{module}.py").read_text(), re.MULTILINE)[0])


def _patch(path: Path, line: str, *, before: str = "", after: str = "") -> None:
    text = path.read_text()
    assert text.count(line) == 1, f"{path}: {line!r}"
    path.write_text(text.replace(line, f"{before}{line}{after}"))


def _add_migration(folder: Path) -> None:
    last = max(path.stem for path in folder.glob("[0-9]*.py"))
    number = int(last[:4]) + 1
    (folder / f"{number:04}_next_release.py").write_text(MIGRATION.format(last=last, number=number))

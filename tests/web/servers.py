"""Studios with a past, one after the other, each from its beginning: forked from a process that has imported what they need.

    python -m tests.web.servers

At each line "begin" of its standard input there is one, as `tests.web.serving` says, which has the lines up to "end". One that
dies says {"died": its exit status}. It ends, and leaves nothing, when its input ends.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="edt-web-"))
    os.environ |= {"EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings_test"}
    try:
        _import()
        while line := sys.stdin.readline():
            assert line == "begin\n", line
            if status := _one_studio():
                sys.stdout.write(f'{{"died": {status}}}\n')
                sys.stdout.flush()
            shutil.rmtree(home)
            home.mkdir(mode=0o700)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


def _import() -> None:
    """What each of them would, with its pages read; nothing is begun, since threads and connections outlive no fork."""
    import django

    django.setup()
    from django.conf import settings
    from django.template.loader import get_template
    from django.urls import get_resolver

    from tests import migrated, transferred
    from tests.web import fetched, packages, seed, serving, strange
    from webapp import asgi

    assert all((migrated, transferred, fetched, packages, seed, serving, strange, asgi))
    assert get_resolver().url_patterns
    for page in (settings.BASE_DIR / "templates").rglob("*.html"):
        get_template(page.relative_to(settings.BASE_DIR / "templates").as_posix())


def _one_studio() -> int:
    """Its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        from django.conf import settings

        from tests.web import serving
        from webapp.home import prepare

        prepare(settings.EDT_HOME)
        serving.serve()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())

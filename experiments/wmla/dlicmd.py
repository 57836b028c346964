#!/usr/bin/env python3
"""dlicmd.py: submits and watches jobs from a command line, with the verbs and options of WMLA's program of this name.

Served at /ui/tools/dlicmd.py and run by itself: Python 3.8 or later and its standard library are all that it needs. `--help` says more.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import getpass
import json
import os
import shlex
import shutil
import ssl
import stat
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import IO, Any, Callable, Iterator, NoReturn, cast  # noqa: UP035  (it runs on Python 3.8)

HELP = """usage: python dlicmd.py VERB [CONNECTION] [JOB OPTIONS] [-- ARGUMENTS OF THE SCRIPT]

  --logon, --logoff, --status, --dl-frameworks
  --exec-start FRAMEWORK         submit a job
  --exec-get-all, --exec-get ID, --exec-stop ID, --exec-delete ID, --exec-delete-all
  --exec-launcherlogs ID, --exec-outlogs ID, --exec-errlogs ID          of its driver and its executors
  --exec-trainlogs ID, --exec-trainoutlogs ID, --exec-trainerrlogs ID   of its training
  --exec-trainresult ID          save its model
  --app-get-all, --app-history-get-all, --app-get ID, --app-wait ID, --app-analyze ID
  --app-stop ID ..., --app-stop-all, --app-launcherlogs ID, --app-outlogs ID, --app-errlogs ID
  --rp-get-all, --rp-get NAME, --k8s-obj-get-all
  --hpo-start FILE --model-dir FOLDER     search for hyperparameters, as the JSON in FILE says
  --hpo-get-all, --hpo-get NAME, --hpo-stop NAME ..., --hpo-delete NAME ..., --hpo-delete-all
  --hpo-algorithm-get-all, --hpo-algorithm-get NAME

connection: --rest-host HOST [--rest-port PORT], and --username NAME --password WORD, --jwt-token TOKEN, or what --logon kept in ~/.dlicmd
  https; the certificate is checked only where --ca-cert FILE says whom to trust; --rest-host http://HOST for a studio without it.
job: --model-dir FOLDER --model-main SCRIPT, --cs-datastore-meta type=fs,data_path=FOLDER or --data-source JSON, --numWorker N,
  --workerDeviceNum N, --workerDeviceType cpu|gpu, --msd-env NAME=VALUE, --msd-priority N; others of WMLA's are passed on
output: -o json, -o custom-columns=NAME:.key,...; --query-args "limit=10&state=FINISHED&sort_by=id:desc"
"""
DL = "/platform/rest/deeplearning/v1"
ACTIVE = "NEW SUBMITTED PENDING_JOB_SCHEDULER PENDING_CRD_SCHEDULER LAUNCHING RUNNING RECOVERING UNKNOWN".split()  # noqa: SIM905
OWN: tuple[str, ...] = (
    "--rest-host",
    "--master-host",
    "--rest-port",
    "--dli-rest-port",
    "--username",
    "--password",
    "--jwt-token",
    "--ca-cert",
)
OWN += ("--query-args", "-o", "--output", "--debug-level", "--data-source")
EXEC_COLUMNS = "id creator=submit_user appName=name framework elastic=type state numWorker=num createTime=submit_time createTime=age"
APP_COLUMNS = "id consumer submit_user name priority=pri type state task12n_num=num used_gpu=gpu used_mem=mem used_cpu=cpu"
APP_COLUMNS += " submit_time start_time submit_time=age"
SEARCH_COLUMNS = "hpoName=name state running progress creator createtime duration complete failed"
KEPT = ".dlicmd"
EVERY_S = 2.0
LEFT_OUT = ("__pycache__", ".git", ".ipynb_checkpoints")


class Failed(Exception):
    """Told to the person, who sees no traceback."""


class CommandLine:
    """The command line: options of this program by name, and the words that are left, in their order."""

    def __init__(self, words: list[str]) -> None:
        self.own: dict[str, str] = {}
        self.left: list[str] = []
        place = 0
        while place < len(words):
            name, sign, value = words[place].partition("=")
            if words[place] == "--":
                self.left += words[place:]
                break
            if name in OWN:
                if not sign:
                    place += 1
                    if place == len(words):
                        raise Failed(f"{name} has no value: write {name} VALUE.")
                    value = words[place]
                self.own[name] = value
            else:
                self.left.append(words[place])
            place += 1

    def get(self, *names: str) -> str:
        return next((self.own[name] for name in names if self.own.get(name)), "")

    def verb(self) -> tuple[str, list[str]]:
        """The verb and the words after it."""
        for place, word in enumerate(self.left):
            name, sign, value = word.partition("=")
            if word == "--":
                break
            if name in VERBS:
                return name, ([value] if sign else []) + self.left[place + 1 :]
        raise Failed("Say what to do, for example --exec-get-all. --help lists what there is.")

    def place_of(self, name: str) -> int | None:
        until = self.left.index("--") if "--" in self.left else len(self.left)
        return next((at for at, word in enumerate(self.left[:until]) if word.partition("=")[0] == name), None)

    def job_option(self, name: str) -> str:
        at = self.place_of(name)
        if at is None:
            return ""
        _, sign, value = self.left[at].partition("=")
        return value if sign else (self.left[at + 1] if at + 1 < len(self.left) else "")

    def replace(self, name: str, value: str) -> None:
        at = self.place_of(name)
        if at is not None:
            self.left[at : at + (1 if "=" in self.left[at] else 2)] = [name, value]


class Service:
    """The studio, and who asks."""

    def __init__(self, said: CommandLine) -> None:
        host = said.get("--rest-host", "--master-host").rstrip("/")
        if not host:
            raise Failed("Say where the studio is: --rest-host HOST.")
        port = said.get("--rest-port", "--dli-rest-port")
        scheme, sign, name = host.partition("://")
        self.scheme, self.name = (scheme, name) if sign else ("https", host)
        if port and port != "-1":
            self.name += f":{port}"
        self.may_be_plain = not sign and self.name.partition(":")[0] in ("localhost", "127.0.0.1")  # nobody listens on the way
        trusted = said.get("--ca-cert")
        self.tls = ssl.create_default_context(cafile=trusted or None)
        if not trusted:  # as WMLA's program, for certificates that a cluster signs itself
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.username, self.password, self.token = said.get("--username"), said.get("--password"), said.get("--jwt-token")

    def log_on(self) -> str:
        if not (self.username and self.password) and not sys.stdin.isatty():
            raise Failed("Say who you are: --username NAME --password WORD, or --jwt-token TOKEN, or --logon first.")
        name = self.username or input("Username: ")
        word = self.password or getpass.getpass("Password: ")
        basic = base64.b64encode(f"{name}:{word}".encode()).decode()
        with self.open("GET", "/auth/v1/logon", headers={"Authorization": f"Basic {basic}"}) as answer:
            self.token = str(json.load(answer)["accessToken"])
        return self.token

    def call(self, method: str, path: str, *, accept: str = "application/json", body: IO[bytes] | None = None, kind: str = "") -> Any:
        """The answer, open. Raises Failed with what the service says."""
        if not self.token:
            self.token = "" if self.username else saved_tokens().get(self.name, "")
        if not self.token:
            self.log_on()
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        if body is not None:
            headers.update({"Content-Type": kind, "Content-Length": str(body.seek(0, os.SEEK_END))})
            body.seek(0)
        return self.open(method, path, headers=headers, body=body)

    def open(self, method: str, path: str, *, headers: dict[str, str], body: IO[bytes] | None = None) -> Any:
        if self.scheme not in ("http", "https"):
            raise Failed(f"{self.scheme}:// is not possible: write --rest-host HOST, or http://HOST.")
        request = urllib.request.Request(  # noqa: S310
            f"{self.scheme}://{self.name}{path}", method=method, headers=headers, data=cast(Any, body)
        )
        try:
            return urllib.request.urlopen(request, context=self.tls if self.scheme == "https" else None)  # noqa: S310
        except urllib.error.HTTPError as error:
            raise Failed(f"{_message(error)} HTTP:{error.code}") from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            if not isinstance(reason, ssl.SSLError) or self.scheme != "https":
                raise Failed(f"{self.scheme}://{self.name} cannot be reached: {reason}.") from None
            if not self.may_be_plain:
                raise Failed(f"{self.name} does not speak https ({reason.reason}). Without it: --rest-host http://{self.name}") from None
        self.scheme = "http"
        if body is not None:
            body.seek(0)
        return self.open(method, path, headers=headers, body=body)

    def json(self, path: str) -> Any:
        with self.call("GET", path) as answer:
            return json.load(answer)

    def text(self, path: str) -> None:
        with self.call("GET", path, accept="text/plain") as answer:
            shutil.copyfileobj(answer, sys.stdout.buffer)
        sys.stdout.flush()


def _message(error: urllib.error.HTTPError) -> str:
    said = error.read().decode(errors="replace").strip()
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return said or str(error.reason)


def say(what: object) -> None:
    sys.stdout.write(what if isinstance(what, str) else json.dumps(what, indent=2) + "\n")
    sys.stdout.flush()


def saved_tokens() -> dict[str, str]:
    """Tokens by host."""
    try:
        return {str(key): str(value) for key, value in json.loads((Path.home() / KEPT).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def save_tokens(tokens: dict[str, str]) -> None:
    path = Path.home() / KEPT
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        json.dump(tokens, file)


class Call:
    """What a verb is given: the service, the command line, and the words after the verb."""

    def __init__(self, service: Service, said: CommandLine, words: list[str]) -> None:
        self.service, self.said, self.words = service, said, words

    @property
    def ids(self) -> list[str]:
        until = next((place for place, word in enumerate(self.words) if word.startswith("-")), len(self.words))
        if not until:
            raise Failed("Say which one: give its id after the verb.")
        return [urllib.parse.quote(word) for word in self.words[:until]]

    @property
    def id(self) -> str:
        return self.ids[0]


Do = Callable[[Call], None]


def logon(call: Call) -> None:
    token = call.service.log_on()
    save_tokens({**saved_tokens(), call.service.name: token})
    say("Logon succeed.\n")


def logoff(call: Call) -> None:
    call.service.call("POST", "/auth/v1/logoff").close()
    save_tokens({name: token for name, token in saved_tokens().items() if name != call.service.name})
    say("Logoff succeed.\n")


def start(call: Call) -> None:
    """Packs what is named, and sends it with all that is not this program's own."""
    folder, main = call.said.job_option("--model-dir"), call.said.job_option("--model-main")
    source = Path(folder or main) if folder or main else None
    if source is not None and not source.exists():
        raise Failed(f"There is no {source} here: say where your model is with --model-dir FOLDER --model-main SCRIPT.")
    if source is not None:
        call.said.replace("--model-dir" if folder else "--model-main", source.resolve().name)
    args = " ".join(word if word == "--" else shlex.quote(word) for word in call.said.left)
    data = {"args": args}
    if call.said.get("--data-source"):
        try:
            data["dataSource"] = json.loads(call.said.get("--data-source"))
        except ValueError:
            raise Failed('--data-source is no JSON: write \'[{"type": "fs", "location": {"paths": "mnist"}}]\'.') from None
    with sent(call, f"{DL}/execs/?args={urllib.parse.quote(args)}", source, data) as answer:
        found = json.load(answer)
    say({"execId": found["id"], "appId": found["appId"]})


def start_search(call: Call) -> None:
    """What is searched is said in a file; the code is packed as that of a job."""
    try:
        wanted = json.loads(Path(call.words[0] if call.words else "").read_text())
    except (OSError, ValueError):
        raise Failed("Name a file with the search as JSON after --hpo-start.") from None
    source = Path(call.said.job_option("--model-dir"))
    if not source.name or not source.is_dir():
        raise Failed("Say where the model is that the trials train: --model-dir FOLDER.")
    with sent(call, f"{DL}/hypersearch", source, wanted) as answer:
        say(f"Start hypersearch with id: {answer.read().decode()}\n")


@contextlib.contextmanager
def sent(call: Call, path: str, source: Path | None, data: dict[str, Any]) -> Iterator[Any]:
    """The answer to a form with the packed code, open."""
    boundary = uuid.uuid4().hex
    with tempfile.TemporaryFile() as body:
        size = _form(cast(IO[bytes], body), boundary, source, data)
        say(f"Copying files and directories ...\nContent size: {short(size)}\n")
        with call.service.call("POST", path, body=cast(IO[bytes], body), kind=f"multipart/form-data; boundary={boundary}") as answer:
            yield answer


def _form(body: IO[bytes], boundary: str, source: Path | None, data: dict[str, Any]) -> int:
    """The form, written to `body`; the bytes of the file in it."""
    field = 'Content-Disposition: form-data; name="{0}"'
    body.write(f"--{boundary}\r\n{field.format('data')}\r\n\r\n{json.dumps(data)}\r\n".encode())
    begin = end = 0
    if source is not None:
        name = source.resolve().name + (".modelDir.tar" if source.is_dir() else "")
        head = f'{field.format("file")}; filename="{urllib.parse.quote(name)}"\r\nContent-Type: application/octet-stream'
        body.write(f"--{boundary}\r\n{head}\r\n\r\n".encode())
        begin = body.tell()
        if source.is_dir():
            with tarfile.open(fileobj=body, mode="w:gz", dereference=True) as tar:
                tar.add(str(source), arcname=source.resolve().name, filter=lambda each: None if _left_out(each.name) else each)
        else:
            body.write(source.read_bytes())
        end = body.tell()
    body.write(f"\r\n--{boundary}--\r\n".encode())
    return end - begin


def _left_out(path: str) -> bool:
    return path.rsplit("/", 1)[-1] in LEFT_OUT


def frameworks(call: Call) -> None:
    found = call.service.json(f"{DL}/execs/frameworks")
    if call.said.get("-o", "--output") == "json":
        say(found)
    else:
        for each in found:
            say("{}\n{}\n".format(each["name"], "".join(f"    {line}\n" for line in each["desc"])))


def listing(path: str, columns: str, usual: str = "") -> Do:
    def do(call: Call) -> None:
        query = call.said.get("--query-args") or usual
        found = call.service.json(f"{path}?{urllib.parse.quote(query, safe='=&:,-_')}" if query else path)
        wanted = call.said.get("-o", "--output")
        say(found) if wanted == "json" else say(table(found, wanted, columns))

    return do


def table(rows: list[dict[str, Any]], wanted: str, columns: str) -> str:
    """`wanted`: "custom-columns=ID:.id,STATE:.state", or "" for the usual ones."""
    pairs = [(key, name or key) for key, _, name in (column.partition("=") for column in columns.split())]
    if wanted.startswith("custom-columns="):
        parts = [part.partition(":") for part in wanted.split("=", 1)[1].split(",") if part]
        pairs = [((key or name).lstrip("."), name) for name, _, key in parts]
    lines = [[name for _, name in pairs], *([_cell(row, key, name) for key, name in pairs] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(pairs))]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n" for line in lines)  # noqa: B905


def _cell(row: dict[str, Any], key: str, name: str) -> str:
    value = row.get(key, "")
    if name == "type" and isinstance(value, bool):
        return "ELASTIC" if value else "PARALLEL"
    return age(str(value)) if name == "age" else str(value)


def age(stamp: str) -> str:
    try:
        began = dt.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.timezone.utc)  # noqa: UP017
    except ValueError:
        return ""
    seconds = int((dt.datetime.now(dt.timezone.utc) - began).total_seconds())  # noqa: UP017
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"


def short(size: float) -> str:
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:.1f}{unit}" if unit else f"{size:.0f}"
        size /= 1024
    return f"{size:.1f}G"


def one(path: str) -> Do:
    return lambda call: say(call.service.json(path.format(call.id)))


def change(method: str, path: str, done: str) -> Do:
    def do(call: Call) -> None:
        ids = call.ids if "{0}" in path else [""]
        for each in ids:
            with call.service.call(method, path.format(each)) as answer:
                say(f"{done.format(each)} HTTP:{answer.status} \n")

    return do


def train_log(kind: str) -> Do:
    return lambda call: call.service.text(f"{DL}/execs/{call.id}/log?logType={kind}")


def parts_logs(kind: str) -> Do:
    """Of the driver, then of each executor, under a line that says whose it is."""

    def do(call: Call) -> None:
        path = f"{DL}/scheduler/applications/{call.id}"
        executors = range(1, len(call.service.json(path)["executors"]) + 1)
        for part in ("driver", *(f"executor/{number}" for number in executors)):
            say(f"==== {part.replace('/', ' ')} ====\n")
            call.service.text(f"{path}/{part}/logs/{kind}?{call.said.get('--query-args')}")

    return do


def result(call: Call) -> None:
    with call.service.call("GET", f"{DL}/execs/{call.id}/result", accept="*/*") as answer:
        parts = answer.headers.get("Content-Disposition", "").split(";")
        named = next((part[len("filename=") :] for part in parts if part.startswith("filename=")), "dlpd-model-result.zip")
        name = Path(named.strip('"')).name
        with open(name, "wb") as file:
            shutil.copyfileobj(answer, file)
    say(f"Train result is saved to {name}\n")


def wait(call: Call) -> None:
    while (state := call.service.json(f"{DL}/execs/{call.id}")["state"]) in ACTIVE:
        time.sleep(EVERY_S)
    say(f"{state}\n")


def analyze(call: Call) -> None:
    found = call.service.json(f"{DL}/execs/{call.id}")
    say({key: found[key] for key in ("id", "state", "reason", "url")})


def stop_all(call: Call) -> None:
    for each in call.service.json(f"{DL}/execs"):
        if each["state"] in ACTIVE:
            STOP(Call(call.service, call.said, [each["id"]]))


def not_here(what: str) -> Do:
    def do(_: Call) -> NoReturn:
        raise Failed(f"The studio has no {what}.")

    return do


EXECS, APPS, SEARCHES = f"{DL}/execs", f"{DL}/scheduler/engine/applications", f"{DL}/hypersearch"
LIVE = "state=RUNNING,PENDING_CRD_SCHEDULER"
STOP = change("PUT", f"{DL}/scheduler/applications/{{0}}/stop", "Stop application {0} succeed.")
VERBS: dict[str, Do] = {
    "--logon": logon,
    "--logoff": logoff,
    "--status": lambda call: say(call.service.json(f"{DL}/status")),
    "--dl-frameworks": frameworks,
    "--exec-start": start,
    "--exec-get-all": listing(EXECS, EXEC_COLUMNS),
    "--exec-get": one(EXECS + "/{0}"),
    "--exec-stop": change("POST", EXECS + "/{0}/stop", "Stop exec {0} succeed."),
    "--exec-delete": change("DELETE", EXECS + "/{0}", "Delete exec {0} succeed."),
    "--exec-delete-all": change("DELETE", EXECS, "Delete all execs succeed."),
    "--exec-deploy": not_here("deployment of models"),
    "--exec-trainlogs": train_log("outerrlog"),
    "--exec-trainoutlogs": train_log("outlog"),
    "--exec-trainerrlogs": train_log("errlog"),
    "--exec-trainresult": result,
    "--app-get-all": listing(APPS, APP_COLUMNS, LIVE),
    "--app-history-get-all": listing(APPS, APP_COLUMNS),
    "--app-get": one(APPS + "/{0}"),
    "--app-wait": wait,
    "--app-analyze": analyze,
    "--app-stop": STOP,
    "--app-stop-all": stop_all,
    "--rp-get-all": lambda call: say(call.service.json(f"{DL}/resplans/resplantree")),
    "--rp-get": one(f"{DL}/resplans/resplan/{{0}}"),
    "--rp-delete": not_here("resource plans that are deleted: weights are changed on its page of how slots are shared"),
    "--k8s-obj-get-all": lambda call: say(call.service.json(f"{DL}/scheduler/kubernetesobjects")),
    "--pj-get-all": not_here("parallel jobs beside those that --app-get-all lists"),
    **{f"--{of}-{kind}logs": parts_logs(log) for of in ("exec", "app") for kind, log in (("out", "stdout"), ("err", "stderr"))},
    **{f"--{of}-launcherlogs": parts_logs("launcherlog") for of in ("exec", "app")},
    "--hpo-start": start_search,
    "--hpo-get-all": listing(SEARCHES, SEARCH_COLUMNS),
    "--hpo-get": one(SEARCHES + "/{0}"),
    "--hpo-stop": change("PUT", SEARCHES + "/{0}", "Stop hpo {0} succeed."),
    "--hpo-restart": change("PUT", SEARCHES + "/{0}/restart", "Restart hpo {0} succeed."),
    "--hpo-delete": change("DELETE", SEARCHES + "/{0}", "Delete hpo {0} succeed."),
    "--hpo-delete-all": change("DELETE", SEARCHES, "Delete all hpos succeed."),
    "--hpo-algorithm-get-all": listing(SEARCHES + "/algorithm", "name type remoteExec"),
    "--hpo-algorithm-get": one(SEARCHES + "/algorithm/{0}"),
    "--hpo-algorithm-delete": change("DELETE", SEARCHES + "/algorithm/{0}", "Delete algorithm {0} succeed."),
}


def main(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h"):
        say(HELP)
        return 0
    try:
        said = CommandLine(words)
        verb, after = said.verb()
        VERBS[verb](Call(Service(said), said, after))
    except Failed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

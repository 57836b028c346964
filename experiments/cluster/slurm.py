"""Slurm as an engine that lends machines: `sbatch` asks for a pilot, `squeue` says how it is, `scancel` gives it back. They are run where
the studio's control worker runs, which has to be a submit host, as the user that it runs as.

The commands get nothing of the studio's environment but where Slurm is: `sbatch` would hand all of it on to the job.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence

from django.conf import settings

from experiments.cluster.providers import EngineProblem, Lease, Offer, Order, Standing
from training_runtime.user_ids import machine_uid

TIMEOUT_S = 30
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SLURM_CONF")
# What an administrator of the studio may ask for. Nothing that says as whom a job runs, where it writes, or what it does: that is for who
# administers the machine on which the studio runs.
ALLOWED = frozenset(
    {
        *("account", "constraint", "contiguous", "cores-per-socket", "cpus-per-gpu", "cpus-per-task", "exclude", "exclusive"),
        *("gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-task", "gres", "gres-flags", "hint", "licenses", "mem", "mem-bind"),
        *("mem-per-cpu", "mem-per-gpu", "mincpus", "nice", "nodelist", "partition", "prefer", "priority", "qos", "reservation"),
        *("sockets-per-node", "switches", "threads-per-core", "tmp", "wckey"),
    }
)
OPTION = re.compile(r"--([a-z][a-z-]*)(=[\x21-\x7e]*)?")
STANDINGS: Mapping[str, Standing] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"), "waiting"),
    **dict.fromkeys(("RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"), "running"),
    "COMPLETING": "ending",
}  # all others have ended
SAID = ("JobState", "Reason", "ExitCode", "BatchHost")
GONE = "Invalid job id specified"

SCRIPT = """\
#!/bin/sh
# A pilot of a studio: while this allocation lasts, its machine joins the studio as {node}.
log=$(mktemp {folder}/edt-pilot-"$SLURM_JOB_ID"-XXXXXXXX.log) || exit 1
exec >"$log" 2>&1
for name in $(env | sed -n 's/^\\(SLURM[A-Za-z0-9_]*\\)=.*/\\1/p'); do unset "$name"; done
unset EDT_NODE_ADDRESS
umask 022
folder=$(mktemp -d {folder}/edt-pilot-XXXXXXXX) || exit 1
chmod 755 "$folder"
{command} {studio} --token - --home "$folder/home" --slots {slots} <<'END-OF-TOKEN' &
{token}
END-OF-TOKEN
pilot=$!
trap 'kill -TERM "$pilot" 2>/dev/null' TERM INT
wait "$pilot"; status=$?
while kill -0 "$pilot" 2>/dev/null; do wait "$pilot"; status=$?; done
rm -rf "$folder"
[ "$status" -ne 0 ] || rm -f "$log"
exit "$status"
"""


class Slurm:
    """See `providers.Provider`."""

    options_of = "sbatch"
    example = "--partition=gpu --gpus=4 --account=lab"

    def offers(self) -> Sequence[Offer]:
        lines = _run("sinfo", "--noheader", "--format=%R|%a|%l|%D|%c|%m|%G").splitlines()
        return [_offer(*line.split("|")) for line in lines if line.count("|") == 6]

    def hold(self, order: Order) -> str:
        minutes, notice_s = order.walltime_minutes, order.notice_s
        own = ["--parsable", f"--job-name={order.name}", f"--comment=EDT Studio pilot {order.node}", "--nodes=1", "--ntasks=1"]
        own += [f"--time={minutes}", f"--signal=B:TERM@{notice_s}", "--no-requeue", "--export=NIL", "--input=/dev/null"]
        own += ["--output=/dev/null", "--chdir=/"]  # a name in /tmp that anybody can guess is none to write to: the script chooses one
        said = _run("sbatch", *order.options, *own, text=script(order))
        return said.strip().split(";")[0]

    def leases(self) -> Mapping[str, Lease]:
        said = _run("squeue", "--noheader", "--states=all", f"--user={machine_uid()}", "--format=%i|%j|%T|%L|%N|%r")
        found = [_lease(*line.split("|", 5)) for line in said.splitlines() if line.count("|") >= 5]
        return {lease.id: lease for lease in found}

    def ending(self, lease: str) -> str:
        try:
            said = _run("scontrol", "--oneliner", "show", "job", lease)
        except EngineProblem:
            return ""
        facts = dict(word.split("=", 1) for word in said.split() if "=" in word)
        return ", ".join(f"{name} {facts[name]}" for name in SAID if facts.get(name, "(null)") not in ("(null)", "None"))

    def release(self, lease: str, *, begun: bool, hurry: bool) -> None:
        in_order = ["--batch", "--signal=TERM"] if begun and not hurry else []
        try:
            _run("scancel", *in_order, lease)
        except EngineProblem as problem:
            if GONE not in str(problem):
                raise

    def check(self, options: str) -> Sequence[str]:
        words = shlex.split(options)
        for word in words:
            match = OPTION.fullmatch(word)
            if match is None:
                raise ValueError(f"{word!r} is no option as --partition=gpu: write each with two dashes and an equals sign.")
            if match[1] not in ALLOWED:
                raise ValueError(f"--{match[1]} cannot be chosen here; these can: {', '.join(sorted(ALLOWED))}.")
        return words


def script(order: Order) -> str:
    """The token goes in by standard input: a command line is there for everybody on that machine to read."""
    return SCRIPT.format(
        node=order.node,
        folder=shlex.quote(settings.EDT_PILOT_FOLDER),
        command=settings.EDT_PILOT_COMMAND,
        studio=shlex.quote(order.studio),
        slots=order.slots,
        token=order.token,
    )


def seconds(text: str) -> float | None:
    """Of what squeue says is left, as 1-02:03:04; None where it says no time."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def _offer(name: str, available: str, longest: str, machines: str, cpus: str, memory: str, gres: str) -> Offer:
    words = f"{machines} machines of {cpus} CPUs and {memory} MB" + ("" if gres == "(null)" else f", {gres}") + f", at most {longest}"
    return Offer(f"--partition={name.rstrip('*')}", words, usable=available == "up")


def _lease(number: str, name: str, state: str, left: str, where: str, reason: str) -> Lease:
    why = f" ({reason.strip()})" if reason.strip() not in ("", "None") else ""
    return Lease(number, name, STANDINGS.get(state, "ended"), seconds(left), f"{state}{why}" + (f" on {where}" if where else ""))


def _run(program: str, *arguments: str, text: str = "") -> str:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        done = subprocess.run(
            [program, *arguments], input=text, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S
        )
    except FileNotFoundError:
        raise EngineProblem(f"{program} is not installed where the studio's control worker runs.") from None
    except subprocess.TimeoutExpired:
        raise EngineProblem(f"{program} has not answered for {TIMEOUT_S} s.") from None
    if done.returncode:
        lines = [line.removeprefix(f"{program}: ").removeprefix("error: ") for line in done.stderr.strip().splitlines()]
        raise EngineProblem("; ".join(lines)[:900] or f"{program} ended with status {done.returncode}.")
    return done.stdout

"""Machines that are held of an engine which lends them (Slurm, Ray, Kubernetes): what an administrator allows, and each allocation that
was asked for."""

from __future__ import annotations

from django.db import models

from experiments.models.cluster import Slot


class PilotPool(models.Model):
    """How many pilots are held of one engine, and with what each is asked for. What an administrator sets is written by services.capacity,
    the rest by cluster.pilots: `words` is what was last decided, `failures` how many attempts in a row came to nothing, `problem` why, in
    the engine's own words; `kind`: of the machines that it has lent (`machine_pools.kind`).

    `options`: of the engine's command for a job (sbatch, ray job submit) or of a pod, as they are typed in a shell. `grow`: pilots are
    also asked for so that runs grow, not only so that they begin. `studio`: the address under which pilots call.
    """

    class Provider(models.TextChoices):
        SLURM = "slurm", "Slurm"
        RAY = "ray", "Ray"
        KUBERNETES = "kubernetes", "Kubernetes"

    name = models.CharField(max_length=40, unique=True)
    provider = models.CharField(max_length=16, choices=Provider, default=Provider.SLURM)
    studio = models.CharField(max_length=255)
    options = models.CharField(max_length=1000, blank=True)
    slots = models.PositiveIntegerField()
    device = models.CharField(max_length=8, choices=Slot.Device, default=Slot.Device.CPU)
    least = models.PositiveIntegerField(default=0)
    most = models.PositiveIntegerField()
    idle_minutes = models.FloatField(default=10)
    walltime_minutes = models.PositiveIntegerField(default=240)
    grow = models.BooleanField(default=False)
    words = models.JSONField(default=list)
    failures = models.PositiveIntegerField(default=0)
    failed_at = models.DateTimeField(null=True)
    problem = models.CharField(max_length=1000, blank=True)
    kind = models.CharField(max_length=1000, blank=True)
    looked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Pilot(models.Model):
    """One allocation, and the machine that joins from it under `node_name`. Written by cluster.pilots.

    `job`: the engine's number or name for it, empty until it has said one. `ends_at`: of the allocation. `idle_since`: since when nobody
    needs it. `useful`: a run has held slots of it. `reason`: why it was asked for; `words`: how it is, in the engine's words;
    `leave_reason`: why it is given back.
    """

    class Phase(models.TextChoices):
        ASKED = "asked", "Being asked for"
        WAITING = "waiting", "In the queue"
        STARTING = "starting", "Starting"
        HERE = "here", "Here"
        LEAVING = "leaving", "Being emptied"
        ENDING = "ending", "Ending"
        ENDED = "ended", "Ended"

    pool = models.ForeignKey(PilotPool, on_delete=models.CASCADE, related_name="pilots")
    node_name = models.CharField(max_length=63)
    job = models.CharField(max_length=128, blank=True)
    phase = models.CharField(max_length=16, choices=Phase, default=Phase.ASKED)
    made_at = models.DateTimeField()
    began_at = models.DateTimeField(null=True)
    joined_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    idle_since = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    useful = models.BooleanField(default=False)
    reason = models.CharField(max_length=500, blank=True)
    words = models.CharField(max_length=1000, blank=True)
    leave_reason = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["phase"], name="pilots_by_phase")]

    def __str__(self) -> str:
        return f"{self.node_name} ({self.phase})"

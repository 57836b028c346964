"""Machines, their slots and who holds which. Node and Slot are written by fleet, RemoteAgent by remote_workers, DriverMeeting by meetings,
Grant by scheduling alone, ClusterChange by services."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from experiments.models.projects import User
from experiments.models.runs import DEFAULT_PRIORITY, TrainingRun


class Node(models.Model):
    """A machine with a node host. Facts are what its host last said."""

    name = models.CharField(max_length=100, unique=True)
    title = models.CharField(max_length=100, blank=True)  # what people call it; it is known by its name everywhere
    cpu_count = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    gpus = models.JSONField(default=list)
    torch_version = models.CharField(max_length=64, blank=True)
    sandbox_level = models.CharField(max_length=64, blank=True)
    sandbox_notes = models.JSONField(default=list)
    processor = models.CharField(max_length=255, blank=True)  # name, generation and vector instructions
    joined = models.BooleanField(default=False)  # by `edt-node join`: files travel to it, and it has a lease
    address = models.CharField(max_length=255, blank=True)  # where other machines reach it; empty: it shares no run with them
    draining = models.BooleanField(default=False)
    storage_problem = models.CharField(max_length=500, blank=True)  # why runs cannot write there now, as its host says; empty: they can
    last_seen_at = models.DateTimeField(null=True)
    left_at = models.DateTimeField(null=True)  # when it last said that it has ended, with all that was on it
    revision = models.BigIntegerField(default=0)  # of the last snapshot made for it
    identity = models.CharField(max_length=64, blank=True)  # of its host; another host of this name is refused
    refused_at = models.DateTimeField(null=True)  # when another was last
    fence = models.BigIntegerField(default=0)  # its revision when it was last declared lost: what its host had before counts no more
    base = models.CharField(max_length=64, blank=True)  # what environments stand on there, by its key; empty: it builds none
    base_words = models.CharField(max_length=500, blank=True)
    protocol_version = models.PositiveIntegerField(null=True)  # of the messages that it last spoke, also where it was refused for it
    protocol_oldest = models.PositiveIntegerField(null=True)  # of the studio's with which it works
    removed_at = models.DateTimeField(null=True)  # by an administrator; it is back when its host is heard of again

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Slot(models.Model):
    """The unit that is shared: a GPU or a share of one, or a CPU share where there is none. `index`: its place among those of its node.

    `out_reason`: it looks ill, so it is out of service since `out_at`; `doubt`: it looks so, but is the last that is in service. Written by
    slot_health. What happened on it before `trusted_since`, when a person last put it back, is no evidence.
    """

    class Device(models.TextChoices):
        CPU = "cpu", "CPU"
        GPU = "gpu", "GPU"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="slots")
    index = models.PositiveIntegerField()
    device = models.CharField(max_length=8, choices=Device)
    draining = models.BooleanField(default=False)
    retired = models.BooleanField(default=False)  # the node no longer has it
    out_reason = models.CharField(max_length=500, blank=True)
    out_at = models.DateTimeField(null=True)
    doubt = models.CharField(max_length=500, blank=True)
    trusted_since = models.DateTimeField(null=True)
    seen_errors = models.BigIntegerField(default=0)  # uncorrected, of its GPU's memory, that its driver last counted
    accepted_errors = models.BigIntegerField(default=0)  # of these, when it was last put back

    class Meta:
        ordering = ["node__name", "index"]
        constraints = [models.UniqueConstraint(fields=["node", "index", "device"], name="one_slot_per_place")]

    @property
    def device_index(self) -> int:
        """The number of its GPU on the machine: where there are more slots than GPUs they are dealt out in turn. Of a CPU share its own."""
        return self.index % len(self.node.gpus) if self.device == self.Device.GPU and self.node.gpus else self.index

    def label(self) -> str:
        name = f"{self.device.upper()} {self.device_index}"
        return name if self.device_index == self.index else f"{name} share {self.index // len(self.node.gpus) + 1}"


class SlotDeath(models.Model):
    """Workers of a run have died on a slot: how many by `last_at`, older ones counting less (`scheduling.slot_health`). Written by
    slot_deaths from the run's journal; gone when the slot is put back into service."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="+")
    slot = models.ForeignKey(Slot, on_delete=models.CASCADE, related_name="+")
    deaths = models.FloatField()
    last_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "slot"], name="one_count_per_run_and_slot")]


class Grant(models.Model):
    """Run R holds slot S from t0 to t1: the only truth of who held what.

    Between `release_requested_at` and `released_at` the run has been asked to leave; the slot is free once its process is proven gone.
    """

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="grants")
    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="grants")
    granted_at = models.DateTimeField()
    reason = models.TextField()
    release_requested_at = models.DateTimeField(null=True)
    release_reason = models.TextField(blank=True)
    release_revision = models.BigIntegerField(null=True)  # the node's newest snapshot at the request: only a later one proves it
    released_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["granted_at", "id"]
        indexes = [
            models.Index(fields=["slot", "granted_at"]),
            models.Index(fields=["run", "released_at"]),
            models.Index(fields=["granted_at"], name="grants_by_begin"),
            models.Index(fields=["released_at", "id"], name="grants_by_end"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["slot"], condition=Q(released_at__isnull=True), name="one_open_grant_per_slot"),
            models.CheckConstraint(
                condition=Q(released_at__isnull=True) | Q(released_at__gte=F("granted_at")), name="grant_ends_after_it_begins"
            ),
        ]


class RemoteAgent(models.Model):
    """What is known of a run on a machine that is not its head node, where it has or had slots: what is said of its head node stands with
    the run.

    `counted_s`, `busy_counted_s`: what the host there counted when last heard of, slot-seconds held and at work (null: it cannot tell);
    `all_counted_s`, `all_busy_s`: the same of all its counts so far. `memory_bytes` of its slots there at `seen_at`. `abandoned`: the run
    cannot work there, as `detail` says; that held for its attempt `attempt`.
    """

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="remote_agents")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="remote_agents")
    counted_s = models.FloatField(default=0)
    busy_counted_s = models.FloatField(null=True, default=0)
    all_counted_s = models.FloatField(default=0)
    all_busy_s = models.FloatField(null=True, default=0)
    memory_bytes = models.BigIntegerField(null=True)
    seen_at = models.DateTimeField(null=True)
    abandoned = models.BooleanField(default=False)
    detail = models.TextField(blank=True)
    attempt = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "node"], name="one_agent_per_machine")]


class DriverMeeting(models.Model):
    """Where machines that have joined reach the driver of a run, as long as that is on `node`; they share no folder in which they would
    find it. `sealed`: a `protocol.Meeting`, in which is a secret of the run."""

    run = models.OneToOneField(TrainingRun, on_delete=models.CASCADE, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    sealed = models.TextField()


class PastGrant(models.Model):
    """What is left, for the accounts, of a grant of a run that was deleted. Written by scheduling when the run goes.

    `busy_share`: the part of all that the run held in which its slots were at work; null where that was not known.
    """

    run = models.BigIntegerField()
    run_name = models.CharField(max_length=160)
    person = models.CharField(max_length=150)
    project = models.BigIntegerField()
    project_name = models.CharField(max_length=120)
    device = models.CharField(max_length=8, choices=Slot.Device)
    granted_at = models.DateTimeField()
    released_at = models.DateTimeField()
    busy_share = models.FloatField(null=True)

    class Meta:
        indexes = [models.Index(fields=["released_at"])]


class ClusterRules(models.Model):
    """What an administrator sets for the planner: one row, id 1."""

    policy = models.CharField(max_length=16, choices=[("fair_share", "Fair share"), ("priority", "Priority")], default="fair_share")
    person_quota = models.JSONField(default=dict, blank=True)  # username -> slots
    project_quota = models.JSONField(default=dict, blank=True)  # project id -> slots
    several_machines = models.BooleanField(default=False)  # a run may use several machines (see experiments.cluster.machine_pools)
    priority_ceiling = models.PositiveIntegerField(default=DEFAULT_PRIORITY)  # what is asked above it counts once an administrator agrees
    new_project_quota = models.PositiveIntegerField(null=True, blank=True)  # slots
    project_disk = models.JSONField(default=dict, blank=True)  # project id -> GB that its runs, data and code may take together
    new_project_disk = models.PositiveIntegerField(null=True, blank=True)  # GB
    each_person_disk = models.PositiveIntegerField(null=True, blank=True)  # GB that what one person has made may take, in all projects
    without_network = models.JSONField(default=list, blank=True)  # ids of projects whose runs may not use the network, as text
    new_projects_network = models.BooleanField(default=True)
    release_grace_s = models.PositiveIntegerField(default=30)  # seconds for leaving a slot that was asked back
    currency = models.CharField(max_length=8, blank=True)  # stands beside the prices of slots (SlotPrice)
    people_trust_each_other = models.BooleanField(default=False)  # with their code, whatever the box (experiments.cluster.isolation)
    tick = models.BigIntegerField(default=0)  # counts plans; also the row that a tick locks
    updated_at = models.DateTimeField(auto_now=True)

    @classmethod
    def current(cls) -> ClusterRules:
        """The one row, made on first use."""
        return cls.objects.get_or_create(pk=1)[0]

    def may_use_network(self, project: int) -> bool:
        """Whether runs of this project get it where their training definition asks."""
        return str(project) not in self.without_network


class SlotPrice(models.Model):
    """What an hour of a slot of this kind costs from a moment on; `per_hour` None: nothing is charged from then on. Rows are only ever
    added: what was held before is charged as it was then. Written by services.prices."""

    device = models.CharField(max_length=8, choices=Slot.Device)
    per_hour = models.DecimalField(max_digits=12, decimal_places=4, null=True)
    since = models.DateTimeField()
    set_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["since", "id"]

    @property
    def plain(self) -> str:
        """Without zeros at its end; "none" where nothing is charged."""
        return "none" if self.per_hour is None else f"{self.per_hour.normalize():f}"


class ClusterChange(models.Model):
    """What an administrator changed for everybody (policy, weight, quota, drain): when, who, what, and the reason they gave."""

    at = models.DateTimeField()
    actor = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    text = models.TextField()
    reason = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["-at"])]


class Lease(models.Model):
    """Who does what only one process at a time should do, until when by the database's clock."""

    name = models.CharField(max_length=40, primary_key=True)
    holder = models.CharField(max_length=200)
    until = models.DateTimeField()

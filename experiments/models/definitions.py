"""Training definitions: model code in immutable versions, stored once by content hash."""

from __future__ import annotations

from typing import Literal

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from experiments.models.named_environments import NamedVersion
from experiments.models.projects import Project, User

MAX_SLOTS_LIMIT = 4096
NAMED = "named:"


class Bundle(models.Model):
    """A checked zip of model code, kept as `EDT_HOME/bundles/SHA256.zip` and unpacked, read-only, as `EDT_HOME/code/SHA256/`.

    `root` is the one top folder of the zip, or empty. `scripts` are the Python files found, relative to the root.
    """

    sha256 = models.CharField(max_length=64, unique=True)
    size_bytes = models.BigIntegerField()
    entries = models.PositiveIntegerField()
    root = models.CharField(max_length=255, blank=True)
    scripts = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)


class TrainingDefinition(models.Model):
    """Model code with a name; what it is at a time is its newest version."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="definitions")
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    git_access = models.TextField(blank=True)  # what opens the repository that its code came from last, sealed: see gitcode

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name

    def newest(self) -> DefinitionVersion:
        return self.versions.order_by("-number")[0]


class DefinitionVersion(models.Model):
    """Code, framework, command and attributes as they were when saved. Never changed, only followed by another."""

    class Framework(models.TextChoices):
        PYTORCH = "pytorch", "PyTorch"

    class Device(models.TextChoices):
        ANY = "any", "Any slot"
        GPU = "gpu", "1 GPU per slot"
        CPU = "cpu", "1 CPU share per slot"

    class Distributed(models.TextChoices):
        ELASTIC = "elastic", "Elastic distributed training (exact)"
        TORCHRUN_ELASTIC = "torchrun_elastic", "torchrun elastic"
        TORCHRUN = "torchrun", "torchrun"
        SINGLE = "single", "Single process"

    class Packages(models.TextChoices):
        OWN = "own", "What its code requires, built for its runs"
        STUDIO = "studio", "The studio's packages alone"
        NAMED = "named", "An environment that administrators offer"

    class Network(models.TextChoices):
        NONE = "none", "None"
        OUTWARD = "outward", "The internet"

    definition = models.ForeignKey(TrainingDefinition, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    bundle = models.ForeignKey(Bundle, on_delete=models.PROTECT, related_name="+")
    file_name = models.CharField(max_length=255)
    framework = models.CharField(max_length=32, choices=Framework, default=Framework.PYTORCH)
    command = models.CharField(max_length=2000, blank=True, help_text="Script and its arguments; may be left to the experiment.")
    device = models.CharField(max_length=8, choices=Device, default=Device.ANY)
    distributed = models.CharField(max_length=16, choices=Distributed, default=Distributed.ELASTIC)
    max_slots = models.PositiveIntegerField(default=4, validators=[MinValueValidator(1), MaxValueValidator(MAX_SLOTS_LIMIT)])
    packages = models.CharField(max_length=16, choices=Packages, default=Packages.OWN)
    network = models.CharField(
        max_length=8, choices=Network, default=Network.NONE
    )  # what its runs ask for; see ClusterRules.may_use_network
    named = models.ForeignKey(NamedVersion, null=True, on_delete=models.PROTECT, related_name="definition_versions")
    # what its code brings in requirements.txt or pyproject.toml, or its named environment has, a line each with its place; empty: the
    # packages that every run has
    requirements = models.TextField(blank=True)
    requirements_key = models.CharField(max_length=64, blank=True, db_index=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    idempotency_key = models.UUIDField(null=True, unique=True)
    # Where its code was fetched from by git; empty where it was uploaded.
    git_address = models.CharField(max_length=500, blank=True)
    git_ref = models.CharField(max_length=255, blank=True)
    git_folder = models.CharField(max_length=500, blank=True)
    git_commit = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["definition", "number"], name="one_version_per_number"),
            models.CheckConstraint(condition=Q(max_slots__gte=1), name="version_max_slots_at_least_1"),
            models.CheckConstraint(
                condition=Q(packages="named", named__isnull=False) | (~Q(packages="named") & Q(named__isnull=True)),
                name="named_packages_name_one",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.definition.name} v{self.number}"

    @property
    def packages_choice(self) -> str:
        """What a form and the services call its packages: "own", "studio", or "named:" with the number of the environment."""
        return f"{NAMED}{self.named.environment_id}" if self.named is not None else self.packages

    @property
    def packages_words(self) -> str:
        return str(self.named) if self.named is not None else self.get_packages_display()

    @property
    def torchrun(self) -> Literal["", "elastic", "fixed"]:
        """How torchrun is to run the script; empty where it is not to."""
        return torchrun(self.distributed)

    @property
    def is_elastic(self) -> bool:
        """Whether a run may get and lose slots while it is at work."""
        return self.distributed in (self.Distributed.ELASTIC, self.Distributed.TORCHRUN_ELASTIC)

    @property
    def is_fixed(self) -> bool:
        """Whether a run starts with all of its slots, on one machine, and keeps their number."""
        return is_fixed(self.distributed)

    @property
    def starts_over(self) -> bool:
        """Whether its script is started anew when it has lost its slots, with checkpoints of its own if it keeps any."""
        return self.distributed != self.Distributed.ELASTIC

    @property
    def least_slots(self) -> int:
        """Without which a run does not start."""
        return self.max_slots if self.is_fixed else 1


TORCHRUN = (DefinitionVersion.Distributed.TORCHRUN_ELASTIC, DefinitionVersion.Distributed.TORCHRUN)


BY_CODE = "by_code"  # said of a version that is to be made: it gets the type that its code asks for


def is_fixed(distributed: str) -> bool:
    return distributed in (DefinitionVersion.Distributed.TORCHRUN, DefinitionVersion.Distributed.SINGLE)


def usual_slots(distributed: str) -> int:
    """The number of slots where nobody says one: what a plain script does not use it does not hold."""
    return 1 if distributed == DefinitionVersion.Distributed.SINGLE else 4


def torchrun(distributed: str) -> Literal["", "elastic", "fixed"]:
    kinds: dict[str, Literal["elastic", "fixed"]] = {
        DefinitionVersion.Distributed.TORCHRUN_ELASTIC: "elastic",
        DefinitionVersion.Distributed.TORCHRUN: "fixed",
    }
    return kinds.get(distributed, "")

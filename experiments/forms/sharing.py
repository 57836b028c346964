"""The scheduling policy as a form: see views/sharing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django import forms

from experiments.cluster.scheduling import ClusterWish
from experiments.files.diskuse import DiskUse
from experiments.forms.edits import EditForm
from experiments.models import ClusterRules


class ProjectRow(NamedTuple):
    """A project among the scheduling policy: its fields, and what it takes of the disk."""

    pk: str
    name: str
    quota: forms.BoundField
    disk_bytes: int
    disk: forms.BoundField
    network: forms.BoundField


class SharingForm(EditForm):
    """Policy, everybody's weight, and quotas in slots (empty: none), with the reason that an administrator gives.

    A field for each person and project: "weight-alice", "quota-alice", "project-3". What the page did not show stays as it is.
    """

    OF_ALL = (
        *("policy", "several_machines", "people_trust_each_other", "priority_ceiling", "new_project_quota"),
        *("new_projects_network", "release_grace_s", "new_project_disk", "each_person_disk"),
    )

    policy = forms.ChoiceField(choices=[("fair_share", "Fair share"), ("priority", "Priority")], widget=forms.RadioSelect)
    several_machines = forms.BooleanField(label="A run may use several machines", required=False)
    people_trust_each_other = forms.BooleanField(label="The people here trust each other", required=False)
    priority_ceiling = forms.IntegerField(
        label="Highest priority without an administrator",
        min_value=1,
        max_value=10_000,
        required=False,
        help_text="What somebody asks for above it counts as this until an administrator of the cluster sets the run's priority.",
        widget=forms.NumberInput(attrs={"class": "input"}),
    )
    new_project_quota = forms.IntegerField(
        label="Quota of new projects",
        min_value=0,
        max_value=1_000_000,
        required=False,
        help_text="Slots that a project's runs hold together at most, for projects that are made from now on. Empty is none.",
        widget=forms.NumberInput(attrs={"placeholder": "none", "class": "input"}),
    )
    new_project_disk = forms.IntegerField(
        label="Disk of new projects, in GB",
        min_value=1,
        max_value=1_000_000,
        required=False,
        help_text="What a project's runs, data and code take together at most, for projects that are made from now on. Empty is no limit.",
        widget=forms.NumberInput(attrs={"placeholder": "no limit", "class": "input"}),
    )
    each_person_disk = forms.IntegerField(
        label="Disk of each person, in GB",
        min_value=1,
        max_value=1_000_000,
        required=False,
        help_text="What the runs, data and code that one person has made take together at most, in all projects. Empty is no limit.",
        widget=forms.NumberInput(attrs={"placeholder": "no limit", "class": "input"}),
    )
    release_grace_s = forms.IntegerField(
        label="Seconds for leaving a slot",
        min_value=1,
        max_value=3600,
        required=False,
        help_text="A worker that is asked for its slot finishes its step and leaves. One that has not left by then is ended, and others "
        "do its step again. For runs that start from now on.",
        widget=forms.NumberInput(attrs={"class": "input"}),
    )
    new_projects_network = forms.BooleanField(label="Runs of new projects may use the network", required=False)
    reason = forms.CharField(
        label="Reason",
        max_length=400,
        required=False,
        help_text="Everybody can read it.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None,
        *,
        rules: ClusterRules,
        people: Mapping[str, float],
        projects: Mapping[str, str],
        may_change: bool,
    ) -> None:
        super().__init__(data, initial={name: getattr(rules, name) for name in self.OF_ALL})
        self.rules, self.people, self.projects = rules, people, projects
        for name, weight in people.items():
            label, widget = f"Weight of {name}", forms.NumberInput(attrs={"class": "input"})
            self.fields[f"weight-{name}"] = forms.FloatField(
                label=label, min_value=0.01, max_value=1000, initial=f"{weight:g}", widget=widget
            )
            self.fields[f"quota-{name}"] = self._quota(f"Quota of {name}", rules.person_quota.get(name))
        for pk, title in projects.items():
            self.fields[f"project-{pk}"] = self._quota(f"Quota of project {title}", rules.project_quota.get(pk))
            self.fields[f"disk-{pk}"] = self._quota(f"GB of project {title}", rules.project_disk.get(pk), least=1)
            network = forms.BooleanField(label=f"Network for project {title}", required=False, initial=pk not in rules.without_network)
            self.fields[f"network-{pk}"] = network
        for field in self.fields.values():
            field.disabled = not may_change
        self.remember()

    @staticmethod
    def _quota(label: str, most: int | None, *, least: int = 0) -> forms.IntegerField:
        widget = forms.NumberInput(attrs={"placeholder": "none", "class": "input"})
        return forms.IntegerField(label=label, min_value=least, max_value=1_000_000, required=False, initial=most, widget=widget)

    def policy_shown(self) -> str:
        """The hidden field beside the radio buttons, which the page draws one by one."""
        return self["policy"].as_hidden(only_initial=True)

    def wish(self) -> ClusterWish:
        """What was sent, once it is valid; people and projects that were not on the page keep what they have."""
        sent = self.cleaned_data
        of_people = dict(self.rules.person_quota) | {name: sent[f"quota-{name}"] for name in self.people}
        of_projects = dict(self.rules.project_quota) | {pk: sent[f"project-{pk}"] for pk in self.projects}
        disks = dict(self.rules.project_disk) | {pk: sent[f"disk-{pk}"] for pk in self.projects}
        return ClusterWish(
            policy=sent["policy"],
            person_weights={name: sent[f"weight-{name}"] for name in self.people},
            person_quota={name: slots for name, slots in of_people.items() if slots is not None},
            project_quota={pk: slots for pk, slots in of_projects.items() if slots is not None},
            several_machines=sent["several_machines"],
            priority_ceiling=sent["priority_ceiling"],
            new_project_quota=sent["new_project_quota"],
            project_disk={pk: gb for pk, gb in disks.items() if gb is not None},
            new_project_disk=sent["new_project_disk"],
            each_person_disk=sent["each_person_disk"],
            new_projects_network=sent["new_projects_network"],
            release_grace_s=sent["release_grace_s"],
            without_network=self._without_network(),
            people_trust_each_other=sent["people_trust_each_other"],
        )

    def _without_network(self) -> list[str]:
        """Also of projects that were not on the page; none that was deleted."""
        others = [pk for pk in self.rules.without_network if pk not in self.projects]
        return sorted([*others, *(pk for pk in self.projects if not self.cleaned_data[f"network-{pk}"])], key=int)

    def people_rows(self) -> list[tuple[str, forms.BoundField, forms.BoundField]]:
        return [(name, self[f"weight-{name}"], self[f"quota-{name}"]) for name in self.people]

    def project_rows(self, taken: Mapping[int, DiskUse]) -> list[ProjectRow]:
        """`taken`: of the disk, by project."""
        return [
            ProjectRow(pk, title, self[f"project-{pk}"], taken[int(pk)].bytes, self[f"disk-{pk}"], self[f"network-{pk}"])
            for pk, title in self.projects.items()
        ]

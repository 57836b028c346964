"""Fetch-with-permission: getting an object is the permission check. Nothing else decides who may do what.

A stranger gets Http404 (they do not learn that the thing exists), a member without the right PermissionDenied. Administrators of the
cluster (`is_staff`) may control runs and nodes, but read no project they are not in. Who asks by a token (`User.permit`) may no more than
that: it may be of one project, and not everything in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.http import Http404

from experiments.models import (
    ApiToken,
    ClusterRules,
    DataAsset,
    DataUpload,
    DefinitionVersion,
    Environment,
    Experiment,
    ExperimentWatch,
    Membership,
    MetricWatch,
    NamedEnvironment,
    NamedVersion,
    Node,
    Notification,
    Project,
    ProjectImport,
    RegisteredModel,
    Role,
    RunComment,
    SavedView,
    TrainingDefinition,
    TrainingRun,
    Trigger,
    User,
    Webhook,
)
from experiments.models.projects import ARCHIVED

Need = Literal["read", "write", "admin"]
AnyUser = User | AnonymousUser
M = TypeVar("M", bound=Model)

_ENOUGH: dict[Need, tuple[str, ...]] = {
    "read": (Role.ADMIN, Role.EDITOR, Role.VIEWER),
    "write": (Role.ADMIN, Role.EDITOR),
    "admin": (Role.ADMIN,),
}
_MISSING: dict[Need, str] = {
    "write": "You are a viewer of this project: ask one of its admins to make you an editor.",
    "admin": "Only an admin of this project may do that.",
}


def may(project: Project, need: Need) -> bool:
    """Whether the person for whom `project` was fetched has the right. For templates and views that show or hide a button."""
    return project.my_role in _ENOUGH[need] and not (need == "write" and project.archived_at)


def projects_for(user: AnyUser) -> QuerySet[Project]:
    """The projects the person is a member of, newest first, each with `my_role`."""
    if not isinstance(user, User):
        return Project.objects.none()
    mine = Membership.objects.filter(project=OuterRef("pk"), user=user).values("role")[:1]
    found: QuerySet[Project] = Project.objects.filter(memberships__user=user).annotate(my_role=Subquery(mine))  # type: ignore[no-redef]
    return found.filter(pk=user.permit.project) if user.permit is not None and user.permit.project is not None else found


def project(user: AnyUser, pk: int, *, need: Need = "read") -> Project:
    """The project, with `my_role`."""
    found = projects_for(user).filter(pk=pk).first()
    if found is None:
        raise Http404("There is no such project.")
    return _allowed(found, need)


def definition(user: AnyUser, pk: int, *, need: Need = "read") -> TrainingDefinition:
    """The training definition, its `project` with `my_role`."""
    found = _fetch(TrainingDefinition.objects.select_related("created_by"), pk, "training definition")
    found.project = _of(user, found.project_id, need, "training definition")
    return found


def version(user: AnyUser, pk: int, *, need: Need = "read") -> DefinitionVersion:
    """The version, its `definition.project` with `my_role`."""
    found = _fetch(DefinitionVersion.objects.select_related("definition", "bundle", "created_by"), pk, "version")
    found.definition.project = _of(user, found.definition.project_id, need, "version")
    return found


def data_asset(user: AnyUser, pk: int, *, need: Need = "read") -> DataAsset:
    """The data asset, its `project` with `my_role`."""
    found = _fetch(DataAsset.objects.select_related("created_by"), pk, "data asset")
    found.project = _of(user, found.project_id, need, "data asset")
    return found


def registered_model(user: AnyUser, pk: int, *, need: Need = "read") -> RegisteredModel:
    """The model, its `project` with `my_role`."""
    found = _fetch(RegisteredModel.objects.select_related("created_by"), pk, "model")
    found.project = _of(user, found.project_id, need, "model")
    return found


def data_upload(user: AnyUser, pk: int) -> DataUpload:
    """An upload that the person has begun; to everybody else in the project it is not theirs to touch."""
    found = _fetch(DataUpload.objects.select_related("created_by"), pk, "upload")
    found.project = _of(user, found.project_id, "write", "upload")
    if found.created_by != user:
        raise PermissionDenied("Somebody else began this upload.")
    return found


def finished_upload(user: AnyUser, pk: int) -> DataAsset:
    """What has become of an upload that the person had begun."""
    found = DataAsset.objects.filter(upload=pk, created_by_id=user.pk).order_by("-pk").first()
    return data_asset(user, found.pk if found else 0)


def experiment(user: AnyUser, pk: int, *, need: Need = "read") -> Experiment:
    """The experiment, its `project` with `my_role`."""
    found = _fetch(Experiment.objects.select_related("created_by", "data_asset"), pk, "experiment")
    found.project = _of(user, found.project_id, need, "experiment")
    return found


def run(user: AnyUser, pk: int, *, need: Need = "read") -> TrainingRun:
    """The run, its `experiment.project` with `my_role`, its version and submitter in the same query."""
    found = _run(pk)
    found.experiment.project = _of(user, found.experiment.project_id, need, "run")
    return found


def runs(user: AnyUser, numbers: Sequence[int]) -> tuple[list[TrainingRun], list[int]]:
    """Those of the runs that the person may see, in the order that is asked for, and the numbers of the others: of a run in a project of
    strangers no more is said than of one that there is not."""
    related = ("experiment__project", "version__definition", "version__bundle", "version__named", "submitted_by")
    visible = TrainingRun.objects.filter(pk__in=numbers, experiment__project__in=projects_for(user).values("pk"))
    found = {each.pk: each for each in visible.select_related(*related)}
    asked = list(dict.fromkeys(numbers))
    return [found[number] for number in asked if number in found], [number for number in asked if number not in found]


def run_control(user: AnyUser, pk: int) -> TrainingRun:
    """The run, for stop, pause, priority and slots: editors and admins of its project, and administrators of the cluster."""
    if _administers(user):
        found = _run(pk)
        role = Membership.objects.filter(project=found.experiment.project_id, user=user.pk).values_list("role", flat=True).first()
        found.experiment.project.my_role = role or ""
        return found
    return run(user, pk, need="write")


def may_control(user: AnyUser, run: TrainingRun) -> bool:
    """Whether `run_control` would let the person through."""
    try:
        run_control(user, run.pk)
    except (Http404, PermissionDenied):
        return False
    return True


def node(user: AnyUser, name: str, *, need: Need = "read") -> Node:
    """The node: everybody who is logged in may look, administrators of the cluster may change."""
    found = Node.objects.filter(name=name).first() if isinstance(user, User) else None
    if found is None:
        raise Http404("There is no such node.")
    if need != "read":
        _cluster_admin(user)
    return found


def rules(user: AnyUser, *, need: Need = "read") -> ClusterRules:
    """The cluster's policy: everybody who is logged in may look, administrators of the cluster may change."""
    if not isinstance(user, User):
        raise Http404("There is no such page.")
    if need != "read":
        _cluster_admin(user)
    return ClusterRules.current()


def webhook(user: AnyUser, pk: int) -> Webhook:
    """A webhook of the person, or of a project that the person administers."""
    found = _fetch(Webhook.objects.all(), pk, "webhook")
    if found.project_id is not None:
        found.project = _of(user, found.project_id, "admin", "webhook")
    elif found.person != user:
        raise Http404("There is no such webhook.")
    return found


def notification(user: AnyUser, pk: int) -> Notification:
    """A notification to the person."""
    found = _fetch(Notification.objects.select_related("run", "project"), pk, "notification")
    if found.person_id != user.pk:
        raise Http404("There is no such notification.")
    return found


def comment(user: AnyUser, pk: int, *, need: Need = "read") -> RunComment:
    """A comment that has not been deleted, its `run.experiment.project` with `my_role`. Whose it is, is looked at by the service."""
    found = _fetch(RunComment.objects.filter(deleted_at=None).select_related("run__experiment", "author"), pk, "comment")
    found.run.experiment.project = _of(user, found.run.experiment.project_id, need, "comment")
    return found


def trigger(user: AnyUser, pk: int, *, need: Need = "read") -> Trigger:
    """A trigger, its `project` with `my_role`."""
    found = _fetch(Trigger.objects.select_related("experiment", "created_by"), pk, "trigger")
    found.project = _of(user, found.project_id, need, "trigger")
    return found


def saved_view(user: AnyUser, pk: int, *, need: Need = "read") -> SavedView:
    """A kept table of the person's, or one of a project of theirs; its `project` with `my_role`. `need` is of the project's."""
    found = _fetch(SavedView.objects.select_related("experiment", "saved_by"), pk, "view")
    own = isinstance(user, User) and found.person_id == user.pk
    if found.person_id is not None and not own:
        raise Http404("There is no such view.")
    found.project = _of(user, found.project_id, "read" if own else need, "view")
    return found


def project_import(user: AnyUser, pk: int) -> ProjectImport:
    """An import of the person's; one that is over may have a project that they are in no more."""
    found = _fetch(ProjectImport.objects.select_related("project", "created_by"), pk, "import")
    if found.created_by_id != user.pk:
        raise Http404("There is no such import.")
    return found


def api_token(user: AnyUser, pk: int) -> ApiToken:
    """An API token of the person."""
    found = _fetch(ApiToken.objects.select_related("run"), pk, "token")
    if found.person_id != user.pk:
        raise Http404("There is no such token.")
    return found


def watch(user: AnyUser, pk: int) -> MetricWatch:
    """A threshold that the person set."""
    found = _fetch(MetricWatch.objects.all(), pk, "threshold")
    if found.person_id != user.pk:
        raise Http404("There is no such threshold.")
    return found


def experiment_watch(user: AnyUser, pk: int) -> ExperimentWatch:
    """A threshold that the person set on an experiment."""
    found = _fetch(ExperimentWatch.objects.all(), pk, "threshold")
    if found.person_id != user.pk:
        raise Http404("There is no such threshold.")
    return found


def environments(user: AnyUser) -> None:
    """The list of all, which administrators look after."""
    _cluster_admin(user)


def environment(user: AnyUser, pk: int, *, need: Need = "read") -> Environment:
    """One that a training definition of the person's projects asks for, or that is offered to all; administrators see, and delete, all."""
    found = _fetch(Environment.objects.all(), pk, "environment")
    if _administers(user):
        return found
    mine = DefinitionVersion.objects.filter(definition__project__in=projects_for(user).values("pk"))
    if not any(those.filter(requirements_key=found.requirements_key).exists() for those in (NamedVersion.objects, mine)):
        raise Http404("There is no such environment.")
    if need != "read":
        _cluster_admin(user)
    return found


def named_environment(user: AnyUser, pk: int, *, need: Need = "read") -> NamedEnvironment:
    """What is offered is everybody's to read, and administrators' to change."""
    if need != "read":
        _cluster_admin(user)
    return _fetch(NamedEnvironment.objects.all(), pk, "environment")


def topics(user: AnyUser, names: Iterable[str]) -> set[str]:
    """Those of a socket's topics whose news the person may be sent: "project-2", "experiment-3", "run-7", "cluster" and "node-4", which are
    everybody's, and "user-5" to that person alone. A visit to the database for each kind, however many there are."""
    if not isinstance(user, User) or not user.is_active:
        return set()
    allowed, asked = set(), defaultdict[str, dict[str, int]](dict)
    for name in names:
        kind, _, number = name.partition("-")
        if name == "cluster" or (kind == "user" and number == str(user.pk)):
            allowed.add(name)
        elif number.isascii() and number.isdigit() and len(number) <= 18:
            asked[kind][name] = int(number)
    mine = projects_for(user).values("pk")  # whose members may all read, whatever their role
    open_to: dict[str, QuerySet[Any]] = {
        "project": Project.objects.filter(pk__in=mine),
        "experiment": Experiment.objects.filter(project__in=mine),
        "run": TrainingRun.objects.filter(experiment__project__in=mine),
        "node": Node.objects.all(),
    }
    for kind in asked.keys() & open_to:
        found = set(open_to[kind].filter(pk__in=set(asked[kind].values())).values_list("pk", flat=True))
        allowed |= {name for name, number in asked[kind].items() if number in found}
    return allowed


def topic(user: AnyUser, name: str) -> bool:
    """Of one."""
    return name in topics(user, [name])


def _administers(user: AnyUser) -> bool:
    return isinstance(user, User) and user.administers


def _cluster_admin(user: AnyUser) -> None:
    if not _administers(user):
        raise PermissionDenied("Only an administrator of the cluster may do that.")


def _run(pk: int) -> TrainingRun:
    return _fetch(TrainingRun.objects.select_related("experiment__project", "version__definition", "submitted_by", "head_node"), pk, "run")


def _fetch(found: QuerySet[M], pk: int, what: str) -> M:
    one = found.filter(pk=pk).first()
    if one is None:
        raise Http404(f"There is no such {what}.")
    return one


def _of(user: AnyUser, project_id: int, need: Need, what: str) -> Project:
    """The project of a thing that was found; a stranger is told the same as when there is no such thing."""
    try:
        return project(user, project_id, need=need)
    except Http404:
        raise Http404(f"There is no such {what}.") from None


def _allowed(found: Project, need: Need) -> Project:
    if not may(found, need):
        raise PermissionDenied(ARCHIVED if need == "write" and found.archived_at else _MISSING[need])
    return found

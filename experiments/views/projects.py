"""Projects: the list, a new one, and the tabs of one."""

from __future__ import annotations

import uuid
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, selectors, services
from experiments.files import diskuse
from experiments.forms.common import MemberForm, ProjectForm, ProjectSettingsForm, RoleForm, attempt
from experiments.forms.sent_once import RequestForm
from experiments.models import Project, Role, TrainingRun
from experiments.selectors import JobFilter, data, projects
from experiments.views.paging import Pages
from experiments.views.responses import act, begun, done, later, number, page, person, project_crumbs, refused

PAGE_ROWS = 50


@require_safe
def home(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return redirect("projects")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    user, query, archived = person(request), request.GET.get("q", "").strip()[:120], request.GET.get("archived") == "1"
    context = {
        "section": "projects",
        "query": query,
        "archived": archived,
        "in_archive": cache(lambda: projects.in_archive(user)),
        "idempotency_key": uuid.uuid4(),
        "pages": Pages(request, projects.project_list(user, query=query, archived=archived)),
    }
    return page(request, "projects/index.html", context, parts={"list": "projects/_list.html"})


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    form = ProjectForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: services.create_project(by=person(request), **form.cleaned_data))
        if made:
            return redirect("project", made.pk)
    begun(form, check=reverse("check_project"))
    return page(
        request,
        "projects/new.html",
        {"section": "projects", "form": form, "idempotency_key": uuid.uuid4(), "crumbs": [("Projects", reverse("projects"))]},
    )


@require_POST
def sample(request: HttpRequest) -> HttpResponse:
    """The guided sample, running; whoever has one already is brought to it."""
    form = RequestForm(request.POST)
    idempotency_key = form.cleaned_data["idempotency_key"] if form.is_valid() else None
    run = services.make_sample(by=person(request), idempotency_key=idempotency_key)
    said = "The sample is on its way: watch it learn here. Its project's overview says what to try next."
    return done(request, said, to=reverse("run", args=[run.pk]))


def tab(project: Project, name: str) -> dict[str, object]:
    return {
        "section": "projects",
        "project": project,
        "tab": name,
        "crumbs": project_crumbs(project, itself=False),
        "may_write": access.may(project, "write"),
        "may_administer": access.may(project, "admin"),
    }


@require_safe
def overview(request: HttpRequest, pk: int) -> HttpResponse:
    project = access.project(person(request), pk)
    context = {
        **tab(project, "overview"),
        "summary": later(lambda: projects.summary(project)),
        "disk": later(lambda: diskuse.of_project(project.pk)),
        "experiments": later(lambda: list(projects.experiments(project)[:5])),
        "jobs": later(lambda: projects.project_jobs(project, JobFilter(state="live", limit=10), now=timezone.now())[0]),
        "feed": later(lambda: selectors.feed(limit=12, project=project)),
        "comparable": later(lambda: projects.comparable(project)),
        "newest_run": later(lambda: TrainingRun.objects.filter(experiment__project=project).order_by("-submitted_at", "-id").first()),
    }
    return page(request, "projects/overview.html", context, parts={"body": "projects/_overview.html"})


@require_safe
def assets(request: HttpRequest, pk: int) -> HttpResponse:
    """Its experiments, training definitions and data sets, a page of each; ?q= looks in names and descriptions of all three."""
    user = person(request)
    project = access.project(user, pk)
    query = request.GET.get("q", "").strip()[:120]
    context = {
        **tab(project, "assets"),
        "query": query,
        "definitions": Pages(request, projects.newest_versions(project, query=query), name="definitions"),
        "experiments": Pages(request, projects.experiments(project, query=query), name="experiments"),
        "data": Pages(request, data.assets(project, query=query), name="data"),
        "unfinished": later(lambda: data.unfinished(project, user.pk)),
    }
    return page(request, "projects/assets.html", context, parts={"body": "projects/_assets.html"})


@require_safe
def jobs(request: HttpRequest, pk: int) -> HttpResponse:
    project = access.project(person(request), pk)
    wanted = JobFilter(
        name=request.GET.get("name", "").strip()[:120],
        state=request.GET.get("state", "")[:16],
        limit=PAGE_ROWS,
        offset=number(request, "offset", 0, least=0, most=10_000_000),
    )
    found = later(lambda: projects.project_jobs(project, wanted, now=timezone.now()))
    context = {**tab(project, "jobs"), "wanted": wanted, "found": found, "next_offset": wanted.offset + PAGE_ROWS}
    return page(request, "projects/jobs.html", context, parts={"table": "projects/_jobs.html"})


@require_http_methods(["GET", "HEAD", "POST"])
def members(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="admin" if request.method == "POST" else "read")
    form = MemberForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        added = attempt(form, lambda: services.add_member(project, by=user, **said))
        if added:
            return done(request, f"{said['username']} is now {Role(added.role).label.lower()} of this project.", to=request.path)
    people = Pages(request, project.memberships.select_related("user").order_by("user__username"))
    context = {**tab(project, "members"), "form": form, "people": people, "roles": Role.choices}
    return page(request, "projects/members.html", context, parts={"people": "projects/_people.html"})


@require_POST
def member_role(request: HttpRequest, pk: int, username: str) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="admin")
    form = RoleForm(request.POST)
    to = reverse("members", args=[pk])
    role = request.POST.get("role", "") if form.is_valid() else ""
    return act(request, lambda: services.set_role(project, by=user, username=username, role=role), said=f"{username} is now {role}.", to=to)


@require_POST
def member_remove(request: HttpRequest, pk: int, username: str) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="admin")
    to = reverse("projects") if username == user.username else reverse("members", args=[pk])
    said = f"{username} is no longer a member."
    return act(
        request, lambda: services.remove_member(project, by=user, username=username), said=said, to=to, back=reverse("members", args=[pk])
    )


@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="admin" if request.method == "POST" else "read")
    form = ProjectSettingsForm(request.POST or None, initial={"name": project.name, "description": project.description})
    if request.method == "POST" and form.is_valid():
        saved = attempt(form, lambda: services.update_project(project, by=user, **form.cleaned_data))
        if saved:
            return done(request, "Saved.", to=request.path)
    return page(request, "projects/settings.html", {**tab(project, "settings"), "form": form})


@require_POST
def archive(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project, to = access.project(user, pk, need="admin"), reverse("project_settings", args=[pk])
    return act(request, lambda: services.archive_project(project, by=user), said=f"{project.name} is archived.", to=to)


@require_POST
def take_back(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project, to = access.project(user, pk, need="admin"), reverse("project_settings", args=[pk])
    return act(request, lambda: services.take_back_project(project, by=user), said=f"{project.name} is out of the archive.", to=to)


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="admin")
    back = reverse("project_settings", args=[pk])
    if request.POST.get("confirm_name", "").strip() != project.name.strip():
        return refused(request, "Nothing was deleted: type the project's name to confirm.", to=back)
    said = f"{project.name} is deleted."
    return act(request, lambda: services.delete_project(project, by=user), said=said, to=reverse("projects"), back=back)

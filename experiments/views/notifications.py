"""Notifications: the bell, the list, what to be told of and how, and webhooks of a person and of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.errors import DomainError
from experiments.forms.common import ProjectWebhookForm, WebhookForm, attempt
from experiments.models import Delivery, Notification, NotificationKind, Project, User, Webhook
from experiments.notifications import rules
from experiments.views.paging import Pages
from experiments.views.responses import act, done, page, person, refused

HOOKS = {"hooks": "notifications/_hook_list.html"}


def bell(request: HttpRequest) -> dict[str, object]:
    """For every page (a context processor): how many notifications are unread. Counted when a template looks."""
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return {}
    return {"unread_notifications": lambda: Notification.objects.filter(person=user, read_at=None).count()}


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    parts = {"bell": "notifications/_bell.html", "list": "notifications/_list.html"}
    mine = Notification.objects.filter(person=person(request))
    return page(request, "notifications/index.html", {"pages": Pages(request, mine)}, parts=parts)


@require_POST
def read_one(request: HttpRequest, pk: int) -> HttpResponse:
    """Sent by the page when the notification's link is followed (static/js/app.js): a link alone changes nothing, prefetchers follow it
    too."""
    user = person(request)
    services.mark_read(user, now=timezone.now(), notification=access.notification(user, pk))
    return HttpResponse(status=204)


@require_POST
def read(request: HttpRequest) -> HttpResponse:
    services.mark_read(person(request), now=timezone.now())
    return done(request, "All are marked as read.", to=reverse("notifications"))


@require_http_methods(["GET", "HEAD", "POST"])
def choices(request: HttpRequest) -> HttpResponse:
    """Which notifications, and how; one's own webhooks below. What is refused comes back as it was sent."""
    user = person(request)
    if request.method != "POST":
        return _choices(request, user)
    ways = {kind.value: request.POST.getlist(kind) for kind in rules.kinds_for(user)}
    email = request.POST.get("email", user.email)[:254]
    try:
        services.choose_notifications(user, ways=ways, email=email, confirm_at=lambda token: confirm_at(request, token), now=timezone.now())
    except DomainError as error:
        return _choices(request, user, ways=ways, email=email, refusals=error.messages)
    unconfirmed = settings.EDT_EMAIL and user.email and user.email != user.confirmed_email
    said = (
        f"Saved. Open the link in the e-mail that goes to {user.email}: until then nothing else is sent there." if unconfirmed else "Saved."
    )
    return done(request, said, to=request.path)


def confirm_at(request: HttpRequest, token: str) -> str:
    path = reverse("confirm_email", args=[token])
    return f"{settings.EDT_PUBLIC_URL}{path}" if settings.EDT_PUBLIC_URL else request.build_absolute_uri(path)


@require_http_methods(["GET", "HEAD", "POST"])
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    """What the e-mail leads to. A button and not the link confirms: mail programs follow links to look at what is there."""
    user = person(request)
    address = services.notifications.email_of(token, user)
    if not address:
        raise Http404("This link is too old, or was sent to somebody else.")
    to = reverse("notification_choices")
    if request.method != "POST":
        return page(request, "notifications/confirm.html", {"address": address})
    if not services.notifications.confirm_email(user, address):
        return refused(request, f"{address} is not the address below: save it there again.", to=to)
    return done(request, f"E-mails go to {address} from now on.", to=to)


@require_POST
def add_hook(request: HttpRequest) -> HttpResponse:
    """One's own. An error comes back on the page of choices."""
    user = person(request)
    form = WebhookForm(request.POST, kinds=rules.kinds_for(user))
    added = attempt(form, lambda: services.add_webhook(by=user, **form.cleaned_data)) if form.is_valid() else None
    if added:
        return done(request, "The webhook is added. Its secret is below.", to=reverse("notification_choices"))
    return _choices(request, user, form=form)


def _choices(
    request: HttpRequest,
    user: User,
    *,
    ways: Mapping[str, Sequence[str]] | None = None,
    email: str | None = None,
    refusals: Sequence[str] = (),
    form: WebhookForm | None = None,
) -> HttpResponse:
    """The page of choices: as they are kept, or with the `ways` and the `email` that were refused."""
    kinds = rules.kinds_for(user)
    context = {
        "rows": [(kind, kind.label, ways[kind] if ways is not None else rules.ways(user, kind)) for kind in kinds],
        "mail": settings.EDT_EMAIL,
        "email": user.email if email is None else email,
        "unconfirmed": bool(user.email) and user.email != user.confirmed_email,
        "refusals": refusals,
        "form": form or WebhookForm(kinds=kinds),
        **_hooks(None, user),
    }
    return page(request, "notifications/choices.html", context, parts=HOOKS)


@require_http_methods(["GET", "HEAD", "POST"])
def project_hooks(request: HttpRequest, pk: int) -> HttpResponse:
    """Webhooks that are told of every run of a project; its admins' to see and change, for the secrets are there."""
    user = person(request)
    project = access.project(user, pk, need="admin")
    form = ProjectWebhookForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        added = attempt(form, lambda: services.add_webhook(by=user, project=project, **form.cleaned_data))
        if added:
            return done(request, "The webhook is added. Its secret is below.", to=request.path)
    crumbs = [
        ("Projects", reverse("projects")),
        (project.name, reverse("project", args=[pk])),
        ("Settings", reverse("project_settings", args=[pk])),
    ]
    return page(
        request,
        "notifications/project.html",
        {"section": "projects", "project": project, "crumbs": crumbs, **_hooks(project, user), "form": form},
        parts=HOOKS,
    )


@require_POST
def delete_hook(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    hook = access.webhook(user, pk)
    return act(request, lambda: services.delete_webhook(hook, by=user), said="The webhook is deleted.", to=_home(hook.project_id))


@require_POST
def try_hook(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    hook = access.webhook(user, pk)
    if hook.deliveries.filter(done_at=None, attempts=0).count() >= 3:
        return refused(request, "Some are on their way already: wait a moment.", to=_home(hook.project_id))
    said = "A test is on its way: how it went stands beside the webhook in a moment."
    return act(request, lambda: services.try_webhook(hook, by=user, now=timezone.now()), said=said, to=_home(hook.project_id))


def _home(project: int | None) -> str:
    return reverse("notification_choices") if project is None else reverse("project_webhooks", args=[project])


def _hooks(project: Project | None, user: User) -> dict[str, object]:
    """Each webhook with the names of its events and the next of what is still to be sent to it; where the page hears how that went."""
    labels = dict(NotificationKind.choices) if project is None else dict(ProjectWebhookForm.OF_ANYBODY)
    found = project.webhooks.all() if project is not None else user.webhooks.all()
    return {
        "hooks": [(hook, [labels.get(kind, kind) for kind in hook.kinds], _waiting(hook)) for hook in found],
        "hooks_topic": f"user-{user.pk}" if project is None else f"project-{project.pk}",
        "hooks_at": _home(None if project is None else project.pk),
    }


def _waiting(hook: Webhook) -> Delivery | None:
    return hook.deliveries.filter(done_at=None).order_by("next_at").first()

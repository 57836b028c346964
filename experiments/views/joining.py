"""Add a machine: an administrator names it, gets one line to run there, and sees it arrive."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from experiments import access, selectors, services
from experiments.forms.common import attempt
from experiments.forms.wording import Form
from experiments.services.joining import MOST_SLOTS
from experiments.views.responses import page, person

MADE = "machine"  # in the session


class NodeForm(Form):
    name = forms.CharField(
        max_length=63, help_text="Letters, digits, dot, dash and underscore.", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    slots = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_SLOTS,
        help_text="Left empty: one for each of its GPUs, or 4 CPU slots where it has none.",
    )


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """The form; then the line with the token, this once. ?arriving= follows the machine of that name."""
    user = person(request)
    access.rules(user, need="admin")
    form = NodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        if made := attempt(form, lambda: services.add_node(by=user, name=said["name"], slots=said["slots"])):
            request.session[MADE] = [made[0].node_name, made[1]]  # until the next page: a form that is sent again would make another
            return redirect(f"{reverse('new_node')}?{urlencode({'arriving': made[0].node_name})}")
    name = request.GET.get("arriving", "")[:63]
    of, secret = request.session.pop(MADE, ("", "")) if request.method == "GET" and "part" not in request.GET else ("", "")
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "form": form,
        "name": name,
        "line": services.join_line(request.build_absolute_uri("/"), secret) if secret and of == name else "",
        "arriving": selectors.arriving(name) if name else None,
    }
    response = page(request, "cluster/new_node.html", context, parts={"arriving": "cluster/_arriving.html"})
    response["Cache-Control"] = "no-store"  # the token is in it
    return response

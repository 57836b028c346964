"""How a notification is listed on a page: its icon, and the page that it leads to. No queries here."""

from __future__ import annotations

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString

from experiments.models import Notification, NotificationKind
from experiments.templatetags.studio import icon

register = template.Library()

_ICONS: dict[str, tuple[str, str]] = {  # kind -> icon, its class
    NotificationKind.COMPLETED: ("checkmark--filled", "is-good"),
    NotificationKind.FAILED: ("error--filled", "is-bad"),
    NotificationKind.SUSPENDED: ("pause", ""),
    NotificationKind.STOPPED: ("stop--filled", ""),
    NotificationKind.NOT_FINITE: ("warning--alt--filled", ""),
    NotificationKind.THRESHOLD: ("chart--line", ""),
    NotificationKind.SLOT: ("warning--alt--filled", ""),
    NotificationKind.SEARCH: ("search", ""),
    NotificationKind.MEMBER: ("group", ""),
}


@register.simple_tag
def notification_icon(notification: Notification) -> SafeString:
    return icon(*_ICONS.get(notification.kind, ("edit", "")))


@register.filter
def notification_address(notification: Notification) -> str:
    """The run or the project that it is about, or the nodes where a slot was taken out of service; else the list of notifications."""
    if notification.run_id is not None:
        return reverse("run", args=[notification.run_id])
    if notification.project_id is not None:
        return reverse("project", args=[notification.project_id])
    if notification.kind == NotificationKind.SLOT:
        return reverse("cluster") + "#nodes"
    return reverse("notifications")

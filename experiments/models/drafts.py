"""Model definitions of the WML interface, which are named before their code comes. Written by wmla.definitions."""

from __future__ import annotations

import uuid

from django.db import models

from experiments.models.definitions import DefinitionVersion
from experiments.models.projects import Project, User


class ModelDraft(models.Model):
    """`version`: what it became when its code came."""

    key = models.UUIDField(default=uuid.uuid4, unique=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    command = models.CharField(max_length=2000, blank=True)
    version = models.ForeignKey(DefinitionVersion, null=True, on_delete=models.CASCADE, related_name="+")
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]

"""Machines that join with one command: what each comes with, and when it last did."""

from __future__ import annotations

from django.db import models

from experiments.models.projects import User


class NodeToken(models.Model):
    """With which one machine joins as the node of this name; kept as a hash. Until it is first used it expires; after that it is good until
    the node is removed or gets another. Written by cluster.joining.

    `slots`: how many it shares out; None: as the machine says. `identity`: of the machine that has used it, no other may. `boot`: of its
    last start. `incarnation`: grows with every joining; what an older one sends is refused. `seen_at`: when it last did.
    """

    node_name = models.CharField(max_length=63, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=16)
    slots = models.PositiveIntegerField(null=True)
    made_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    identity = models.CharField(max_length=64, blank=True)
    boot = models.CharField(max_length=64, blank=True)
    incarnation = models.BigIntegerField(default=0)
    address = models.CharField(max_length=64, blank=True)  # where it last came from
    joined_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.node_name

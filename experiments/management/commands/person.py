"""`manage.py person alice`: make an account, or give it a new password. The password is generated and shown once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from experiments.accounts.passwords import give_password
from experiments.cluster import isolation
from experiments.errors import DomainError
from training_runtime.scheduling.isolation import REMEDY


class Command(BaseCommand):
    help = "Make an account, or give an existing one a new password; prints the password once."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--staff", action="store_true", help="an administrator of the cluster: policy, nodes, every run")

    def handle(self, *, username: str, staff: bool, **_: Any) -> None:
        try:
            password = give_password(username, staff=staff)
        except DomainError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{username}  {password}")
        if closed := isolation.closed_machines():
            where = ", ".join(f"{node.name} ({node.sandbox_level})" for node in closed)
            self.stderr.write(f"{isolation.people()} people can run code here, and the box of {where} does not keep it apart.")
            self.stderr.write(f"Nothing new is run there; what is at work goes on. To change that: {REMEDY}.")

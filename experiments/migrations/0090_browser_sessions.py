"""Sessions of browsers say whose they are. Who is logged in stays so."""

import datetime as dt

import django.db.models.deletion
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import migrations, models
from django.utils import timezone


def take_over(apps, schema_editor):
    before, now = apps.get_model("sessions", "Session"), apps.get_model("experiments", "BrowserSession")
    lasts, here = dt.timedelta(seconds=settings.SESSION_COOKIE_AGE), timezone.now()
    people = set(apps.get_model("experiments", "User").objects.values_list("pk", flat=True))
    for row in before.objects.iterator():
        data = SessionStore().decode(row.session_data)
        person = str(data.get("_auth_user_id", ""))
        known = int(person) if person.isdigit() and int(person) in people else None
        now.objects.create(
            session_key=row.session_key,
            session_data=row.session_data,
            expire_date=row.expire_date,
            person_id=known,
            seen_at=min(here, row.expire_date - lasts),  # when it was written last
        )
    before.objects.all().delete()


class Migration(migrations.Migration):

    dependencies = [
        ("sessions", "0001_initial"),
        ("experiments", "0089_logins_ended"),
    ]

    operations = [
        migrations.CreateModel(
            name="BrowserSession",
            fields=[
                ("session_key", models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name="session key")),
                ("session_data", models.TextField(verbose_name="session data")),
                ("expire_date", models.DateTimeField(db_index=True, verbose_name="expire date")),
                ("seen_at", models.DateTimeField()),
                ("person", models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name="browser_sessions", to=settings.AUTH_USER_MODEL)),
            ],
            options={"ordering": ["-seen_at", "session_key"]},
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
    ]

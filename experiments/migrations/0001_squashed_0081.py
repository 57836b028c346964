"""All tables of a new studio at once; a database from before takes the steps that this replaces, one by one."""

import django.contrib.auth.models
import django.contrib.auth.validators
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
import experiments.models.runs
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("experiments", "0001_initial"),
        ("experiments", "0002_data_assets"),
        ("experiments", "0003_sample_projects"),
        ("experiments", "0004_commands"),
        ("experiments", "0005_usage_and_cluster_changes"),
        ("experiments", "0006_notices"),
        ("experiments", "0007_run_notes"),
        ("experiments", "0008_past_grants"),
        ("experiments", "0009_continued_runs"),
        ("experiments", "0010_code_uploads"),
        ("experiments", "0011_metric_watches"),
        ("experiments", "0012_moved_runs"),
        ("experiments", "0013_slot_use"),
        ("experiments", "0014_experiment_watches"),
        ("experiments", "0015_present_use"),
        ("experiments", "0016_several_machines"),
        ("experiments", "0017_processors"),
        ("experiments", "0018_leases"),
        ("experiments", "0019_storage"),
        ("experiments", "0020_login_failures"),
        ("experiments", "0021_indexes_of_large_tables"),
        ("experiments", "0022_run_folders"),
        ("experiments", "0023_tombstones"),
        ("experiments", "0024_node_identities"),
        ("experiments", "0025_left_out"),
        ("experiments", "0026_finished_uploads"),
        ("experiments", "0027_exactness"),
        ("experiments", "0028_facts_for_moves_and_turns"),
        ("experiments", "0029_confirmed_email"),
        ("experiments", "0030_ended_tokens"),
        ("experiments", "0031_submissions"),
        ("experiments", "0032_model_drafts"),
        ("experiments", "0033_experiment_variables"),
        ("experiments", "0034_torchrun_types"),
        ("experiments", "0039_environments"),
        ("experiments", "0040_progress_bars"),
        ("experiments", "0041_logged_facts"),
        ("experiments", "0042_names_of_types"),
        ("experiments", "0043_environment_variables"),
        ("experiments", "0044_packages_of_versions"),
        ("experiments", "0045_code_from_git"),
        ("experiments", "0046_named_environments"),
        ("experiments", "0047_runs_from_outside"),
        ("experiments", "0048_ceiling_of_priority"),
        ("experiments", "0049_network_of_runs"),
        ("experiments", "0050_grace_of_slots"),
        ("experiments", "0051_people_trust_each_other"),
        ("experiments", "0052_disk_of_a_project"),
        ("experiments", "0053_api_tokens"),
        ("experiments", "0054_triggers"),
        ("experiments", "0055_transfer"),
        ("experiments", "0056_each_person_disk"),
        ("experiments", "0057_setup_of_a_run"),
        ("experiments", "0058_receipts"),
        ("experiments", "0059_values_of_runs"),
        ("experiments", "0060_registered_models"),
        ("experiments", "0061_checkpoint_policies"),
        ("experiments", "0062_comments"),
        ("experiments", "0063_prices_of_slots"),
        ("experiments", "0064_versions_of_data"),
        ("experiments", "0065_imported_comments"),
        ("experiments", "0066_metric_rollups"),
        ("experiments", "0067_idempotency_keys"),
        ("experiments", "0068_notifications"),
        ("experiments", "0069_slots_out_of_service"),
        ("experiments", "0070_errors_of_gpus"),
        ("experiments", "0071_titles_of_nodes"),
        ("experiments", "0072_node_tokens"),
        ("experiments", "0073_utilization"),
        ("experiments", "0074_capacity"),
        ("experiments", "0075_driver_meetings"),
        ("experiments", "0076_remote_agents"),
        ("experiments", "0077_ray"),
        ("experiments", "0078_node_versions"),
        ("experiments", "0079_kubernetes"),
        ("experiments", "0080_object_store"),
        ("experiments", "0081_other_kinds_of_machines"),
    ]

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="Bundle",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sha256", models.CharField(max_length=64, unique=True)),
                ("size_bytes", models.BigIntegerField()),
                ("entries", models.PositiveIntegerField()),
                ("root", models.CharField(blank=True, max_length=255)),
                ("scripts", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="ClusterRules",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "policy",
                    models.CharField(choices=[("fair_share", "Fair share"), ("priority", "Priority")], default="fair_share", max_length=16),
                ),
                ("person_quota", models.JSONField(blank=True, default=dict)),
                ("project_quota", models.JSONField(blank=True, default=dict)),
                ("several_machines", models.BooleanField(default=False)),
                ("priority_ceiling", models.PositiveIntegerField(default=5000)),
                ("new_project_quota", models.PositiveIntegerField(blank=True, null=True)),
                ("project_disk", models.JSONField(blank=True, default=dict)),
                ("new_project_disk", models.PositiveIntegerField(blank=True, null=True)),
                ("each_person_disk", models.PositiveIntegerField(blank=True, null=True)),
                ("without_network", models.JSONField(blank=True, default=list)),
                ("new_projects_network", models.BooleanField(default=True)),
                ("release_grace_s", models.PositiveIntegerField(default=30)),
                ("currency", models.CharField(blank=True, max_length=8)),
                ("people_trust_each_other", models.BooleanField(default=False)),
                ("tick", models.BigIntegerField(default=0)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.CreateModel(
            name="EndedToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=64, unique=True)),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Environment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("requirements_key", models.CharField(db_index=True, max_length=64)),
                ("base_key", models.CharField(max_length=64)),
                ("base_words", models.CharField(blank=True, max_length=500)),
                ("requirements", models.TextField()),
                ("lock", models.TextField(blank=True)),
                ("packages", models.JSONField(default=list)),
                ("created_at", models.DateTimeField()),
                ("resolved_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "constraints": [models.UniqueConstraint(fields=("requirements_key", "base_key"), name="one_environment_per_base")],
            },
        ),
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4)),
                ("made_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("holder", models.CharField(max_length=200)),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="LoginFailure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("username", models.CharField(max_length=150)),
                ("address", models.CharField(max_length=64)),
                ("browser", models.CharField(blank=True, max_length=32)),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["username", "at"], name="login_failure_of_name"),
                    models.Index(fields=["address", "at"], name="login_failure_of_address"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("title", models.CharField(blank=True, max_length=100)),
                ("cpu_count", models.PositiveIntegerField(default=0)),
                ("memory_bytes", models.BigIntegerField(default=0)),
                ("gpus", models.JSONField(default=list)),
                ("torch_version", models.CharField(blank=True, max_length=64)),
                ("sandbox_level", models.CharField(blank=True, max_length=64)),
                ("sandbox_notes", models.JSONField(default=list)),
                ("processor", models.CharField(blank=True, max_length=255)),
                ("joined", models.BooleanField(default=False)),
                ("address", models.CharField(blank=True, max_length=255)),
                ("draining", models.BooleanField(default=False)),
                ("storage_problem", models.CharField(blank=True, max_length=500)),
                ("last_seen_at", models.DateTimeField(null=True)),
                ("left_at", models.DateTimeField(null=True)),
                ("revision", models.BigIntegerField(default=0)),
                ("identity", models.CharField(blank=True, max_length=64)),
                ("refused_at", models.DateTimeField(null=True)),
                ("fence", models.BigIntegerField(default=0)),
                ("base", models.CharField(blank=True, max_length=64)),
                ("base_words", models.CharField(blank=True, max_length=500)),
                ("protocol_version", models.PositiveIntegerField(null=True)),
                ("protocol_oldest", models.PositiveIntegerField(null=True)),
                ("removed_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="PastGrant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.BigIntegerField()),
                ("run_name", models.CharField(max_length=160)),
                ("person", models.CharField(max_length=150)),
                ("project", models.BigIntegerField()),
                ("project_name", models.CharField(max_length=120)),
                ("device", models.CharField(choices=[("cpu", "CPU"), ("gpu", "GPU")], max_length=8)),
                ("granted_at", models.DateTimeField()),
                ("released_at", models.DateTimeField()),
                ("busy_share", models.FloatField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["released_at"], name="experiments_release_5c0d6e_idx")],
            },
        ),
        migrations.CreateModel(
            name="PilotPool",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=40, unique=True)),
                (
                    "provider",
                    models.CharField(
                        choices=[("slurm", "Slurm"), ("ray", "Ray"), ("kubernetes", "Kubernetes")], default="slurm", max_length=16
                    ),
                ),
                ("studio", models.CharField(max_length=255)),
                ("options", models.CharField(blank=True, max_length=1000)),
                ("slots", models.PositiveIntegerField()),
                ("device", models.CharField(choices=[("cpu", "CPU"), ("gpu", "GPU")], default="cpu", max_length=8)),
                ("least", models.PositiveIntegerField(default=0)),
                ("most", models.PositiveIntegerField()),
                ("idle_minutes", models.FloatField(default=10)),
                ("walltime_minutes", models.PositiveIntegerField(default=240)),
                ("grow", models.BooleanField(default=False)),
                ("words", models.JSONField(default=list)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("failed_at", models.DateTimeField(null=True)),
                ("problem", models.CharField(blank=True, max_length=1000)),
                ("kind", models.CharField(blank=True, max_length=1000)),
                ("looked_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="StoreCopy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=8)),
                ("key", models.CharField(max_length=64)),
                ("copied_at", models.DateTimeField(null=True)),
                ("size_bytes", models.BigIntegerField(default=0)),
                ("again", models.BooleanField(default=False)),
                ("tidy_at", models.DateTimeField(null=True)),
                ("wanted_at", models.DateTimeField(null=True)),
                ("absent", models.BooleanField(default=False)),
                ("remove_at", models.DateTimeField(null=True)),
                ("tried_at", models.DateTimeField(null=True)),
                ("error", models.CharField(blank=True, max_length=500)),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q(("remove_at__isnull", False)), fields=["remove_at"], name="store_copies_to_remove"),
                    models.Index(condition=models.Q(("wanted_at__isnull", False)), fields=["wanted_at"], name="store_copies_wanted"),
                ],
                "constraints": [models.UniqueConstraint(fields=("kind", "key"), name="one_store_copy_per_thing")],
            },
        ),
        migrations.CreateModel(
            name="StoreState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("store", models.CharField(blank=True, max_length=36)),
                ("asked_at", models.DateTimeField(null=True)),
                ("reached_at", models.DateTimeField(null=True)),
                ("error", models.CharField(blank=True, max_length=500)),
                ("away_since", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Tombstone",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("run", "Run"),
                            ("asset", "Data asset"),
                            ("upload", "Upload"),
                            ("bundle", "Code"),
                            ("model", "File of a model"),
                            ("ckpt", "Checkpoint"),
                        ],
                        max_length=8,
                    ),
                ),
                ("key", models.CharField(max_length=64)),
                ("number", models.BigIntegerField(null=True)),
                ("by", models.CharField(blank=True, max_length=150)),
                ("at", models.DateTimeField()),
                ("trashed_at", models.DateTimeField(null=True)),
                ("emptied_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["at", "id"],
                "indexes": [models.Index(condition=models.Q(("emptied_at", None)), fields=["at"], name="tombstones_to_clear")],
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                (
                    "username",
                    models.CharField(
                        error_messages={"unique": "A user with that username already exists."},
                        help_text="Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.",
                        max_length=150,
                        unique=True,
                        validators=[django.contrib.auth.validators.UnicodeUsernameValidator()],
                        verbose_name="username",
                    ),
                ),
                ("first_name", models.CharField(blank=True, max_length=150, verbose_name="first name")),
                ("last_name", models.CharField(blank=True, max_length=150, verbose_name="last name")),
                ("email", models.EmailField(blank=True, max_length=254, verbose_name="email address")),
                (
                    "is_staff",
                    models.BooleanField(
                        default=False, help_text="Designates whether the user can log into this admin site.", verbose_name="staff status"
                    ),
                ),
                (
                    "is_active",
                    models.BooleanField(
                        default=True,
                        help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.",
                        verbose_name="active",
                    ),
                ),
                ("date_joined", models.DateTimeField(default=django.utils.timezone.now, verbose_name="date joined")),
                (
                    "theme",
                    models.CharField(
                        choices=[("system", "Like the system"), ("light", "Light"), ("dark", "Dark")], default="system", max_length=8
                    ),
                ),
                ("weight", models.FloatField(default=1.0)),
                ("notification_choices", models.JSONField(blank=True, default=dict)),
                ("confirmed_email", models.CharField(blank=True, max_length=254)),
                ("shortcuts", models.BooleanField(default=True)),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            options={
                "verbose_name": "user",
                "verbose_name_plural": "users",
                "abstract": False,
            },
            managers=[
                ("objects", django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name="ClusterChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("text", models.TextField()),
                ("reason", models.CharField(blank=True, max_length=500)),
                (
                    "actor",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [models.Index(fields=["-at"], name="experiments_at_11771b_idx")],
            },
        ),
        migrations.CreateModel(
            name="EnvironmentBuild",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("wanted", "Waiting"),
                            ("building", "Building"),
                            ("ready", "Ready"),
                            ("failed", "Failed"),
                            ("dropped", "Being deleted"),
                        ],
                        default="wanted",
                        max_length=16,
                    ),
                ),
                ("attempt", models.PositiveIntegerField(default=1)),
                ("in_advance", models.BooleanField(default=False)),
                ("detail", models.CharField(blank=True, max_length=200)),
                ("problem", models.TextField(blank=True)),
                ("log", models.TextField(blank=True)),
                ("folder", models.CharField(blank=True, max_length=64)),
                ("size_bytes", models.BigIntegerField(default=0)),
                ("seconds", models.FloatField(null=True)),
                ("asked_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("used_at", models.DateTimeField(null=True)),
                (
                    "environment",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="builds", to="experiments.environment"),
                ),
                (
                    "node",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="environments", to="experiments.node"),
                ),
            ],
            options={
                "ordering": ["-asked_at", "-id"],
                "constraints": [models.UniqueConstraint(fields=("environment", "node"), name="one_build_per_machine")],
            },
        ),
        migrations.CreateModel(
            name="NamedEnvironment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("created_at", models.DateTimeField()),
                ("retired_at", models.DateTimeField(null=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "ordering": [django.db.models.functions.text.Lower("name")],
                "constraints": [
                    models.UniqueConstraint(django.db.models.functions.text.Lower("name"), name="one_named_environment_per_name")
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node_name", models.CharField(max_length=63, unique=True)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("hint", models.CharField(max_length=16)),
                ("slots", models.PositiveIntegerField(null=True)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("identity", models.CharField(blank=True, max_length=64)),
                ("boot", models.CharField(blank=True, max_length=64)),
                ("incarnation", models.BigIntegerField(default=0)),
                ("address", models.CharField(blank=True, max_length=64)),
                ("joined_at", models.DateTimeField(null=True)),
                ("seen_at", models.DateTimeField(null=True)),
                (
                    "made_by",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Pilot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node_name", models.CharField(max_length=63)),
                ("job", models.CharField(blank=True, max_length=128)),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("asked", "Being asked for"),
                            ("waiting", "In the queue"),
                            ("starting", "Starting"),
                            ("here", "Here"),
                            ("leaving", "Being emptied"),
                            ("ending", "Ending"),
                            ("ended", "Ended"),
                        ],
                        default="asked",
                        max_length=16,
                    ),
                ),
                ("made_at", models.DateTimeField()),
                ("began_at", models.DateTimeField(null=True)),
                ("joined_at", models.DateTimeField(null=True)),
                ("ends_at", models.DateTimeField(null=True)),
                ("idle_since", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("useful", models.BooleanField(default=False)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("words", models.CharField(blank=True, max_length=1000)),
                ("leave_reason", models.CharField(blank=True, max_length=500)),
                ("pool", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="pilots", to="experiments.pilotpool")),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["phase"], name="pilots_by_phase")],
            },
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("sample", models.BooleanField(default=False)),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Slot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveIntegerField()),
                ("device", models.CharField(choices=[("cpu", "CPU"), ("gpu", "GPU")], max_length=8)),
                ("draining", models.BooleanField(default=False)),
                ("retired", models.BooleanField(default=False)),
                ("out_reason", models.CharField(blank=True, max_length=500)),
                ("out_at", models.DateTimeField(null=True)),
                ("doubt", models.CharField(blank=True, max_length=500)),
                ("trusted_since", models.DateTimeField(null=True)),
                ("seen_errors", models.BigIntegerField(default=0)),
                ("accepted_errors", models.BigIntegerField(default=0)),
                ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="slots", to="experiments.node")),
            ],
            options={
                "ordering": ["node__name", "index"],
                "constraints": [models.UniqueConstraint(fields=("node", "index", "device"), name="one_slot_per_place")],
            },
        ),
        migrations.CreateModel(
            name="SlotPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("device", models.CharField(choices=[("cpu", "CPU"), ("gpu", "GPU")], max_length=8)),
                ("per_hour", models.DecimalField(decimal_places=4, max_digits=12, null=True)),
                ("since", models.DateTimeField()),
                (
                    "set_by",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["since", "id"],
            },
        ),
        migrations.CreateModel(
            name="DataSeries",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("last_version", models.PositiveIntegerField(default=0)),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="data_series", to="experiments.project"),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(choices=[("admin", "Admin"), ("editor", "Editor"), ("viewer", "Viewer")], max_length=8)),
                ("added_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["added_at", "id"],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "user"), name="one_role_per_person"),
                    models.CheckConstraint(condition=models.Q(("role__in", ["admin", "editor", "viewer"])), name="known_role"),
                ],
            },
        ),
        migrations.CreateModel(
            name="NamedVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("text", models.TextField()),
                ("requirements", models.TextField()),
                ("requirements_key", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField()),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "environment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="experiments.namedenvironment"
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
                "constraints": [models.UniqueConstraint(fields=("environment", "number"), name="one_named_version_per_number")],
            },
        ),
        migrations.CreateModel(
            name="ProjectImport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("created_at", models.DateTimeField()),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                ("file_name", models.CharField(max_length=255)),
                ("size_bytes", models.BigIntegerField()),
                ("name", models.CharField(blank=True, max_length=120)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("arriving", "Arriving"),
                            ("waiting", "Waiting"),
                            ("checking", "Checking"),
                            ("reading", "Reading metrics"),
                            ("done", "Done"),
                            ("refused", "Refused"),
                        ],
                        default="arriving",
                        max_length=16,
                    ),
                ),
                ("says", models.TextField(blank=True)),
                ("notes", models.JSONField(default=list)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("run", models.BigIntegerField(default=0)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="imports", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "project",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="RegisteredModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("note", models.TextField(blank=True, max_length=20000)),
                ("tags", models.JSONField(blank=True, default=dict)),
                ("last_number", models.PositiveIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="registered_models", to="experiments.project"
                    ),
                ),
            ],
            options={
                "ordering": ["name", "id"],
                "constraints": [models.UniqueConstraint(fields=("project", "name"), name="one_model_per_name")],
            },
        ),
        migrations.CreateModel(
            name="TrainingDefinition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("git_access", models.TextField(blank=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="definitions", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("url", models.CharField(max_length=500)),
                ("secret", models.CharField(max_length=64)),
                ("kinds", models.JSONField(default=list)),
                ("active", models.BooleanField(default=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("last_outcome", models.CharField(blank=True, max_length=200)),
                ("last_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "person",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="webhooks", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="webhooks", to="experiments.project"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("person", None), ("project", None), _connector="XOR"), name="webhook_of_a_person_or_a_project"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DataAsset",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.PositiveIntegerField()),
                ("note", models.CharField(blank=True, max_length=200)),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("upload", models.BigIntegerField(db_index=True, null=True)),
                ("files", models.PositiveIntegerField()),
                ("size_bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "series",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="experiments.dataseries"),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="data_assets", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "constraints": [models.UniqueConstraint(fields=("series", "version"), name="one_data_version_per_number")],
            },
        ),
        migrations.CreateModel(
            name="DataUpload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("parts", models.JSONField()),
                ("for_code", models.BooleanField(default=False)),
                ("note", models.CharField(blank=True, max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "series",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="experiments.dataseries"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="data_uploads", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="DefinitionVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("file_name", models.CharField(max_length=255)),
                ("framework", models.CharField(choices=[("pytorch", "PyTorch")], default="pytorch", max_length=32)),
                (
                    "command",
                    models.CharField(blank=True, help_text="Script and its arguments; may be left to the experiment.", max_length=2000),
                ),
                (
                    "device",
                    models.CharField(
                        choices=[("any", "Any slot"), ("gpu", "1 GPU per slot"), ("cpu", "1 CPU share per slot")],
                        default="any",
                        max_length=8,
                    ),
                ),
                (
                    "distributed",
                    models.CharField(
                        choices=[
                            ("elastic", "Elastic distributed training (exact)"),
                            ("torchrun_elastic", "torchrun elastic"),
                            ("torchrun", "torchrun"),
                            ("single", "Single process"),
                        ],
                        default="elastic",
                        max_length=16,
                    ),
                ),
                (
                    "max_slots",
                    models.PositiveIntegerField(
                        default=4, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(4096)]
                    ),
                ),
                (
                    "packages",
                    models.CharField(
                        choices=[
                            ("own", "What its code requires, built for its runs"),
                            ("studio", "The studio's packages alone"),
                            ("named", "An environment that administrators offer"),
                        ],
                        default="own",
                        max_length=16,
                    ),
                ),
                ("network", models.CharField(choices=[("none", "None"), ("outward", "The internet")], default="none", max_length=8)),
                ("requirements", models.TextField(blank=True)),
                ("requirements_key", models.CharField(blank=True, db_index=True, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                ("git_address", models.CharField(blank=True, max_length=500)),
                ("git_ref", models.CharField(blank=True, max_length=255)),
                ("git_folder", models.CharField(blank=True, max_length=500)),
                ("git_commit", models.CharField(blank=True, max_length=64)),
                ("bundle", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="experiments.bundle")),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "named",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="definition_versions",
                        to="experiments.namedversion",
                    ),
                ),
                (
                    "definition",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="experiments.trainingdefinition"
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
                "constraints": [
                    models.UniqueConstraint(fields=("definition", "number"), name="one_version_per_number"),
                    models.CheckConstraint(condition=models.Q(("max_slots__gte", 1)), name="version_max_slots_at_least_1"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("named__isnull", False), ("packages", "named")),
                            models.Q(models.Q(("packages", "named"), _negated=True), ("named__isnull", True)),
                            _connector="OR",
                        ),
                        name="named_packages_name_one",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("body", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, max_length=200)),
                (
                    "person",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "webhook",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="experiments.webhook"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [models.Index(condition=models.Q(("done_at", None)), fields=["next_at"], name="due_deliveries")],
            },
        ),
        migrations.CreateModel(
            name="EnvironmentVariable",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("secret", models.BooleanField(default=False)),
                ("value", models.TextField(blank=True)),
                ("set_at", models.DateTimeField()),
                ("set_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                (
                    "project",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="variables", to="experiments.project"
                    ),
                ),
                (
                    "definition",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="variables",
                        to="experiments.trainingdefinition",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="one_variable_per_name_of_project"),
                    models.UniqueConstraint(fields=("definition", "name"), name="one_variable_per_name_of_definition"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("definition__isnull", False), ("project__isnull", True)),
                            models.Q(("definition__isnull", True), ("project__isnull", False)),
                            _connector="OR",
                        ),
                        name="variable_of_project_or_definition",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ModelEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("what", models.CharField(max_length=500)),
                (
                    "by",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="events", to="experiments.registeredmodel"),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="ModelVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("run", models.BigIntegerField(db_index=True, null=True)),
                ("path", models.CharField(max_length=1000)),
                ("lineage", models.JSONField(default=dict)),
                ("left_out", models.JSONField(default=list)),
                ("note", models.TextField(blank=True, max_length=20000)),
                ("tags", models.JSONField(blank=True, default=dict)),
                ("size_bytes", models.BigIntegerField(default=0)),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                ("created_at", models.DateTimeField()),
                (
                    "code",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="experiments.bundle"),
                ),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="experiments.registeredmodel"
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
                "constraints": [models.UniqueConstraint(fields=("model", "number"), name="one_model_version_per_number")],
            },
        ),
        migrations.CreateModel(
            name="Experiment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("source_folder", models.CharField(blank=True, max_length=500)),
                ("global_command", models.CharField(blank=True, max_length=2000)),
                ("environment", models.JSONField(blank=True, default=dict)),
                ("checkpoints", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "data_asset",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="experiments", to="experiments.dataasset"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="experiments", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="ModelAlias",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                (
                    "version",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="aliases", to="experiments.modelversion"),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="aliases", to="experiments.registeredmodel"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(fields=("model", "name"), name="one_version_per_alias")],
            },
        ),
        migrations.CreateModel(
            name="ModelDraft",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("name", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True, max_length=4000)),
                ("command", models.CharField(blank=True, max_length=2000)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "version",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.definitionversion"
                    ),
                ),
                ("project", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.project")),
            ],
            options={
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="ModelFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", models.CharField(max_length=1000)),
                ("sha256", models.CharField(db_index=True, max_length=64)),
                ("size_bytes", models.BigIntegerField()),
                ("made", models.BooleanField(default=False)),
                (
                    "version",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="files", to="experiments.modelversion"),
                ),
            ],
            options={
                "ordering": ["path"],
                "constraints": [models.UniqueConstraint(fields=("version", "path"), name="one_model_file_per_path")],
            },
        ),
        migrations.CreateModel(
            name="ExperimentDefinition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveIntegerField()),
                ("command", models.CharField(blank=True, max_length=2000)),
                (
                    "experiment",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="parts", to="experiments.experiment"),
                ),
                (
                    "version",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="experiments.definitionversion"),
                ),
            ],
            options={
                "ordering": ["position"],
                "constraints": [models.UniqueConstraint(fields=("experiment", "position"), name="one_definition_per_position")],
            },
        ),
        migrations.CreateModel(
            name="ExperimentWatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("group", models.CharField(choices=[("train", "Train"), ("test", "Test")], max_length=8)),
                ("name", models.CharField(max_length=200)),
                ("above", models.BooleanField()),
                ("threshold", models.FloatField()),
                (
                    "experiment",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="watches", to="experiments.experiment"),
                ),
                ("person", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("person", "experiment", "group", "name", "above", "threshold"), name="one_of_an_experiment"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RunColumn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("argument", "Argument"), ("train", "Train"), ("test", "Test")], max_length=8)),
                ("name", models.CharField(max_length=200)),
                ("first", models.CharField(blank=True, max_length=500)),
                ("varies", models.BooleanField(default=False)),
                (
                    "experiment",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="columns", to="experiments.experiment"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("experiment", "kind", "name"), name="one_column_per_name")],
            },
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("query", models.CharField(blank=True, max_length=4000)),
                ("saved_at", models.DateTimeField()),
                (
                    "experiment",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.experiment"
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="saved_views", to="experiments.project"),
                ),
                ("saved_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "ordering": ["name", "id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("person", None)), fields=("project", "name"), name="one_shared_view_per_name"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("person", None), _negated=True),
                        fields=("project", "person", "name"),
                        name="one_own_view_per_name",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TrainingRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("outside", models.BooleanField(default=False)),
                ("folder", models.CharField(default=experiments.models.runs.new_folder, editable=False, max_length=36, unique=True)),
                ("name", models.CharField(max_length=160)),
                ("submitted_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("suspended", "Suspended"),
                            ("stopping", "Stopping"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                ("state_reason", models.TextField(blank=True)),
                ("tell_at", models.DateTimeField(null=True)),
                ("command", models.CharField(max_length=2000)),
                ("data_folder", models.CharField(blank=True, max_length=500)),
                ("environment", models.JSONField(blank=True, default=dict)),
                ("idempotency_key", models.UUIDField(null=True)),
                ("position", models.PositiveIntegerField(default=0)),
                ("continues", models.BigIntegerField(null=True)),
                ("reproduces", models.BigIntegerField(null=True)),
                ("tags", models.JSONField(blank=True, default=list)),
                ("note", models.TextField(blank=True, max_length=4000)),
                (
                    "priority",
                    models.PositiveIntegerField(
                        default=5000,
                        validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(10000)],
                    ),
                ),
                ("priority_agreed", models.PositiveIntegerField(default=0)),
                ("min_slots", models.PositiveIntegerField(default=1, validators=[django.core.validators.MinValueValidator(1)])),
                (
                    "max_slots",
                    models.PositiveIntegerField(
                        default=4, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(4096)]
                    ),
                ),
                ("paused", models.BooleanField(default=False)),
                ("any_kind", models.BooleanField(default=False)),
                ("checkpoints", models.JSONField(blank=True, default=dict)),
                ("stop_requested_at", models.DateTimeField(null=True)),
                ("stop_reason", models.CharField(blank=True, max_length=500)),
                ("leave_revision", models.BigIntegerField(null=True)),
                ("plan_reason", models.TextField(blank=True)),
                ("queue_position", models.PositiveIntegerField(null=True)),
                ("expected_start_s", models.FloatField(null=True)),
                ("moved_at", models.DateTimeField(null=True)),
                ("kind", models.CharField(blank=True, max_length=1000)),
                ("waits_since", models.DateTimeField(null=True)),
                ("favoured_at", models.DateTimeField(null=True)),
                ("engines", models.PositiveIntegerField(null=True)),
                ("batch_size", models.PositiveIntegerField(null=True)),
                ("epochs", models.PositiveIntegerField(null=True)),
                ("steps_per_epoch", models.PositiveIntegerField(null=True)),
                ("parameters", models.BigIntegerField(null=True)),
                ("step", models.BigIntegerField(default=0)),
                ("epoch", models.PositiveIntegerField(default=0)),
                ("step_rate", models.FloatField(null=True)),
                ("last_step_at", models.DateTimeField(null=True)),
                ("bar_done", models.FloatField(null=True)),
                ("bar_total", models.FloatField(null=True)),
                ("bar_left_s", models.FloatField(null=True)),
                ("bar_label", models.CharField(blank=True, max_length=200)),
                ("workers", models.PositiveIntegerField(default=0)),
                ("final_metrics", models.JSONField(blank=True, default=dict)),
                ("error_message", models.TextField(blank=True)),
                ("error_traceback", models.TextField(blank=True)),
                ("outcome", models.CharField(blank=True, max_length=16)),
                ("exact", models.BooleanField(null=True)),
                ("exact_checked", models.BooleanField(default=False)),
                ("exact_reasons", models.JSONField(blank=True, default=list)),
                ("attempt", models.PositiveIntegerField(default=1)),
                ("exit_code", models.IntegerField(null=True)),
                ("prologue_s", models.FloatField(null=True)),
                ("disk_bytes", models.BigIntegerField(null=True)),
                ("disk_files", models.PositiveIntegerField(null=True)),
                ("disk_counted_at", models.DateTimeField(null=True)),
                ("busy_s", models.FloatField(null=True)),
                ("busy_counted_s", models.FloatField(default=0, null=True)),
                (
                    "experiment",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="experiments.experiment"),
                ),
                (
                    "submitted_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="runs", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "version",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="runs", to="experiments.definitionversion"),
                ),
                (
                    "head_node",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name="runs", to="experiments.node"),
                ),
            ],
            options={
                "ordering": ["-submitted_at", "-id"],
                "indexes": [
                    models.Index(fields=["state"], name="experiments_state_1828a0_idx"),
                    models.Index(fields=["experiment", "-submitted_at"], name="experiments_experim_967f86_idx"),
                    models.Index(fields=["-submitted_at", "-id"], name="newest_runs"),
                    models.Index(fields=["ended_at"], name="runs_by_end"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("idempotency_key", "position"), name="one_run_per_request"),
                    models.CheckConstraint(
                        condition=models.Q(("min_slots__gte", 1), ("max_slots__gte", models.F("min_slots"))), name="run_slots_in_order"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__gte", 1), ("priority__lte", 10000)), name="run_priority_in_range"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Trigger",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("secret", models.TextField()),
                (
                    "event",
                    models.CharField(
                        choices=[("push", "A push to a git repository"), ("data", "A new data asset"), ("call", "Any signed call")],
                        max_length=8,
                    ),
                ),
                ("branch", models.CharField(blank=True, max_length=255)),
                ("data_name", models.CharField(blank=True, max_length=120)),
                ("created_at", models.DateTimeField()),
                (
                    "created_by",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "definition",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.trainingdefinition"
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="triggers", to="experiments.experiment"),
                ),
                (
                    "project",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="triggers", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("hint", models.CharField(max_length=16)),
                ("scope", models.CharField(choices=[("read", "Read"), ("write", "Read and write"), ("admin", "Everything")], max_length=8)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                (
                    "person",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="api_tokens", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.trainingrun"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="DriverMeeting",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sealed", models.TextField()),
                ("run", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.trainingrun")),
                ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.node")),
            ],
        ),
        migrations.CreateModel(
            name="DroppedCheckpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("at", models.DateTimeField()),
                ("step", models.BigIntegerField()),
                ("epoch", models.PositiveIntegerField()),
                ("paths", models.JSONField(default=list)),
                ("size_bytes", models.BigIntegerField()),
                ("reason", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="dropped_checkpoints",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "ordering": ["step"],
                "constraints": [models.UniqueConstraint(fields=("run", "step"), name="one_drop_per_checkpoint")],
            },
        ),
        migrations.CreateModel(
            name="GenerationRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("generation", models.PositiveIntegerField()),
                ("at", models.DateTimeField()),
                ("step", models.BigIntegerField()),
                ("epoch", models.PositiveIntegerField()),
                ("workers", models.PositiveIntegerField()),
                ("workers_before", models.PositiveIntegerField()),
                ("slots", models.JSONField(default=list)),
                ("reason", models.TextField()),
                ("pause_ms", models.FloatField()),
                ("redone", models.PositiveIntegerField()),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="generations",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "indexes": [models.Index(fields=["-at", "-id"], name="newest_generations")],
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="one_generation_per_line")],
            },
        ),
        migrations.CreateModel(
            name="Grant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("granted_at", models.DateTimeField()),
                ("reason", models.TextField()),
                ("release_requested_at", models.DateTimeField(null=True)),
                ("release_reason", models.TextField(blank=True)),
                ("release_revision", models.BigIntegerField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
                (
                    "run",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="grants", to="experiments.trainingrun"),
                ),
                ("slot", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="grants", to="experiments.slot")),
            ],
            options={
                "ordering": ["granted_at", "id"],
                "indexes": [
                    models.Index(fields=["slot", "granted_at"], name="experiments_slot_id_124d7c_idx"),
                    models.Index(fields=["run", "released_at"], name="experiments_run_id_e67bbf_idx"),
                    models.Index(fields=["granted_at"], name="grants_by_begin"),
                    models.Index(fields=["released_at", "id"], name="grants_by_end"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at__isnull", True)), fields=("slot",), name="one_open_grant_per_slot"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("released_at__isnull", True), ("released_at__gte", models.F("granted_at")), _connector="OR"),
                        name="grant_ends_after_it_begins",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="JournalCursor",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="cursor",
                        serialize=False,
                        to="experiments.trainingrun",
                    ),
                ),
                ("offset", models.BigIntegerField(default=0)),
                ("seq", models.BigIntegerField(default=0)),
                ("mark", models.CharField(blank=True, max_length=64)),
                ("rejected", models.PositiveIntegerField(default=0)),
                ("left_out", models.JSONField(blank=True, default=dict)),
                ("redone_to", models.BigIntegerField(default=0)),
                ("lines_of", models.BigIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LatestUtilization",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="latest_utilization",
                        serialize=False,
                        to="experiments.trainingrun",
                    ),
                ),
                ("t", models.FloatField()),
                ("slots", models.JSONField(default=list)),
            ],
        ),
        migrations.CreateModel(
            name="LoggedFacts",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="logged_facts",
                        serialize=False,
                        to="experiments.trainingrun",
                    ),
                ),
                ("parameters", models.JSONField(default=dict)),
                ("tags", models.JSONField(default=dict)),
                ("arguments", models.JSONField(default=dict)),
                ("packages", models.JSONField(default=dict)),
                ("python", models.CharField(blank=True, default="", max_length=40)),
                ("seed", models.BigIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="MetricSeries",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("group", models.CharField(choices=[("train", "Train"), ("test", "Test")], max_length=8)),
                ("name", models.CharField(max_length=200)),
                ("points", models.BigIntegerField(default=0)),
                ("last_step", models.BigIntegerField(default=0)),
                ("last_value", models.FloatField(null=True)),
                ("least", models.FloatField(null=True)),
                ("least_step", models.BigIntegerField(null=True)),
                ("greatest", models.FloatField(null=True)),
                ("greatest_step", models.BigIntegerField(null=True)),
                ("not_finite_from", models.BigIntegerField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="series",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "ordering": ["group", "name"],
                "constraints": [models.UniqueConstraint(fields=("run", "group", "name"), name="one_series_per_name")],
            },
        ),
        migrations.CreateModel(
            name="MetricWatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("group", models.CharField(choices=[("train", "Train"), ("test", "Test")], max_length=8)),
                ("name", models.CharField(max_length=200)),
                ("above", models.BooleanField()),
                ("threshold", models.FloatField()),
                ("inherited", models.BooleanField(default=False)),
                ("told_at", models.DateTimeField(null=True)),
                ("told_step", models.BigIntegerField(null=True)),
                ("told_value", models.FloatField(null=True)),
                ("person", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                (
                    "run",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="watches", to="experiments.trainingrun"),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [models.Index(condition=models.Q(("told_at", None)), fields=["run"], name="waiting_watches")],
                "constraints": [
                    models.UniqueConstraint(fields=("person", "run", "group", "name", "above", "threshold"), name="one_watch_each")
                ],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("run.completed", "A run of mine has completed"),
                            ("run.failed", "A run of mine has failed"),
                            ("run.suspended", "A run of mine has lost all its slots"),
                            ("run.stopped", "Somebody else has stopped a run of mine"),
                            ("run.not_finite", "A metric of a run of mine has become NaN or infinite"),
                            ("run.threshold", "A metric has crossed a threshold that I set"),
                            ("run.changed", "Somebody else has changed a run of mine (priority, slots, pause)"),
                            ("run.mentioned", "Somebody has named me in a comment"),
                            (
                                "cluster.slot",
                                "A slot was taken out of service because it looks ill (told to administrators of the cluster)",
                            ),
                            ("project.member", "I was added to a project, or my role has changed"),
                        ],
                        max_length=32,
                    ),
                ),
                ("at", models.DateTimeField()),
                ("text", models.CharField(max_length=600)),
                ("read_at", models.DateTimeField(null=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="notifications", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.trainingrun"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.project"),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["person", "-at"], name="experiments_person__536840_idx"),
                    models.Index(condition=models.Q(("read_at", None)), fields=["person"], name="unread_notifications"),
                ],
            },
        ),
        migrations.CreateModel(
            name="RemoteAgent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("counted_s", models.FloatField(default=0)),
                ("busy_counted_s", models.FloatField(default=0, null=True)),
                ("all_counted_s", models.FloatField(default=0)),
                ("all_busy_s", models.FloatField(default=0, null=True)),
                ("memory_bytes", models.BigIntegerField(null=True)),
                ("seen_at", models.DateTimeField(null=True)),
                ("abandoned", models.BooleanField(default=False)),
                ("detail", models.TextField(blank=True)),
                ("attempt", models.PositiveIntegerField(default=1)),
                (
                    "node",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="remote_agents", to="experiments.node"),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="remote_agents", to="experiments.trainingrun"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "node"), name="one_agent_per_machine")],
            },
        ),
        migrations.CreateModel(
            name="RunComment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("imported_author", models.CharField(blank=True, max_length=150)),
                ("text", models.TextField(max_length=4000)),
                ("at", models.DateTimeField()),
                ("edited_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
                ("idempotency_key", models.UUIDField(null=True, unique=True)),
                (
                    "author",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="comments", to="experiments.trainingrun"),
                ),
            ],
            options={
                "ordering": ["at", "id"],
                "indexes": [
                    models.Index(condition=models.Q(("deleted_at", None), _negated=True), fields=["deleted_at"], name="deleted_comments")
                ],
            },
        ),
        migrations.CreateModel(
            name="RunEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("kind", models.CharField(max_length=16)),
                ("message", models.TextField()),
                ("detail", models.JSONField(blank=True, default=dict)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="events",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="one_event_per_line")],
            },
        ),
        migrations.CreateModel(
            name="RunTransition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "old",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("queued", "Queued"),
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("suspended", "Suspended"),
                            ("stopping", "Stopping"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "new",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("suspended", "Suspended"),
                            ("stopping", "Stopping"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                        ],
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                (
                    "actor",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="transitions", to="experiments.trainingrun"
                    ),
                ),
            ],
            options={
                "ordering": ["at", "id"],
                "indexes": [models.Index(fields=["-at", "-id"], name="newest_transitions")],
            },
        ),
        migrations.CreateModel(
            name="RunValue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("argument", "Argument"), ("tag", "Tag")], max_length=8)),
                ("name", models.CharField(max_length=200)),
                ("text", models.CharField(blank=True, max_length=500)),
                ("number", models.FloatField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["kind", "name", "number"], name="values_by_number")],
                "constraints": [models.UniqueConstraint(fields=("run", "kind", "name"), name="one_value_per_name")],
            },
        ),
        migrations.CreateModel(
            name="SlotDeath",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("deaths", models.FloatField()),
                ("last_at", models.DateTimeField(db_index=True)),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.trainingrun")),
                ("slot", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.slot")),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "slot"), name="one_count_per_run_and_slot")],
            },
        ),
        migrations.CreateModel(
            name="StateDigest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("epoch", models.PositiveIntegerField()),
                ("step", models.BigIntegerField()),
                ("digest", models.CharField(max_length=16)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="digests",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "ordering": ["epoch"],
                "constraints": [models.UniqueConstraint(fields=("run", "epoch"), name="one_digest_per_epoch")],
            },
        ),
        migrations.CreateModel(
            name="Submission",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("args", models.TextField()),
                ("framework", models.CharField(max_length=64)),
                ("instance_group", models.CharField(blank=True, max_length=255)),
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="submission", to="experiments.trainingrun"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TriggerDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.CharField(max_length=100)),
                ("at", models.DateTimeField()),
                ("facts", models.JSONField(default=dict)),
                ("begun_at", models.DateTimeField(null=True)),
                ("done_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, max_length=500)),
                (
                    "made",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="experiments.experiment"
                    ),
                ),
                (
                    "trigger",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="experiments.trigger"),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [models.UniqueConstraint(fields=("trigger", "number"), name="one_delivery_per_number")],
            },
        ),
        migrations.CreateModel(
            name="UtilizationSample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tick", models.BigIntegerField()),
                ("t", models.FloatField()),
                ("busy_s", models.FloatField(null=True)),
                ("counted_s", models.FloatField()),
                ("least_share", models.FloatField(null=True)),
                ("greatest_share", models.FloatField(null=True)),
                ("memory_bytes", models.BigIntegerField(null=True)),
                ("least_bytes", models.BigIntegerField(null=True)),
                ("largest_bytes", models.BigIntegerField(null=True)),
                ("slots", models.JSONField(default=list)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="utilization_samples",
                        to="experiments.trainingrun",
                    ),
                ),
            ],
            options={
                "ordering": ["tick"],
                "constraints": [models.UniqueConstraint(fields=("run", "tick"), name="one_use_per_tick")],
            },
        ),
        migrations.CreateModel(
            name="Metric",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("step", models.BigIntegerField()),
                ("seq", models.BigIntegerField()),
                ("epoch", models.PositiveIntegerField()),
                ("t", models.FloatField()),
                ("value", models.FloatField(null=True)),
                ("workers", models.PositiveIntegerField(default=0)),
                (
                    "series",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.metricseries"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("series", "step"), name="one_point_per_step")],
            },
        ),
        migrations.CreateModel(
            name="MetricRollup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.BigIntegerField()),
                ("least_step", models.BigIntegerField()),
                ("least_t", models.FloatField()),
                ("least", models.FloatField(null=True)),
                ("greatest_step", models.BigIntegerField()),
                ("greatest_t", models.FloatField()),
                ("greatest", models.FloatField(null=True)),
                (
                    "series",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="experiments.metricseries"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("series", "index"), name="one_stretch_per_place")],
            },
        ),
        migrations.AddField(
            model_name="Project",
            name="members",
            field=models.ManyToManyField(related_name="projects", through="experiments.Membership", to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name="Experiment",
            name="versions",
            field=models.ManyToManyField(
                related_name="experiments", through="experiments.ExperimentDefinition", to="experiments.definitionversion"
            ),
        ),
    ]

    def apply(self, project_state, schema_editor, collect_sql=False):
        """Every table from the models as they are at the end of it. Django makes all models that hang together anew after each operation,
        since each could need those before it: two thousand, most of a first start. What is no table here has no column: the two fields
        are `through` tables of their own."""
        if collect_sql:
            return super().apply(project_state, schema_editor, collect_sql)
        project_state.__dict__.pop("apps", None)
        self.mutate_state(project_state, preserve=False)
        for operation in self.operations:
            if isinstance(operation, migrations.CreateModel):
                operation.database_forwards(self.app_label, schema_editor, project_state, project_state)
        return project_state

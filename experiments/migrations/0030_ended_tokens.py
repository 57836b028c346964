from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("experiments", "0029_confirmed_email"),
    ]

    operations = [
        migrations.CreateModel(
            name="EndedToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=64, unique=True)),
                ("until", models.DateTimeField()),
            ],
        ),
    ]

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0067_idempotency_keys'),
    ]

    operations = [
        migrations.RenameModel(old_name='Notice', new_name='Notification'),
        migrations.RenameIndex('notification', new_name='experiments_person__536840_idx', old_name='experiments_person__d30c01_idx'),
        migrations.RenameIndex('notification', new_name='unread_notifications', old_name='unread_notices'),
        migrations.AlterField(
            model_name='notification',
            name='person',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL),
        ),
        migrations.RenameField('user', 'notice_choices', 'notification_choices'),
    ]

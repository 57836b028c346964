"""All addresses of the studio; the app's own are in experiments/urls.py."""

from django.urls import include, path

urlpatterns = [path("", include("experiments.urls"))]

handler400 = "experiments.views.errors.bad_request"
handler403 = "experiments.views.errors.forbidden"
handler404 = "experiments.views.errors.not_found"
handler500 = "experiments.views.errors.server_error"

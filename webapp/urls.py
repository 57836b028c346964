"""All addresses of the studio; the app's own are in experiments/urls.py."""

from django.urls import include, path

urlpatterns = [path("", include("experiments.urls"))]

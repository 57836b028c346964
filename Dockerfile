# EDT Studio: one image for all its processes (see docker-compose.yml). Build it for GPUs as it is; for CPUs only, name an index that has
# torch's CPU build: docker compose build --build-arg TORCH_INDEX_URL=...
FROM python:3.11.11-slim-bookworm AS build
ARG TORCH_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/edt
ENV PATH=/opt/edt/bin:$PATH
COPY requirements.txt requirements-s3.txt ./
RUN pip install ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} --constraint requirements.txt "$(grep '^torch==' requirements.txt)" \
    && pip install --requirement requirements-s3.txt

FROM python:3.11.11-slim-bookworm AS studio
# git and ssh fetch code from repositories; they are as old as the base image.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends git openssh-client && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home edt \
    && install --directory --owner edt --mode 755 /var/lib/edt \
    && for folder in code runs data assets host; do install --directory --owner edt --mode 755 "/var/lib/edt/$folder"; done
COPY --from=build /opt/edt /opt/edt
COPY manage.py LICENSE /app/
COPY webapp /app/webapp
COPY experiments /app/experiments
COPY training_runtime /app/training_runtime
COPY edt_client /app/edt_client
COPY templates /app/templates
COPY static /app/static
COPY examples /app/examples
WORKDIR /app
RUN /opt/edt/bin/python -m training_runtime.host.runs.fabric /opt/edt
ENV PATH=/opt/edt/bin:$PATH PYTHONUNBUFFERED=1 EDT_HOME=/var/lib/edt DJANGO_SETTINGS_MODULE=webapp.settings
USER 10001
EXPOSE 8000
CMD ["uvicorn", "webapp.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "off"]

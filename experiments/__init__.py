"""The studio's one Django app: what is stored, who may, what is shown.

Across all domains: `models` (rows), `access` (who may: the only door to objects), `services` (who changes), `selectors` (who reads),
`forms`, `views`, `api`, and the interfaces of others, `wmla` and `mlflow`. By domain, what is none of these: `accounts`, `definitions`,
`runs`, `metrics`, `logs`, `files`, `cluster`, `notifications`, `live` and `ops`. See docs/architecture.md.
"""

"""`/api/v1/`: all that the pages can do, for scripts. Typed by the schemas beside each call; described at /api/v1/openapi.json.

application   the API: its routers, how each call is wrapped, its description
auth          who asks: a token, or a page of this studio
problems      errors, as application/problem+json
paging        lists, a page at a time
requests      what calls share: idempotency keys, ETags, limits of rate

Beside these a module for each kind of thing. Each call fetches by `access`, changes by `services`, reads by `selectors`, as pages do.
"""

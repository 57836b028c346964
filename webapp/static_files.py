"""Static files under names with a hash of their content, the imports between our ES modules included: browsers may keep them for ever."""

from django.contrib.staticfiles.storage import HashedFilesMixin
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]
from whitenoise.responders import StaticFile  # type: ignore[import-untyped]
from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Names files by their hash and rewrites the imports between modules. Source maps, which vendored scripts name, are not served."""

    support_js_module_import_aggregation = True
    patterns = tuple(
        (glob, tuple(each for each in found if "sourceMappingURL" not in str(each))) for glob, found in HashedFilesMixin.patterns
    )


class StaticFiles(WhiteNoiseMiddleware):
    """Answers with the whole of a file, which is small. Under ASGI Django reads what a file streams whole as well, and warns of it, in the
    first line of the log."""

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        response = HttpResponse(status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        if found.file is not None:
            with found.file as file:
                response.content = file.read()
        return response

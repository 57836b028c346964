"""Static files under names with a hash of their content, the imports between our ES modules included: browsers may keep them for ever."""

from django.contrib.staticfiles.storage import HashedFilesMixin
from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Names files by their hash and rewrites the imports between modules. Source maps, which vendored scripts name, are not served."""

    support_js_module_import_aggregation = True
    patterns = tuple(
        (glob, tuple(each for each in found if "sourceMappingURL" not in str(each))) for glob, found in HashedFilesMixin.patterns
    )

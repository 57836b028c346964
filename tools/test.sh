#!/bin/sh
# All tests, some of them side by side, with types beside them and style before: tools/test.sh PYTHON WORKERS [ARGUMENTS OF PYTEST]
#
# A few that fail are run once more, alone: on a busy machine a deadline may pass that is no finding. They are named in any case, and what fails
# alone as well has failed. More than MOST at once are no accident.
#
# After EDT_TEST_MINUTES no more of the long ones are begun, which on a machine as README.md names it are long done by then: a slow one says
# how many it has skipped for that (docs/decisions/test-time.md).
set -u
cd "$(dirname "$0")/.."
python=$1 workers=$2
shift 2
MOST=10
failed=.pytest_cache/v/cache/lastfailed
export EDT_TEST_UNTIL=$(($(date +%s) + ${EDT_TEST_MINUTES:-55} * 60))
export PYTHONDONTWRITEBYTECODE=  # some machines set it, and then each of a thousand processes compiles the studio anew

make --no-print-directory style || exit 2  # seconds, which need not wait for half an hour
mkdir -p .cache
rm -f "$failed"
make --no-print-directory types >.cache/types.log 2>&1 &
types=$!
"$python" -m pytest -q -n "$workers" --no-loadscope-reorder "$@"
tests=$?
wait "$types"
typed=$?
if [ "$tests" -eq 1 ] && [ "$(grep -c '": true' "$failed")" -le "$MOST" ]; then
    echo "== once more, alone =="
    grep '": true' "$failed"
    EDT_TEST_UNTIL= "$python" -m pytest -q --lf --lfnf none
    tests=$?
fi
cat .cache/types.log
exit $((tests ? tests : typed))

#!/bin/sh
# The tests drive a real Chromium: the one that $CHROMIUM names, one on the PATH, or the system package where we may install it. Those that
# fetch code need git and ssh, those of networks slirp4netns and iproute2, those of Slurm Slurm and MUNGE; they are left out where these are
# not.
set -eu

found() {
    [ -n "${CHROMIUM:-}" ] && [ -x "${CHROMIUM:-}" ] && return
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null 2>&1 && return
    done
    return 1
}

missing=
found || missing=chromium
command -v git >/dev/null 2>&1 || missing="$missing git"
command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
command -v slirp4netns >/dev/null 2>&1 || missing="$missing slirp4netns"
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
PATH="$PATH:/usr/sbin" command -v slurmctld >/dev/null 2>&1 || missing="$missing slurm-wlm"
PATH="$PATH:/usr/sbin" command -v munged >/dev/null 2>&1 || missing="$missing munge"
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests: $missing"
    log=$(mktemp)
    # shellcheck disable=SC2086  # a word each
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
    fi
    rm -f "$log"
fi
found || {
    echo "EDT Studio: the browser tests need Chromium: install the system package chromium, or set CHROMIUM to its path." >&2
    exit 2
}

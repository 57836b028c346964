#!/bin/sh
# The tests drive a real Chromium: the one that $CHROMIUM names, one on the PATH, or the system package where we may install it; best the one
# without windows, which draws the same pages for a third of the processor time (a system that has it nowhere takes the other). Some need
# more, and are left out where it is not: git and ssh to fetch code, slirp4netns and iproute2 for networks, libfaketime for wrong clocks,
# slurm-wlm and munge for machines of Slurm, uidmap for a studio without root.
set -eu

found() {
    [ -n "${CHROMIUM:-}" ] && [ -x "${CHROMIUM:-}" ] && return
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null 2>&1 && return
    done
    return 1
}

install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; }

# Where another one is there already, the one without windows is added if the system has it.
wants_shell() {
    [ -z "${CHROMIUM:-}" ] && ! command -v chromium-headless-shell >/dev/null 2>&1 || return 1
    ! found || ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || apt-cache show chromium-headless-shell >/dev/null 2>&1
}

missing=
! wants_shell || missing=chromium-headless-shell
command -v git >/dev/null 2>&1 || missing="$missing git"
command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
command -v slirp4netns >/dev/null 2>&1 || missing="$missing slirp4netns"
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
[ -e "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1" ] || missing="$missing libfaketime"
command -v newuidmap >/dev/null 2>&1 || missing="$missing uidmap"
PATH="$PATH:/usr/sbin" command -v slurmctld >/dev/null 2>&1 || missing="$missing slurm-wlm"
PATH="$PATH:/usr/sbin" command -v munged >/dev/null 2>&1 || missing="$missing munge"
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests: $missing"
    log=$(mktemp)
    # shellcheck disable=SC2086  # a word each
    if ! { apt-get update -qq && install $missing; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        for each in $missing; do # one that is not to be had here keeps nobody from the others
            install "$each" >"$log" 2>&1 || echo "$each could not be installed." >&2
        done
        found || install chromium >"$log" 2>&1 || echo "chromium could not be installed." >&2
    fi
    rm -f "$log"
fi
found || {
    echo "EDT Studio: the browser tests need Chromium: install the system package chromium, or set CHROMIUM to its path." >&2
    exit 2
}

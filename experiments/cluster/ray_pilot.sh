#!/bin/sh
# A pilot of EDT Studio: while this job of Ray lasts, its machine joins the studio. Beside it lie `order`, and `token` until it is read.
#
# There are two processes. This one is the job that Ray sees. The guard is in a session of its own and no descendant of it, because Ray sends
# the SIGTERM of a job to every descendant, and runs are to write their states before they end. It ends the machine when the job was told to
# end or is gone, or when its time is over; and the job lasts until that is done.
set -u

lives() { # and is no zombie, which nobody may ever collect where Ray is the first process of a container
    kill -0 "$1" 2>/dev/null && ! grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"
}

end_all() { # of what is below the folder: a run's processes are in sessions of their own
    for _ in 1 2 3; do
        for path in $(grep -lsF "$1/" /proc/[0-9]*/cmdline /proc/[0-9]*/environ); do
            pid=${path#/proc/}
            kill -KILL "${pid%%/*}" 2>/dev/null
        done
    done
}

guard() { # the job's process; the token is on standard input
    exec 3<&0 </dev/null
    . ./order
    umask 022
    folder=$(mktemp -d "$parent/edt-pilot-XXXXXXXX") && chmod 755 "$folder" && echo "$folder" >folder && echo $$ >guard || exit 1
    eval "$command \"\$studio\" --token - --home \"\$folder/home\" --slots \"\$slots\" <&3 3<&- &"
    node=$!
    exec 3<&-
    end=$(($(date +%s) + lasts_s - notice_s))
    while lives "$node" && lives "$1" && [ ! -e told ] && [ "$(date +%s)" -lt "$end" ]; do sleep 1; done
    kill -TERM "$node" 2>/dev/null
    left=$notice_s
    while lives "$node" && [ "$left" -gt 0 ]; do
        left=$((left - 1))
        sleep 1
    done
    end_all "$folder"
    wait "$node"
    echo $? >ended
    rm -rf "$folder"
    exit 0
}

[ "${1-}" != guard ] || guard "$2"

trap ': >told' TERM INT
token=$(cat token) && rm -f token || exit 1
# Nothing of Ray's environment but this: its own token is there, and paths of its Python.
for name in HOME PATH USER LOGNAME LANG LC_ALL TZ LD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR \
    CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES; do
    eval "[ -z \"\${$name+there}\" ] || set -- \"\$@\" \"$name=\$$name\""
done
(printf '%s\n' "$token" | setsid env -i "$@" sh ./pilot.sh guard $$ &)
token=
left=50
while [ ! -s guard ] && [ "$left" -gt 0 ]; do
    left=$((left - 1))
    sleep 0.2
done
[ -s guard ] || {
    echo "The pilot's guard has not begun: setsid is needed, and room below the folder that EDT_PILOT_FOLDER names." >&2
    exit 1
}
read -r guard <guard # files are not read by `cat`, which Ray's SIGTERM may end before it has said anything
while lives "$guard"; do sleep 1; done
if [ -s ended ]; then
    read -r status <ended
    exit "$status"
fi
echo "The pilot's guard was killed, so its machine is ended." >&2
read -r folder <folder || exit 1
end_all "$folder"
rm -rf "$folder"
exit 1

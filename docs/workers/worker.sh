#!/bin/sh
# A worker in POSIX shell, with curl and awk and nothing else: it carries one run to its end by five calls of the protocol.
#
#   WORKFLOWS_API_KEY=ezw_… ./worker.sh https://example.com/workflows default order 1 RUN_ID
#
# Arguments: the server, the app, the workflow and its revision, the run. The key needs the scope `worker`.
set -eu

server=${1%/}/v1/api app=$2 workflow=$3 revision=$4 run=$5
: "${WORKFLOWS_API_KEY:?put the key of this worker there}"

# What a step does: gets its name and its lease as JSON, prints its output as JSON. Put your own work here.
work() {
    printf '"%s was done by a shell"' "$1"
}

# post PATH BODY: the answer; the status goes to $status. The key goes in by a file descriptor, so that no list of processes shows it.
post() {
    answer=$(printf 'header = "Authorization: Bearer %s"\n' "$WORKFLOWS_API_KEY" |
        curl --silent --show-error --max-time 90 --config - --header 'Content-Type: application/json' --data "$2" --write-out '\n%{http_code}' "$server/$1")
    status=${answer##*
}
    answer=${answer%
*}
}

# first KEY: the first text of that key in the answer. A lease says its id, its step and its attempt before anything of a user's.
first() {
    printf '%s' "$answer" | awk -v key="\"$1\"" '{
        if (match($0, key "[ ]*:[ ]*\"[^\"]*\"")) {
            found = substr($0, RSTART, RLENGTH); sub(/"$/, "", found); sub(/^.*"/, "", found); print found; exit
        }
    }'
}

fail() {
    printf '%s: %s %s\n' "$1" "$status" "$answer" >&2
    exit 1
}

post workers/register "{\"worker\": \"shell-$$\", \"app\": \"$app\", \"concurrency\": 1, \"definitions\": []}"
[ "$status" = 200 ] || fail register
worker_id=$(first worker_id)

number=0
while :; do
    number=$((number + 1))
    post steps/claim "{\"worker_id\": \"$worker_id\", \"claim_id\": \"$$-$number\", \"max\": 1, \"wait_ms\": 20000, \"run\": \"$run\",
        \"serves\": [{\"name\": \"$workflow\", \"revision\": \"$revision\"}]}"
    if [ "$status" = 409 ] && [ "$(first code)" = run_terminal ]; then
        break
    fi
    [ "$status" = 200 ] || fail claim
    lease=$(first id)
    [ -n "$lease" ] || continue
    step=$(first step)
    given=$answer
    post "steps/$lease/started" '{}'
    [ "$status" = 200 ] || continue # refused: somebody else's now
    if output=$(work "$step" "$given"); then
        post "steps/$lease/complete" "{\"output\": $output}"
    else
        post "steps/$lease/fail" '{"class": "error", "message": "the command failed"}'
    fi
    printf '%s %s\n' "$step" "$status"
done
post "workers/$worker_id/leave" '{}'

#!/bin/sh
# Usage: loop.sh PK-BASH [OPTION]...
#
# Drives `pk-bash --loop` from a shell script: two FIFOs make it a coprocess, and
# jq makes and reads the objects. One request, one answer, in order.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkfifo "$dir/requests" "$dir/answers"
"$@" --loop <"$dir/requests" >"$dir/answers" &
exec 3>"$dir/requests" 4<"$dir/answers"

# ask REQUEST prints how it went.
ask() {
	printf '%s\n' "$1" >&3
	IFS= read -r answer <&4
	printf '%s' "$answer" |
		jq -r '"\(.id): \(.outcome) \(.exit_status // "-"): \(.error // .output // "" | rtrimstr("\n"))"'
}

ask '{"id": "uname", "command": "uname"}'
ask '{"id": "fails", "command": "exit 3"}'
ask '{"id": "slow", "command": "echo begun; sleep 60", "timeout": 1}'
ask '{"id": "bad"}'
# A job runs beside the commands that follow, until it is told to end.
ask '{"id": "start", "op": "start", "command": "until test -e go; do sleep 0.01; done; echo gone; sleep 60"}'
ask '{"id": "beside", "command": "touch go; echo beside it"}'
ask '{"id": "read", "op": "read", "job": "j1", "wait_ms": 60000}'
ask '{"id": "kill", "op": "kill", "job": "j1"}'

exec 3>&- # the end of input ends the loop
wait

#!/usr/bin/env bash
# Memory nodes and clients as processes over RDMA, with every answer checked. For a machine that has a device, or
# the guest: guest.sh run processes.sh FOLDER_OF_THE_PROGRAMS
set -euo pipefail

programs=$(cd "$1" && pwd)
work=$(mktemp -d)
node=0
trap '[ "$node" = 0 ] || kill -9 "$node" 2>/dev/null; rm -rf "$work"' EXIT
export FPCACHE_URL=rdma://127.0.0.1:7480
cli() { "$programs/fpcache-cli" "$@"; }
step() { printf '== %s\n' "$*"; }
fail() { printf 'failed: %s\n' "$*" >&2; exit 1; }

start() {
    "$programs/fpcache-memserver" --listen rdma://127.0.0.1:7480 --capacity 64MiB --data-dir "$work/data" --fsync always \
        >>"$work/node.log" 2>&1 &
    node=$!
    cli --wait 60s tables >/dev/null || { cat "$work/node.log" >&2; fail "the memory node does not serve"; }
}

step "devices"
cli devices

step "a data set by network cards, every answer checked"
"$programs/fpcache-eval" run --dataset ipv4:20k --system fpcache --transport rdma --lookups 1k 2>/dev/null
# Over Soft-RoCE the card counts packets: lookups that went over a socket send none.
for counter in /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; do
    [ ! -e "$counter" ] || [ "$(cat "$counter")" -gt 2000 ] || fail "the card sent $(cat "$counter") packets"
done

step "writes to a memory node with a data folder"
start

for key in $(seq 1 20); do cli put "$key" "$((key * 7))" >/dev/null || fail "put $key"; done
[ "$(cli count | tr -dc 0-9)" = 20 ] || fail "the count is $(cli count)"

step "a client that is killed while it reads leaves the memory node whole"
(while :; do cli scan 1 >/dev/null; done) 2>/dev/null &
reader=$!
sleep 1
kill -9 $reader
cli get 20 | grep -q 140 || fail "get 20 says $(cli get 20)"

step "a memory node that is killed comes back with every write"
kill -9 $node
wait $node 2>/dev/null || true
start
for key in $(seq 1 20); do
    cli get "$key" | grep -q "\b$((key * 7))\b" || fail "key $key: $(cli get "$key")"
done

step "a scan"
[ "$(cli scan 5 --limit 10 | wc -l)" -ge 10 ] || fail "the scan has $(cli scan 5 --limit 10)"

step "a clean end"
kill $node
wait $node || fail "the memory node ended with $?"
node=0
grep -H . /sys/class/infiniband/*/ports/1/hw_counters/completer_retry_err 2>/dev/null || true
step done

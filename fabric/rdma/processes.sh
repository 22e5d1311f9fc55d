#!/usr/bin/env bash
# Memory nodes and clients as processes over RDMA, with every answer checked. For a machine that has a device, or
# the guest: guest.sh run processes.sh FOLDER_OF_THE_PROGRAMS
set -euo pipefail

programs=$(cd "$1" && pwd)
work=$(mktemp -d)
node=0
second=0
trap '[ "$node" = 0 ] || kill -9 "$node" 2>/dev/null; [ "$second" = 0 ] || kill -9 "$second" 2>/dev/null; rm -rf "$work"' EXIT
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

step "what the card does, beside perftest"
"$programs/fpcache-eval" fabric --transport rdma --verb read,write,cas --bytes 64 --batch 1,16,64 2>/dev/null

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

step "a table over two memory nodes, many keys of both at once"
both=rdma://127.0.0.1:7480,rdma://127.0.0.1:7481
"$programs/fpcache-memserver" --listen rdma://127.0.0.1:7481 --capacity 64MiB >>"$work/second.log" 2>&1 &
second=$!
cli --url rdma://127.0.0.1:7481 --wait 60s tables >/dev/null || { cat "$work/second.log" >&2; fail "the second one does not serve"; }
cli create --table both --nodes "$both" --split-at 1000 >/dev/null || fail "create --nodes"
keys="1 2 3 999 1000 1001 5000"
for key in $keys; do cli put --table both "$key" "$((key * 3))" >/dev/null || fail "put $key"; done
# Unquoted: several keys, which share their round trips.
cli get --table both $keys >"$work/got" || fail "multi_get says $(cat "$work/got")"
for key in $keys; do
    grep -q "\b$((key * 3))\b" "$work/got" || fail "key $key is not among $(cat "$work/got")"
done
[ "$(cli scan --table both 999 --limit 3 | grep -c "2997\|3000\|3003")" = 3 ] || fail "the scan has $(cli scan --table both 999 --limit 3)"

step "one of them is killed: the other's keys are read, and its own are said to be lost in time"
kill -9 $second
wait $second 2>/dev/null || true
second=0
cli get --table both 3 | grep -q "\b9\b" || fail "get 3 says $(cli get --table both 3)"
began=$(date +%s)
! cli --deadline 5s get --table both 5000 >/dev/null 2>&1 || fail "get 5000 of a memory node that was killed succeeded"
[ $(($(date +%s) - began)) -le 30 ] || fail "it took $(($(date +%s) - began)) s to say so"

step "a clean end"
kill $node
wait $node || fail "the memory node ended with $?"
node=0
grep -H . /sys/class/infiniband/*/ports/1/hw_counters/completer_retry_err 2>/dev/null || true
step done

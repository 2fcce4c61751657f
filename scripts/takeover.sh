#!/bin/sh
# Measures takeovers on a store of yours: how long after the primary's crash, and after it was asked to go, the next node
# leads. Three nodes on this machine elect in a service of their own; times are read from what they log.
set -eu

usage="usage: $0 STORE TTL ROUNDS [manage's options…], with a TTL in whole seconds, like 10s"
[ $# -ge 3 ] || { echo "$usage" >&2; exit 2; }
store=$1 ttl=$2 rounds=$3
shift 3
bellwether=${BELLWETHER:-$(dirname "$0")/../target/release/bellwether}
base=${BASE_PORT:-14000}
folder=$(mktemp -d)
service=takeover-$$

start() { # NODE [OPTIONS]
    node=$1
    shift
    "$bellwether" manage -H "127.0.0.1:$((base + node))" --admin "127.0.0.1:$((base + 100 + node))" --replication \
        --advertise "127.0.0.1:$((base + node))" --replication-ttl "$ttl" --service "$service" "$@" "$store" 2>>"$folder/log.$node" &
    echo $! >"$folder/pid.$node"
}

cleanup() {
    for node in 1 2 3; do kill "$(cat "$folder/pid.$node")" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

role() { curl -s "http://127.0.0.1:$((base + $1))/_bellwether/status" | sed 's/.*"role": *"\([a-z-]*\)".*/\1/'; }

# Waits until one node is primary and the others follow it, and says which.
settled() {
    while :; do
        primary= following=0
        for node in 1 2 3; do
            case "$(role $node)" in
                primary) primary=$node ;;
                replica) following=$((following + 1)) ;;
            esac
        done
        if [ -n "$primary" ] && [ $following = 2 ]; then
            echo "$primary"
            return
        fi
        sleep 0.2
    done
}

# When, in seconds of the day, a node last logged these words.
logged() { # WORDS FILE…
    words=$1
    shift
    cat "$@" | grep "$words" | sort | tail -n 1 | sed 's/^[^T]*T\([0-9:.]*\)Z.*/\1/' | awk -F: '{ printf "%.6f\n", $1 * 3600 + $2 * 60 + $3 }'
}

measure() { # crash|planned
    primary=$(settled)
    # Whoever resigned stands aside for a TTL; and a crash comes at any moment between two renewals.
    sleep "$ttl"
    sleep "$(awk -v seed="$(date +%N)" 'BEGIN { srand(seed); printf "%.2f", 3 * rand() }')"
    if [ "$1" = crash ]; then
        begun=$(date -u +%H:%M:%S.%N | awk -F: '{ printf "%.6f\n", $1 * 3600 + $2 * 60 + $3 }')
        kill -9 "$(cat "$folder/pid.$primary")"
    else
        curl -s -X POST "http://127.0.0.1:$((base + 100 + primary))/_bellwether/resign" >/dev/null
        begun=$(logged "stepping down" "$folder"/log.*)
    fi
    until ended=$(logged "leadership acquired" "$folder"/log.*) && awk "BEGIN { exit !($ended > $begun) }"; do sleep 0.2; done
    awk "BEGIN { printf \"%.0f\n\", ($ended - $begun) * 1000 }" >>"$folder/$1"
    if [ "$1" = crash ]; then
        wait "$(cat "$folder/pid.$primary")" 2>/dev/null || true
        shift
        start "$primary" "$@"
    fi
}

for node in 1 2 3; do start $node "$@"; done
for kind in planned crash; do
    round=0
    while [ $round -lt "$rounds" ]; do
        measure $kind "$@"
        round=$((round + 1))
    done
    sort -n "$folder/$kind" | awk -v kind="$kind" \
        '{ all[NR] = $1 } END { printf "%s: median %d ms, worst of %d %d ms\n", kind, (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2, NR, all[NR] }'
done

#!/usr/bin/env bash
# The local cluster: three nodes on this machine, each a controller and a broker, six processes in all.
# Called by the Makefile, which documents the commands. Law: a process is ended by its pid file and by nothing else.
# HOSTS="ip=namespace ip=namespace ip=namespace" makes each node a host of its own, in a network namespace that is there already.
set -euo pipefail

NODES=(1 2 3)
here=$(cd "$(dirname "$0")" && pwd)
CLUSTER_DIR=$(realpath -m "${CLUSTER_DIR:-.cluster}")
BIN_DIR=$(realpath -m "${BIN_DIR:-target/release}")
# The cluster's own port base, fixed when it was made, wins over whatever this call says.
asked_port_base=${PORT_BASE:-9092}
if [ -f "$CLUSTER_DIR/port_base" ]; then PORT_BASE=$(cat "$CLUSTER_DIR/port_base"); else PORT_BASE=$asked_port_base; fi

HOSTS=${HOSTS:-}
[ ! -f "$CLUSTER_DIR/hosts" ] || HOSTS=$(cat "$CLUSTER_DIR/hosts")
host() { local entry=($HOSTS); entry=${entry[$1 - 1]:-127.0.0.1}; echo "${entry%%=*}"; }
# What a node's programs are started by: nothing, or the entry into its namespace.
enter() { local entry=($HOSTS); [ -z "$HOSTS" ] || echo "ip netns exec ${entry[$1 - 1]#*=}"; }

die() { printf '%s\n' "$*" >&2; exit 1; }
# How to call make so that it means this cluster and these programs: what is not as usual must be said each time.
vars=''
[ "$CLUSTER_DIR" = "$(realpath -m .cluster)" ] || vars+=" CLUSTER_DIR=$CLUSTER_DIR"
[ "$PORT_BASE" = 9092 ] || vars+=" PORT_BASE=$PORT_BASE"
[ "$BIN_DIR" = "$(realpath -m "${CARGO_TARGET_DIR:-target}/release")" ] || vars+=" BIN_DIR=$BIN_DIR"
[[ "$PORT_BASE" =~ ^[1-9][0-9]{0,4}$ ]] && [ "$PORT_BASE" -le 65493 ] || die "PORT_BASE=$PORT_BASE is no port from 1 to 65493"
client_port() { echo $((PORT_BASE + $1 - 1)); }
internal_port() { echo $((PORT_BASE + 10 + $1 - 1)); }
http_port() { echo $((PORT_BASE + 20 + $1 - 1)); }
quorum_port() { echo $((PORT_BASE + 30 + $1 - 1)); }
admin_port() { echo $((PORT_BASE + 40 + $1 - 1)); }
home() { echo "$CLUSTER_DIR/$1-$2"; }
# Brokers that were added to the three nodes: they have no controller beside them.
added() { local dir; for dir in "$CLUSTER_DIR"/broker-[4-9]; do [ ! -d "$dir" ] || echo "${dir##*-}"; done; }
# Every process of the cluster as `role id`, controllers first.
members() { local n; for n in "${NODES[@]}"; do echo "controller $n"; done; for n in "${NODES[@]}" $(added); do echo "broker $n"; done; }
set_hint() { [ ! -s "$CLUSTER_DIR/set" ] || echo " (settings come from SET=\"$(cat "$CLUSTER_DIR/set")\": 'make up$vars SET=' takes them away, another SET replaces them)"; }

bootstrap() { local n out=; for n in "${NODES[@]}"; do out+=",$(host "$n"):$(client_port "$n")"; done; echo "${out:1}"; }
admins() { local n out=; for n in "${NODES[@]}"; do out+=",http://$(host "$n"):$(admin_port "$n")"; done; echo "${out:1}"; }
voters() { local n out=; for n in "${NODES[@]}"; do out+=",$n@$(host "$n"):$(quorum_port "$n")"; done; echo "${out:1}"; }

# The pid of a running process of ours, or nothing. A number that now belongs to another program does not count.
running() {
    local dir pid; dir=$(home "$1" "$2")
    [ -f "$dir/pid" ] || return 1
    pid=$(cat "$dir/pid")
    [ -r "/proc/$pid/cmdline" ] || return 1
    # It may end at any moment; then there is nothing to read, and nothing to complain of.
    { tr '\0' '\n' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qxF "$dir/$1.properties" || return 1
    grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null && return 1
    echo "$pid"
}

# Whether a process of ours runs and is stopped by a signal.
paused() { # role id
    local pid
    pid=$(running "$1" "$2") || return 1
    grep -qsE '^State:[[:space:]]*[Tt]' "/proc/$pid/status"
}
# What runs and is paused, a line each, with what makes it go on.
tell_what_is_paused() {
    local role n
    while read -r role n; do
        ! paused "$role" "$n" || echo "$role $n is paused: 'make resume-$role ID=$n$vars' lets it go on"
    done < <(members)
}

# Whether nothing of a process is left. One that dies loses its command line while it still holds its files and their locks, and its
# first thread may be dead before the others.
ended() { # role id
    local pid
    ! running "$1" "$2" >/dev/null || return 1
    pid=$(cat "$(home "$1" "$2")/pid" 2>/dev/null) || return 0
    if grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"; then [ "$(ls "/proc/$pid/task" 2>/dev/null | wc -l)" -le 1 ]
    else [ ! -e "/proc/$pid" ] || [ -n "$({ tr -d '\0' <"/proc/$pid/cmdline"; } 2>/dev/null)" ]; fi
}

await_exit() { # role id seconds
    local deadline=$((SECONDS + $3))
    until ended "$1" "$2"; do
        [ $SECONDS -lt $deadline ] || return 1
        sleep 0.02
    done
}

listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; } # host port

http_get() { # host port path
    local status
    exec 3<>"/dev/tcp/$1/$2" 2>/dev/null || return 1
    printf 'GET %s HTTP/1.0\r\nHost: %s:%s\r\nConnection: close\r\n\r\n' "$3" "$1" "$2" >&3
    timeout 3 cat <&3 || { exec 3>&-; return 1; }
    exec 3>&-
}

render() { # role id
    local role=$1 n=$2 dir file key
    dir=$(home "$role" "$n"); file="$dir/$role.properties"
    mkdir -p "$dir"
    sed -e "s|@NODE_ID@|$n|g" -e "s|@HOST@|$(host "$n")|g" -e "s|@DATA_DIR@|$dir/data|g" \
        -e "s|@CLIENT_PORT@|$(client_port "$n")|g" -e "s|@INTERNAL_PORT@|$(internal_port "$n")|g" \
        -e "s|@HTTP_PORT@|$(http_port "$n")|g" -e "s|@QUORUM_PORT@|$(quorum_port "$n")|g" \
        -e "s|@ADMIN_PORT@|$(admin_port "$n")|g" -e "s|@VOTERS@|$(voters)|g" \
        "$here/config/$role.properties" >"$file.tmp"
    if [ -s "$CLUSTER_DIR/set" ]; then
        local word
        for word in $(cat "$CLUSTER_DIR/set"); do
            key=${word%%=*}
            grep -vE "^${key//./\\.}=" "$file.tmp" >"$file.tmp2" || true
            printf '%s\n' "$word" >>"$file.tmp2"
            mv "$file.tmp2" "$file.tmp"
        done
    fi
    mv "$file.tmp" "$file"
}

format() { # role id
    local dir said; dir=$(home "$1" "$2")
    [ -x "$BIN_DIR/kuorum-$1" ] || die "there is no $BIN_DIR/kuorum-$1: run 'make build' once"
    said=$("$BIN_DIR/kuorum-$1" format --config "$dir/$1.properties" "--cluster-id=$(cat "$CLUSTER_DIR/cluster_id")" 2>&1) ||
        die "could not format $1 $2: $said$(set_hint)"
    printf '%s %s\n' "$(date -u +%FT%T.%6NZ)" "$said" >>"$dir/log"
}

start_one() { # role id
    local role=$1 n=$2 dir port
    dir=$(home "$role" "$n")
    # What programs of the chaos build keep there (docs/testing.md); others do not look.
    if [ -d "$dir/chaos" ]; then export KUORUM_CHAOS_DIR="$dir/chaos"; else unset KUORUM_CHAOS_DIR; fi
    [ -f "$dir/$role.properties" ] || die "there is no $role $n in $CLUSTER_DIR: run 'make up$vars' first"
    ! paused "$role" "$n" || die "$role $n runs and is paused: 'make resume-$role ID=$n$vars' lets it go on"
    running "$role" "$n" >/dev/null && { echo "$role $n already runs (pid $(cat "$dir/pid"))"; return 0; }
    [ -x "$BIN_DIR/kuorum-$role" ] || die "there is no $BIN_DIR/kuorum-$role: run 'make up' once, it builds"
    # shellcheck disable=SC2046 # nothing, or words
    setsid $(enter "$n") "$BIN_DIR/kuorum-$role" run --config "$dir/$role.properties" >>"$dir/log" 2>&1 </dev/null &
    local pid=$!
    echo "$pid" >"$dir/pid"
    # Until it has become the program, its command line is still this script's.
    while [ -r "/proc/$pid/cmdline" ] && ! running "$role" "$n" >/dev/null && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.01; done
}

did_not_start() { # role id
    tail -n 3 "$(home "$1" "$2")/log" >&2
    die "$1 $2 did not start$(set_hint)"
}

await_bound() { # role id
    local role=$1 n=$2 ports port deadline=$((SECONDS + 10))
    if [ "$role" = broker ]; then ports="$(client_port "$n") $(internal_port "$n") $(http_port "$n")"
    else ports="$(quorum_port "$n") $(admin_port "$n")"; fi
    for port in $ports; do
        until listens "$(host "$n")" "$port"; do
            running "$role" "$n" >/dev/null || did_not_start "$role" "$n"
            [ $SECONDS -lt $deadline ] || die "$role $n did not bind port $port in 10 s: see $(home "$role" "$n")/log"
            sleep 0.02
        done
    done
    # Somebody else may hold the port: then ours has ended, or is about to.
    running "$role" "$n" >/dev/null || did_not_start "$role" "$n"
}

stop_one() { # role id
    local pid
    pid=$(running "$1" "$2") || return 0
    kill -CONT "$pid" 2>/dev/null || true
    kill -TERM "$pid" 2>/dev/null || true
    await_exit "$1" "$2" 60 || die "$1 $2 (pid $pid) has not stopped within 60 s"
}

stop_or_say() { # role id
    if running "$1" "$2" >/dev/null; then stop_one "$1" "$2"; else echo "$1 $2 does not run"; fi
}

signal_one() { # signal role id
    local pid
    pid=$(running "$2" "$3") || die "$2 $3 does not run"
    kill "-$1" "$pid"
}

kill_all() { # role id, as often as you like: all at the same moment
    local victims=("$@") pid pids=()
    while [ $# -gt 0 ]; do
        pid=$(running "$1" "${2:-}") || die "$1 ${2:-} does not run"
        pids+=("$pid"); shift 2
    done
    kill -KILL "${pids[@]}"
    set -- "${victims[@]}"
    while [ $# -gt 0 ]; do
        await_exit "$1" "$2" 10 || die "$1 $2 is still there 10 s after SIGKILL"
        shift 2
    done
}

each() { # function, then for both roles of a node or for one role
    local verb=$1 what=$2 n=$3
    case $what in
        node) "$verb" controller "$n"; "$verb" broker "$n" ;;
        *) "$verb" "$what" "$n" ;;
    esac
}

# How many brokers the active controller calls active, and whether it calls the cluster healthy.
cluster_is_healthy() {
    local n body
    for n in "${NODES[@]}"; do
        body=$(http_get "$(host "$n")" "$(admin_port "$n")" /api/v1/cluster/health 2>/dev/null | tr -d ' \r\n') || continue
        case $body in *'"healthy":true'*) ;; *) continue ;; esac
        body=$(http_get "$(host "$n")" "$(admin_port "$n")" /api/v1/brokers 2>/dev/null | tr -d ' \r\n') || continue
        [ "$(grep -o '"state":"active"' <<<"$body" | wc -l)" -ge "$(members | grep -c broker)" ] && return 0
    done
    return 1
}

# Ports that the kernel may give to anybody's outgoing connections are sometimes taken when a process is to bind them.
warn_of_ephemeral_ports() {
    local low high last=$((PORT_BASE + 42))
    [ -z "$HOSTS" ] && read -r low high 2>/dev/null </proc/sys/net/ipv4/ip_local_port_range || return 0
    [ "$last" -lt "$low" ] || [ "$PORT_BASE" -gt "$high" ] ||
        echo "warning: of the ports $PORT_BASE to $last some lie in $low to $high, from where this machine takes ports for outgoing connections: one may be taken when a process starts. A PORT_BASE up to $((low - 43)) avoids that" >&2
}

# What a failed `up` leaves behind.
tell_what_runs() {
    local role n count=0
    while read -r role n; do running "$role" "$n" >/dev/null && count=$((count + 1)); done < <(members)
    [ $count = 0 ] || echo "$count process(es) of the cluster in $CLUSTER_DIR run: 'make down$vars' stops them, 'make up$vars' tries again" >&2
}

up() {
    local n role fresh='' started='' asleep
    if [ -f "$CLUSTER_DIR/cluster_id" ]; then
        [ "$asked_port_base" = 9092 ] || [ "$asked_port_base" = "$PORT_BASE" ] ||
            die "the cluster in $CLUSTER_DIR was made with PORT_BASE=$PORT_BASE and keeps it: 'make clean$vars' first, or choose another CLUSTER_DIR"
    else
        fresh=yes
        mkdir -p "$CLUSTER_DIR"
        echo "$PORT_BASE" >"$CLUSTER_DIR/port_base"
        [ -z "$HOSTS" ] || printf '%s\n' "$HOSTS" >"$CLUSTER_DIR/hosts"
        head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c1-22 >"$CLUSTER_DIR/cluster_id"
    fi
    if [ -n "${SET:-}" ]; then printf '%s\n' "$SET" >"$CLUSTER_DIR/set"
    elif [ -n "${SET_CLEARED:-}" ]; then rm -f "$CLUSTER_DIR/set"; fi
    warn_of_ephemeral_ports
    # A paused process would be waited for in vain.
    asleep=$(tell_what_is_paused)
    [ -z "$asleep" ] || die "$asleep"
    trap '[ $? = 0 ] || tell_what_runs' EXIT
    # Not in a pipe: `die` ends all of it.
    while read -r role n; do
        running "$role" "$n" >/dev/null && continue
        render "$role" "$n"
        [ -d "$(home "$role" "$n")/data" ] || format "$role" "$n"
    done < <(members)
    while read -r role n; do running "$role" "$n" >/dev/null || { start_one "$role" "$n"; started=yes; }; done < <(members)
    while read -r role n; do await_bound "$role" "$n"; done < <(members)
    local deadline=$((SECONDS + 60))
    until cluster_is_healthy; do
        [ $SECONDS -lt $deadline ] || die "the cluster is not healthy after 60 s: 'make status$vars' and 'make logs$vars' say more"
        sleep 0.05
    done
    while read -r role n; do await_bound "$role" "$n"; done < <(members)
    trap - EXIT
    if [ -n "$fresh" ]; then echo "A new cluster in $CLUSTER_DIR is up."
    elif [ -n "$started" ]; then echo "The cluster in $CLUSTER_DIR is up again."
    else
        echo "The cluster in $CLUSTER_DIR was up already."
        [ -z "${SET:-}${SET_CLEARED:-}" ] || echo "SET is noted: it takes effect after 'make down$vars' and 'make up$vars'."
    fi
    # What `kuorum` takes for granted is the usual ports.
    local where=''
    [ "$PORT_BASE" = 9092 ] || where="  export KUORUM_BOOTSTRAP=$(bootstrap) KUORUM_ADMIN=$(admins)"$'\n'
    cat <<TXT

  Kafka clients:  $(bootstrap)
  Admin API:      $(admins)

Try next:
$where  $BIN_DIR/kuorum topics create payments --partitions 3
  echo 'user_10|{"amount": 50000}' | $BIN_DIR/kuorum produce -t payments -k '|'
  $BIN_DIR/kuorum consume -t payments -e
  make kill-broker ID=1$vars      # then produce and consume again
  make start-broker ID=1$vars
  make status$vars
TXT
}

add() { # broker id
    [ ! -d "$(home broker "$1")" ] || die "broker $1 was added already: 'make start-broker ID=$1$vars' starts it"
    render broker "$1"; format broker "$1"; start_one broker "$1"; await_bound broker "$1"
    echo "Broker $1 is up. Nothing lies on it yet: kuorum reassignments plan --topics … --brokers …"
}

status() {
    local n role pid state health
    [ -f "$CLUSTER_DIR/port_base" ] || { echo "There is no cluster in $CLUSTER_DIR: 'make up$vars' makes one."; return 0; }
    printf '%-6s %-12s %-10s %-8s %s\n' node process state pid addresses
    while read -r n role; do
        if pid=$(running "$role" "$n"); then
            state=running
            ! paused "$role" "$n" || state=paused
        else pid=-; state=stopped; fi
        if [ "$role" = broker ]; then printf '%-6s %-12s %-10s %-8s %s\n' "$n" "$role" $state "$pid" "clients $(host "$n"):$(client_port "$n"), http $(http_port "$n")"
        else printf '%-6s %-12s %-10s %-8s %s\n' "$n" "$role" $state "$pid" "quorum $(host "$n"):$(quorum_port "$n"), admin $(admin_port "$n")"; fi
    done < <(members | awk '{ print $2, ($1 == "broker" ? "2" : "1"), $1 }' | sort -s -k1,1n -k2,2n | awk '{ print $1, $3 }')
    echo
    for n in "${NODES[@]}"; do
        if running controller "$n" >/dev/null && health=$(http_get "$(host "$n")" "$(admin_port "$n")" /api/v1/cluster/health 2>/dev/null | tr -d '\r' | sed '1,/^$/d') && [ -n "$health" ]; then
            if [ -x "$BIN_DIR/kuorum" ]; then
                # Code 4 says that the cluster is not healthy; so do its words.
                "$BIN_DIR/kuorum" --admin "$(admins)" --timeout 10 status || true
            else
                # A reason a line, as it comes.
                echo "health: ${health//,\{\"code\"/,$'\n'  \{\"code\"}"
            fi
            return 0
        fi
    done
    echo "health: unknown, no controller answers"
}

logs() {
    local n role
    [ -f "$CLUSTER_DIR/port_base" ] || die "there is no cluster in $CLUSTER_DIR"
    # A line without a time belongs to the one before it.
    for n in "${NODES[@]}" $(added); do for role in controller broker; do
        [ ! -f "$(home $role "$n")/log" ] || awk -v who="$role-$n" '
            /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T/ { at = $1; sub(/^[^ ]+ /, "") }
            { print at, who, $0 }' "$(home $role "$n")/log"
    done; done | sort -s -k1,1
}

command=${1:-}; what=${2:-}; id=${3:-}
case $command in kill|stop|start|pause|resume|wipe|add)
    [[ "$what" =~ ^(broker|controller|node)$ ]] || die "$command what? Say broker, controller or node"
    if [ $command = add ]; then { [ "$what" = broker ] && [[ "$id" =~ ^[4-9]$ ]]; } || die "ID=$id cannot be added: a local cluster takes brokers up to 9, so say ID=4 to ID=9"
    else [[ "$id" =~ ^[1-3]$ ]] || { [ "$what" = broker ] && [ -n "$id" ] && grep -qx "$id" <<<"$(added)"; } || {
        ids=("${NODES[@]}"); [ "$what" != broker ] || ids+=($(added))
        list=$(printf ', ID=%s' "${ids[@]:0:${#ids[@]}-1}"); die "which $what?${id:+ There is no $what $id.} Say ${list:2} or ID=${ids[-1]}"; }; fi
    [ -f "$CLUSTER_DIR/port_base" ] || die "there is no cluster in $CLUSTER_DIR: run 'make up$vars' first" ;;
esac
case $command in
    up) up ;;
    add) add "$id" ;;
    down) for n in "${NODES[@]}" $(added); do stop_one broker "$n" & done; wait; for n in "${NODES[@]}"; do stop_one controller "$n"; done ;;
    clean) for n in "${NODES[@]}" $(added); do for r in broker controller; do running $r "$n" >/dev/null && kill_all $r "$n"; done; done
           [ ! -e "$CLUSTER_DIR" ] || [ -f "$CLUSTER_DIR/port_base" ] || [ -z "$(ls -A "$CLUSTER_DIR")" ] || die "$CLUSTER_DIR is not a cluster directory: left alone"
           rm -rf "$CLUSTER_DIR" ;;
    status) status ;;
    logs) logs ;;
    env) printf 'KUORUM_BOOTSTRAP=%s\nKUORUM_ADMIN=%s\n' "$(bootstrap)" "$(admins)" ;;
    variables) printf '%s\n' "$vars" ;;
    kill) case $what in node) kill_all controller "$id" broker "$id" ;; *) kill_all "${@:2}" ;; esac ;;
    stop) each stop_or_say "$what" "$id" ;;
    start) each start_one "$what" "$id"; each await_bound "$what" "$id" ;;
    pause) case $what in node) signal_one STOP controller "$id"; signal_one STOP broker "$id" ;; *) signal_one STOP "$what" "$id" ;; esac ;;
    resume) case $what in node) signal_one CONT controller "$id"; signal_one CONT broker "$id" ;; *) signal_one CONT "$what" "$id" ;; esac ;;
    wipe) [ "$what" = broker ] || die "only a broker's data can be wiped: what a controller agreed to must not be forgotten"
          running broker "$id" >/dev/null && die "broker $id runs: 'make stop-broker ID=$id$vars' or 'make kill-broker ID=$id$vars' first"
          rm -rf "$(home broker "$id")/data"; format broker "$id" ;;
    *) die "usage: cluster.sh up|down|clean|status|logs|env|kill|stop|start|pause|resume|wipe|add [broker|controller|node ID]" ;;
esac

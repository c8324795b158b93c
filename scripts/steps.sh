# shellcheck shell=bash
# Sourced by ./test after scripts/setup.sh: runs steps one after the other, none for longer than its limit, and leaves
# nothing of them behind but what they build.
#
# All that a step starts has the step's mark in its environment, and is found by it wherever it went: daemons leave
# their parent, its group and its session. All that a step makes for a while lies in two directories of its own, one
# of them in memory, so what is mounted there and the loop devices of its files are the step's as well.

# The time for all steps together, in seconds since the script began. What each may take itself goes with it.
steps_minutes=${ANTEROS_TEST_MINUTES:-80}
steps_seconds_max=$((steps_minutes * 60))

# How long what a step has started may take to end by itself, then when it is asked to, then when it is killed.
patience_seconds=${ANTEROS_TEST_PATIENCE:-10}

failed=()
warned=()
step_mark=
step_session=
step_alarm=
step_places=()

# A shell that was started in the background, or by nohup, ignores signals, and so would all that tests start: they
# wait for what ^C does.
heeding=(env)
! env --default-signal=INT true 2>/dev/null || heeding+=(--default-signal=INT,QUIT,HUP,TERM)

# The processes of the step: those that have its mark, and those of its session, as sudo takes the mark away.
step_processes() {
    {
        grep -lsxz "ANTEROS_STEP=$step_mark" /proc/[0-9]*/environ
        grep -lsE "^[0-9]+ \(.*\) [^ZX] [0-9]+ [0-9]+ ${step_session:-none} " /proc/[0-9]*/stat
    } | cut -d/ -f3 | sort -nu
}

# Waits until the step has no process, but not for long.
step_is_over() {
    local tenths
    for ((tenths = patience_seconds * 10; tenths > 0; tenths--)); do
        [ -n "$(step_processes)" ] || return 0
        sleep 0.1
    done
    return 1
}

# Says of each process of the step what it is and what its threads are called: those of tests have the tests' names.
tell_processes() {
    local pid
    for pid in $(step_processes); do
        printf '   process %s, %s: %s\n' "$pid" "$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status")" \
            "$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c 1-160)"
        printf '      threads: %s\n' "$(cat "/proc/$pid"/task/*/comm | sort -u | head -n 20 | paste -sd ' ')"
    done 2>/dev/null
}

# Ends the processes of the step: they are asked first, as some have something to set back.
end_processes() {
    local signal pid
    for signal in TERM KILL; do
        for pid in $(step_processes); do
            kill "-$signal" "$pid" 2>/dev/null || as_root kill "-$signal" "$pid" 2>/dev/null
        done
        step_is_over && return
        # Who waits for a dead file system cannot be killed as long as there is hope for an answer.
        [ "$signal" = TERM ] || unmount_places
    done
    step_is_over && return
    echo '== these could not be killed:'
    tell_processes
}

# The mounts in the places of the step, the last one first, each with its device number.
step_mounts() {
    local device place dir
    while read -r _ _ device _ place _; do
        for dir in "${step_places[@]}"; do
            case $place in "$dir"/*) printf '%s %b\n' "$device" "$place" ;; esac
        done
    done </proc/self/mountinfo | tac
}

# Unmounts what is mounted in the places of the step, lazily, having told FUSE that no answer will come.
unmount_places() {
    local device place
    step_mounts | while read -r device place; do
        echo "== unmounting $place"
        { echo 1 >"/sys/fs/fuse/connections/${device#0:}/abort"; } 2>/dev/null
        timeout 20 umount --no-canonicalize --lazy "$place" 2>/dev/null ||
            timeout 20 fusermount3 -quz "$place" 2>/dev/null ||
            as_root timeout 20 umount --no-canonicalize --lazy "$place"
    done
}

# Gives loop devices back that have files of the step behind them.
detach_loops() {
    local backing file dir name
    for backing in /sys/block/loop*/loop/backing_file; do
        file=$(cat "$backing" 2>/dev/null) || continue
        for dir in "${step_places[@]}"; do
            case $file in "$dir"/*) ;; *) continue ;; esac
            name=${backing#/sys/block/}
            echo "== detaching /dev/${name%%/*}"
            losetup --detach "/dev/${name%%/*}"
        done
    done
}

# Takes away what the step has left.
clean_up_step() {
    [ -n "$step_mark" ] || return
    kill "$step_alarm" 2>/dev/null
    end_processes
    unmount_places
    detach_loops
    [ ${#step_places[@]} = 0 ] || rm -rf --one-file-system "${step_places[@]}"
    step_mark='' step_session=''
}

# Gives the step places that everybody may use, as /tmp and /dev/shm are.
make_places() {
    step_places=("$(mktemp -d "${TMPDIR:-/tmp}/anteros-test.XXXXXX")") || return
    [ ! -w /dev/shm ] || step_places+=("$(mktemp -d /dev/shm/anteros-test.XXXXXX)")
    chmod 1777 "${step_places[@]}"
}

# Runs a command as a step and gives its status; 124 when it took too long: limited SECONDS COMMAND...
limited() {
    local limit=$1 status && shift
    make_places || return
    step_mark=$$.$RANDOM.$SECONDS
    "${heeding[@]}" "ANTEROS_STEP=$step_mark" "TMPDIR=${step_places[0]}" \
        "ANTEROS_MEMORY=${step_places[1]-/dev/shm}" setsid "$@" </dev/null &
    step_session=$!
    sleep "$limit" </dev/null >/dev/null 2>&1 &
    step_alarm=$!
    wait -n "$step_session" "$step_alarm"
    status=$?
    if ! kill -0 "$step_alarm" 2>/dev/null; then
        status=124
        echo "== it hangs, after $limit s:"
        tell_processes
    elif ! step_is_over; then
        echo '== it left processes behind:'
        tell_processes
    fi
    clean_up_step
    return "$status"
}

# Runs one step, at most as long as it may, and tells how long it took: step NAME SECONDS COMMAND...; the seconds are
# those of 80 minutes for all.
#
# With only_warns=yes its failure is told and counts for nothing.
step() {
    local name=$1 limit=$2 start=$SECONDS verdict=passed status=0 left=$((steps_seconds_max - SECONDS)) && shift 2
    printf '\n== %s: %s\n' "$name" "$*"
    if [ "$left" -le 0 ]; then
        echo "== no time is left: all steps together may take $((steps_seconds_max / 60)) minutes"
        status=124
    else
        limit=$((limit * steps_minutes / 80))
        limited $((limit < left ? limit : left)) "$@" || status=$?
    fi
    if [ "$status" != 0 ] && [ "${only_warns-}" = yes ]; then
        verdict='failed, which only warns,' && warned+=("$name")
    elif [ "$status" != 0 ]; then
        verdict=FAILED && failed+=("$name")
    fi
    printf '== %s: %s in %d s\n' "$name" "$verdict" $((SECONDS - start))
    [ "$status" = 0 ]
}

# Ends the step that runs, and then the script.
interrupted() {
    trap '' INT TERM HUP
    printf '\n== interrupted\n'
    patience_seconds=2 clean_up_step
    exit "$1"
}
trap 'interrupted 129' HUP
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

# Says how it went and gives the status to end with.
verdict() {
    local list
    list() { printf '%s, ' "$@" | sed 's/, $//'; }
    [ ${#warned[@]} = 0 ] || printf '\nOnly a warning: %s\n' "$(list "${warned[@]}")"
    if [ ${#failed[@]} = 0 ]; then
        printf '\nAll passed in %d s.\n' "$SECONDS"
    else
        printf '\nFAILED in %d s: %s\n' "$SECONDS" "$(list "${failed[@]}")"
        return 1
    fi
}

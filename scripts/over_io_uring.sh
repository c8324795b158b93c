#!/usr/bin/env bash
# Runs a command while the kernel offers FUSE over io_uring (Linux 6.14): scripts/over_io_uring.sh COMMAND...
#
# That is off by default, for root to change, and a setting of the whole machine: it is said when it is switched on and
# when it is set back, which happens at the end, whether the command fails or somebody interrupts it. Of several that
# run at once, the last sets it back. Programs that mount meanwhile may use io_uring; mounts keep what they began with.
#
# Where the kernel does not have it or we may not, that is said, and the command is not run; with
# ANTEROS_REQUIRE_JUDGES=1 it is a failure.
set -uo pipefail

setting=${ANTEROS_URING_SETTING:-/sys/module/fuse/parameters/enable_uring}
say() { printf 'over io_uring: %s\n' "$*" >&2; }

[ -r "$setting" ] && [ -w "$setting" ] || {
    echo "MISSING JUDGE: $setting; nothing was tested over io_uring" >&2
    [ -z "${ANTEROS_REQUIRE_JUDGES-}" ]
    exit
}

# Whoever has it on for a while shares a lock of the setting, so nobody takes it for the machine's own choice.
exec 9<"$setting"
if flock --exclusive --nonblock 9; then
    before=$(cat "$setting")
    case $before in
    Y | 1) flock --unlock 9 ;;
    *)
        say "switching $setting on for the whole machine until this ends; it was $before"
        echo Y >"$setting" || exit
        ;;
    esac
else
    before=N
fi
case $before in Y | 1) ;; *) flock --shared 9 ;; esac

child=
set_back() {
    trap '' HUP INT TERM
    [ -z "$child" ] || kill "$child" 2>/dev/null
    case $before in Y | 1) return ;; esac
    # As long as others have it on, it is theirs to set back.
    flock --exclusive --nonblock 9 || return
    echo "$before" >"$setting" && say "$setting is $before again"
}
trap set_back EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# In the background, as a shell heeds no signal before its command in the foreground ends; there it would ignore ^C.
env --default-signal=INT,QUIT "$@" 9<&- &
child=$!
wait "$child"
status=$?
child=
exit "$status"

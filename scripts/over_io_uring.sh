#!/usr/bin/env bash
# Runs a command while the kernel offers FUSE over io_uring (Linux 6.14), which is off by default and for root to
# change: scripts/over_io_uring.sh COMMAND...
#
# Where the kernel does not have it or we may not, that is said, and the command is not run; with
# ANTEROS_REQUIRE_JUDGES=1 it is a failure.
set -uo pipefail

setting=/sys/module/fuse/parameters/enable_uring
before=$(cat "$setting" 2>/dev/null) && [ -w "$setting" ] || {
    echo "MISSING JUDGE: $setting; nothing was tested over io_uring" >&2
    [ -z "${ANTEROS_REQUIRE_JUDGES-}" ]
    exit
}
trap 'echo "$before" >"$setting"' EXIT
echo Y >"$setting"
"$@"

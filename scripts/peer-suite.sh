#!/usr/bin/env bash
# Runs the test suite of erofs-utils with anteros in place of its programs: peer-suite.sh CHECKOUT [NUMBER]...
#
# CHECKOUT is the branch experimental-tests of erofs-utils. Needs root, FUSE, a C compiler, attr, and liblz4 with its
# headers for the test 007. Each test runs with the kernel's file system and with erofsfuse; those that fail leave
# what they said in CHECKOUT/tests/results. ANTEROS names the program, target/release/anteros by default; MKFS_OPTIONS
# are given to each mkfs.erofs of the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
anteros=$(realpath "${ANTEROS:-target/release/anteros}")
checkout=$(realpath "${1:?usage: peer-suite.sh CHECKOUT [NUMBER]...}")
shift
cd "$checkout/tests"

names=$(mktemp -d)
trap 'rm -rf "$names"' EXIT
for name in mkfs.erofs fsck.erofs dump.erofs erofsfuse mount.erofs; do
    ln -s "$anteros" "$names/$name"
done
build() {
    local flags=(-O2 -w -I../include -I"$names" -DHAVE_LINUX_TYPES_H -include sys/sysmacros.h)
    cc "${flags[@]}" -o "$@"
}
touch "$names/config.h"
[ -e src/fssum ] || build src/fssum src/fssum.c ../lib/sha256.c
[ -e src/badlz4 ] || build src/badlz4 src/badlz4.c -llz4 || echo 'test 007 needs liblz4 and its headers' >&2

export MKFS_EROFS_PROG=$names/mkfs.erofs FSCK_EROFS_PROG=$names/fsck.erofs DUMP_EROFS_PROG=$names/dump.erofs
export EROFSFUSE_PROG=$names/erofsfuse srcdir=. lz4_on=1 lz4hc_on=1 lzma_on=1 deflate_on=1 zstd_on=1
export SCRATCH_MNT=$names/scratch SCRATCH2_MNT=$names/scratch2 RESULT_DIR=$PWD/results
export FSSUM_PROG=$PWD/src/fssum
mkdir -p "$SCRATCH_MNT" "$SCRATCH2_MNT" "$RESULT_DIR/erofs"

failed=0
for FSTYP in erofs erofsfuse; do
    export FSTYP
    for test in erofs/[0-9][0-9][0-9]; do
        number=${test#erofs/}
        case " ${*:-$number} " in *" $number "*) ;; *) continue ;; esac
        status=0
        timeout 300 bash "./$test" >"$RESULT_DIR/$test.$FSTYP.out" 2>&1 || status=$?
        case $status in
        0) verdict=ok ;;
        77) verdict="left out: $(cat "$RESULT_DIR/$test.notrun" 2>/dev/null)" ;;
        *) verdict="FAILED ($status)"; failed=$((failed + 1)) ;;
        esac
        echo "$FSTYP $number: $verdict"
    done
done
echo "$failed failed"
[ "$failed" = 0 ]

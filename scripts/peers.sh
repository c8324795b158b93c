#!/usr/bin/env bash
# Brings in the judges: a small tree of Debian unstable with erofs-utils, squashfs-tools, squashfuse and fio.
#
# The tree lies in $ANTEROS_PEERS/sid, by default ~/.cache/anteros/peers/sid. It is made once, in about a minute,
# and takes 250 MB; delete it to be rid of it, or to have newer judges. Its programs run with its own libraries and
# without chroot: `cargo xtask peer mkfs.erofs --version`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh

tree=$ANTEROS_PEERS/sid
[ -x "$tree/usr/bin/mkfs.erofs" ] && [ -x "$tree/usr/bin/fio" ] && exit

say "installing erofs-utils, squashfs-tools, squashfuse and fio of Debian sid into $tree (they judge our images)"
debian_tree sid erofs-utils,erofsfuse,squashfs-tools,squashfuse,fio "$tree"
say "the judges are there: erofs-utils $(sed -n '/^Package: erofs-utils$/,/^$/s/^Version: //p' "$tree/var/lib/dpkg/status")"

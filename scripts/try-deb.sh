#!/usr/bin/env bash
# Installs a .deb in a copy of a bare Debian, uses it there, and removes it: `try-deb.sh PACKAGE`. Needs root.
set -euo pipefail
package=$(realpath "$1")
[ "$(id -u)" = 0 ] || { echo "try-deb: not root, so $package is not tried" >&2; exit 0; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bare=$(scripts/corpus.sh minbase)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp -a "$bare/." "$root"
cp "$package" "$root/anteros.deb"

# Runs a command in the copy.
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ "$@"; }

inside dpkg -i /anteros.deb
inside anteros --version
inside anteros mkfs --quiet /etc.erofs /etc
inside anteros check /etc.erofs
inside anteros extract --quiet /etc.erofs /again
inside diff -r /etc /again
inside /usr/lib/anteros/fsck.erofs /etc.erofs
inside mount.erofs.anteros -V
inside test -s /usr/share/man/man1/anteros.1.gz
inside grep -qx 'options fuse enable_uring=Y' /usr/share/doc/anteros/examples/fuse-io-uring.conf
inside dpkg --verify anteros
inside dpkg -r anteros
if inside sh -c 'ls /usr/bin/anteros* /usr/sbin/mount.*.anteros /usr/lib/anteros 2>/dev/null'; then
    echo "try-deb: removing it leaves files" >&2
    exit 1
fi
echo "try-deb: $package installs, works, and leaves nothing"

#!/usr/bin/env bash
# Packages of the static programs in a directory that `cargo xtask dist` has filled: `packages.sh DIRECTORY ARCHITECTURE`.
#
# Writes anteros-VERSION-ARCHITECTURE.tar.gz and, where dpkg-deb is, anteros_VERSION_ARCHITECTURE.deb, with the architecture
# in Debian's words, and SHA256SUMS of these. The bytes depend on the commit and the compilers alone.
set -euo pipefail
directory=$(cd "$1" && pwd)
architecture=$2
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

# The names of erofs-utils that a link answers to. They are beside the program's own, for who puts that directory into PATH.
names=(mkfs.erofs fsck.erofs dump.erofs erofsfuse mount.erofs)

# Copies the documents that everyone gets, and examples.
documents() {
    mkdir -p "$1/examples"
    cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$1"
    install -m 644 docs/examples/* "$1/examples"
}

# Writes what the program says of itself: manual pages and completions. It must run here.
told=$stage/told
told_by() {
    local program=$1 shell
    mkdir -p "$told/man1" "$told/completions"
    "$program" manual "$told/man1"
    gzip -n9 "$told"/man1/*
    for shell in bash zsh fish; do "$program" completions "$shell" >"$told/completions/anteros.$shell"; done
}

tarball() {
    local name=anteros-$version-$architecture link
    local root=$stage/tar/$name
    mkdir -p "$root/bin"
    cp "$directory"/{anteros,anteros-read,anteros-warm} "$root/bin"
    for link in "${names[@]}"; do ln -s anteros "$root/bin/$link"; done
    documents "$root"
    cp -r "$told/." "$root"
    tar --create --directory "$stage/tar" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner "$name" | gzip -n9 >"$directory/$name.tar.gz"
}

deb() {
    local root=$stage/deb link
    mkdir -p "$root"/{DEBIAN,usr/bin,usr/sbin,usr/lib/anteros,usr/share/man}
    cp "$directory"/{anteros,anteros-warm} "$root/usr/bin"
    for link in "${names[@]}"; do ln -s ../../bin/anteros "$root/usr/lib/anteros/$link"; done
    # Helpers of mount(8) for types of our own: they meet none of erofs-utils.
    for link in mount.erofs.anteros mount.fuse.anteros; do ln -s ../bin/anteros "$root/usr/sbin/$link"; done
    documents "$root/usr/share/doc/anteros"
    cat LICENSE-MIT LICENSE-APACHE >"$root/usr/share/doc/anteros/copyright"
    cp -r "$told/man1" "$root/usr/share/man"
    install -D -m 644 "$told/completions/anteros.bash" "$root/usr/share/bash-completion/completions/anteros"
    install -D -m 644 "$told/completions/anteros.zsh" "$root/usr/share/zsh/vendor-completions/_anteros"
    install -D -m 644 "$told/completions/anteros.fish" "$root/usr/share/fish/vendor_completions.d/anteros.fish"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: anteros
Version: $version
Architecture: $architecture
Maintainer: The developers of anteros
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Recommends: fuse3
Section: admin
Priority: optional
Description: compressed storage for devices and images
 Builds, mounts, checks, extracts and patches EROFS images, mirrors
 directories, and keeps files in a compressed log. The names of erofs-utils
 are in /usr/lib/anteros, for who puts that into PATH.
CONTROL
    dpkg-deb --root-owner-group -Zxz --build "$root" "$directory/anteros_${version}_$architecture.deb"
}

told_by "$directory/anteros"
tarball
made=("anteros-$version-$architecture.tar.gz")
if command -v dpkg-deb >/dev/null; then
    deb
    made+=("anteros_${version}_$architecture.deb")
else
    echo "packages: no dpkg-deb here, so no .deb" >&2
fi
cd "$directory"
sha256sum -- "${made[@]}" | tee SHA256SUMS

#!/usr/bin/env bash
# Brings in the judges: a small tree of Debian unstable with erofs-utils, squashfs-tools, squashfuse and fio; with
# the argument deltas also programs that make differences of files; with the argument libfuse also the mirrors among
# libfuse's examples, passthrough_hp and passthrough_ll; with the argument sqlite also SQLite's own tests; with the
# argument kernel also a Linux kernel and QEMU, for a virtual machine in which a kernel may die.
#
# The tree lies in $ANTEROS_PEERS/sid, by default ~/.cache/anteros/peers/sid. It is made once, in about a minute,
# and takes 250 MB; delete it to be rid of it, or to have newer judges. Its programs run with its own libraries and
# without chroot: `cargo xtask peer mkfs.erofs --version`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh

tree=$ANTEROS_PEERS/sid

judges() {
    [ -x "$tree/usr/bin/mkfs.erofs" ] && [ -x "$tree/usr/bin/fio" ] && return
    say "installing erofs-utils, squashfs-tools, squashfuse and fio of Debian sid into $tree (they judge our images)"
    debian_tree sid erofs-utils,erofsfuse,squashfs-tools,squashfuse,fio "$tree"
    say "the judges are there: erofs-utils $(sed -n '/^Package: erofs-utils$/,/^$/s/^Version: //p' "$tree/var/lib/dpkg/status")"
}

# apt-get with the lists of Debian sid, which lie in the current directory; the mirror is that of the judges' tree, and
# may lag behind, as it may for debootstrap.
apt_sid() {
    local key=/usr/share/keyrings/debian-archive-keyring.gpg mirror
    mirror=$(sed -n 's/^deb \([^ ]*\) sid .*/\1/p' "$tree/etc/apt/sources.list")
    mkdir -p lists/partial cache/archives/partial
    printf '%s\n' "deb [signed-by=$key] $mirror sid main" "deb-src [signed-by=$key] $mirror sid main" >sources.list
    apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$PWD/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$PWD/cache" \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root \
        -o Acquire::Check-Valid-Until=false "$@" </dev/null
}

# Builds the mirrors of libfuse in the current directory, from the source of Debian sid and with its library, whose
# own needs the judges' tree has. They are licensed under the GPL: they run beside our programs and are no part of them.
build_libfuse() {
    apt_sid update && apt_sid download libfuse3-4 libfuse3-dev && apt_sid source --download-only fuse3 || return
    local deb library
    for deb in ./*.deb; do dpkg-deb -x "$deb" root || return; done
    mkdir source && tar -xf fuse3_*.orig.tar.[gx]z -C source --strip-components=1 || return
    library=$(find "$PWD/root/usr/lib" -name 'libfuse3.so.4') && cp -L "$library" . || return
    # What the library itself needs is found when the programs run.
    # As the configuration of libfuse has it on Linux; without the first, extended attributes are left out.
    local has=(-D_GNU_SOURCE -include sys/xattr.h -DHAVE_SETXATTR -DHAVE_UTIMENSAT -DHAVE_POSIX_FALLOCATE -DHAVE_FALLOCATE -DHAVE_COPY_FILE_RANGE -DHAVE_FDATASYNC)
    local flags=(-O2 -DNDEBUG "${has[@]}" -D_FILE_OFFSET_BITS=64 -Iroot/usr/include/fuse3 -Wl,--allow-shlib-undefined)
    c++ -std=c++17 source/example/passthrough_hp.cc "${flags[@]}" libfuse3.so.4 -pthread -o passthrough_hp &&
        cc source/example/passthrough_ll.c "${flags[@]}" libfuse3.so.4 -pthread -o passthrough_ll &&
        sed -n 's/^Version: /libfuse /p' root/usr/lib/*/pkgconfig/fuse3.pc >version
}

# The mirrors of libfuse, in $ANTEROS_PEERS/libfuse.
libfuse() {
    local place=$ANTEROS_PEERS/libfuse partial
    [ -x "$place/passthrough_hp" ] && [ -x "$place/passthrough_ll" ] && return
    have apt-get && have dpkg-deb || { say "libfuse's mirrors are built from Debian's source, by apt-get and dpkg-deb" && return 1; }
    need_cc && need_cxx || return
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
        add_packages 'to know a genuine Debian' debian-archive-keyring || return
    say "building passthrough_hp and passthrough_ll of libfuse into $place (our mirror is measured beside them)"
    partial=$(mktemp -d "$place.XXXXXX")
    if (cd "$partial" && build_libfuse) >"$place.log" 2>&1; then
        mkdir -p "$place"
        mv "$partial"/{libfuse3.so.4,version,passthrough_ll,passthrough_hp} "$place"
        rm -r "$partial"
    else
        say "libfuse could not be built: $(tail -n1 "$place.log") (all of it in $place.log)"
        rm -r "$partial"
        return 1
    fi
}

# Builds SQLite's tests in the current directory, from the source of Debian sid.
build_sqlite() {
    local tcl
    tcl=$(find /usr/lib -name tclConfig.sh -print -quit) && [ -n "$tcl" ] || return
    apt_sid update && apt_sid source --download-only sqlite3 || return
    mkdir tree && tar -xf sqlite3_*.orig.tar.xz -C tree --strip-components=1 || return
    (cd tree && ./configure --with-tcl="$(dirname "$tcl")" && make -j"$(nproc)" OPTS=-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE testfixture speedtest1 sqlite3 &&
        rm -rf ./*.o ./*.lo .libs tsrc)
}

# In $ANTEROS_PEERS/sqlite: testfixture and what it runs, speedtest1, and a shell that writes atomically where it can.
sqlite() {
    local place=$ANTEROS_PEERS/sqlite partial
    [ -x "$place/testfixture" ] && [ -x "$place/speedtest1" ] && [ -x "$place/sqlite3" ] && return
    have apt-get || { say "SQLite's tests are built from Debian's source, by apt-get" && return 1; }
    need_cc && { have make || add_packages "to build SQLite's tests" make; } || return
    [ -n "$(find /usr/lib -name tclConfig.sh -print -quit)" ] || add_packages "SQLite's tests are written in Tcl" tcl-dev || return
    [ -e /usr/include/zlib.h ] || add_packages "SQLite's tests of archives" zlib1g-dev || return
    say "building SQLite's tests into $place (they judge mounts that databases lie on)"
    partial=$(mktemp -d "$place.XXXXXX")
    if (cd "$partial" && build_sqlite) >"$place.log" 2>&1; then
        rm -rf "$place"
        mv "$partial/tree" "$place"
        # Those who are not root run them.
        chmod -R a+rX "$place"
        rm -r "$partial"
    else
        say "SQLite's tests could not be built: $(tail -n1 "$place.log") (all of it in $place.log)"
        rm -r "$partial"
        return 1
    fi
}

# Unpacks the newest kernel of Debian sid, in the flavour for virtual machines, in the current directory.
unpack_kernel() {
    local packages deb
    apt_sid update && packages=$(apt_sid -s install --no-install-recommends linux-image-cloud-amd64 |
        sed -n 's/^Inst \(linux-\(image\|binary\|modules\)-[0-9][^ ]*\) .*/\1/p') && [ -n "$packages" ] || return
    # shellcheck disable=SC2086 # each is a word
    apt_sid download $packages || return
    for deb in ./*.deb; do dpkg-deb -x "$deb" root || return; done
    mkdir tree && mv "$(dirname "$(find root -type d -path '*/lib/modules')")" tree/lib &&
        mkdir tree/boot && find root tree -name 'vmlinuz*' -type f -exec mv {} tree/boot/ \;
}

# In $ANTEROS_PEERS/kernel: boot/vmlinuz-* and lib/modules of a kernel; QEMU comes as a package.
kernel() {
    local place=$ANTEROS_PEERS/kernel partial
    [ "$(uname -m)" = x86_64 ] || { say 'the virtual machine with a kernel of Debian is for x86_64 alone' && return 1; }
    have qemu-system-x86_64 || add_packages 'a virtual machine in which a kernel may die' qemu-system-x86 || return
    { have losetup && have ldd; } || add_packages 'what a virtual machine is made of' mount libc-bin || return
    [ -d "$place/lib/modules" ] && return
    have apt-get && have dpkg-deb || { say 'the kernel comes from Debian, by apt-get and dpkg-deb' && return 1; }
    say "unpacking the newest kernel of Debian sid into $place (it judges images in a virtual machine)"
    partial=$(mktemp -d "$place.XXXXXX")
    if (cd "$partial" && unpack_kernel) >"$place.log" 2>&1; then
        rm -rf "$place"
        mv "$partial/tree" "$place"
        rm -r "$partial"
    else
        say "the kernel could not be had: $(tail -n1 "$place.log") (all of it in $place.log)"
        rm -r "$partial"
        return 1
    fi
}

# Programs that make differences of files, from packages.
deltas() {
    have xdelta3 || add_packages 'differences of images, to measure patches beside' xdelta3 || return
    have bsdiff || add_packages 'differences of images, to measure patches beside' bsdiff || return
    have casync || add_packages 'images in chunks, to measure patches beside' casync
}

judges
case ${1-} in
deltas) deltas ;;
kernel) kernel ;;
libfuse) libfuse ;;
sqlite) sqlite ;;
esac

# shellcheck shell=bash
# Sourced by the scripts of this repository: brings in what is missing, and only that.
#
# Each need_* function returns at once, silently, when its thing is there; otherwise it says what it installs and
# why. need_rust and need_cc must succeed; the others say what stays undone and return 1.

# The oldest Rust that compiles the workspace (rust-version in Cargo.toml).
msrv=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

# The installer of Rust toolchains for this machine.
rustup_init=https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init

# The Rust whose formatter and linter judge a change, whatever Rust is the newest: those of others only warn.
lints_rust=1.95.0

# A bare environment has none of these, and programs count on them.
[ -n "${HOME-}" ] || HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
export HOME="${HOME:-/}" USER="${USER:-$(id -un)}" TERM="${TERM:-dumb}"

export DEBIAN_FRONTEND=noninteractive
export ANTEROS_PEERS=${ANTEROS_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/anteros/peers}
PATH=$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null; }

# Runs a command as root: directly, or by sudo if it asks no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        say "cannot run as root (no root, no password-free sudo): $*"
        return 1
    fi
}

# Installs packages of the distribution: add_packages REASON PACKAGE...
add_packages() {
    local reason=$1 && shift
    if ! have apt-get; then
        say "please install $* ($reason): only apt-get is known here"
        return 1
    fi
    say "installing $* ($reason)"
    if [ -z "${apt_is_fresh-}" ]; then
        as_root apt-get update -qq </dev/null || say 'apt-get update failed; trying with the lists that are there'
        apt_is_fresh=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "$@" </dev/null >/dev/null
}

# Is version $1 at least version $2?
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n1)" = "$2" ]; }

# The version of cargo, as 1.85.0; 0 when there is none that runs.
cargo_version() { cargo --version 2>/dev/null | awk '{ print $2; exit } END { if (!NR) print 0 }'; }

# The version of a package that apt-get would install, as 1.85.0.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p'; }

# A Rust toolchain of at least $msrv: by rustup, or the distribution's when that is new enough.
need_rust() {
    at_least "$(cargo_version)" "$msrv" && return
    if have rustup; then
        say "installing the stable Rust toolchain by rustup (cargo $(cargo_version) is older than $msrv)"
        rustup toolchain install stable --profile minimal --no-self-update </dev/null && export RUSTUP_TOOLCHAIN=stable
        at_least "$(cargo_version)" "$msrv" && return
    fi
    have curl || add_packages 'to fetch the Rust toolchain' curl ca-certificates
    local place
    place=$(mktemp -d)
    if have curl && curl --proto '=https' -sSf -o "$place/rustup-init" "$rustup_init"; then
        say "installing the stable Rust toolchain into ${CARGO_HOME:-$HOME/.cargo} (cargo $msrv or newer is needed)"
        chmod +x "$place/rustup-init"
        "$place/rustup-init" -y --quiet --profile minimal --no-modify-path --default-toolchain stable \
            </dev/null >/dev/null
    elif at_least "$(candidate cargo)" "$msrv"; then
        add_packages "cargo $msrv or newer is needed" cargo rustc
    fi
    rm -r "$place"
    at_least "$(cargo_version)" "$msrv" && return
    say "no Rust toolchain of $msrv or newer could be had; see https://rustup.rs"
    return 1
}

# Whether a cargo has a formatter and a linter: has_lints CARGO...
has_lints() { "$@" fmt --version >/dev/null 2>&1 && "$@" clippy --version >/dev/null 2>&1; }

# The formatter and the linter of $lints_rust. Sets lints, the cargo that has them, or that of the present toolchain,
# and lints_are_pinned, which is no when it is the latter.
need_rust_lints() {
    lints=(cargo) lints_are_pinned=yes
    if [ "$(cargo_version)" = "$lints_rust" ]; then
        has_lints cargo || add_lints
        return
    fi
    if have rustup; then
        lints=(rustup run "$lints_rust" cargo)
        has_lints "${lints[@]}" && return
        say "installing rustfmt and clippy of Rust $lints_rust by rustup (for the style checks)"
        timeout 600 rustup toolchain install "$lints_rust" --profile minimal --component rustfmt,clippy \
            --no-self-update </dev/null >/dev/null 2>&1
        has_lints "${lints[@]}" && return
    fi
    say "without Rust $lints_rust, formatter and linter are those of cargo $(cargo_version), and only warn"
    lints=(cargo) lints_are_pinned=no
    has_lints cargo || add_lints
}

# The formatter and the linter of the present toolchain.
add_lints() {
    if have rustup; then
        say "installing rustfmt and clippy of Rust $(cargo_version) by rustup (for the style checks)"
        timeout 600 rustup component add rustfmt clippy </dev/null
    else
        add_packages 'for the style checks' rustfmt rust-clippy
    fi
}

# A linker and the C library's headers, for Rust itself.
need_cc() { have cc || add_packages 'the linker that Rust uses' gcc libc6-dev; }

# A C++ compiler, for libFuzzer.
need_cxx() { have c++ || add_packages 'libFuzzer is C++' g++; }

# The helper that lets users mount FUSE file systems; the device, which udev would open to all; and the list of
# mounts, without which the helper does not unmount.
need_fuse() {
    [ ! -e /dev/fuse ] || open_to_all /dev/fuse
    if [ ! -e /etc/mtab ]; then
        say 'linking /etc/mtab to /proc/self/mounts, where fusermount3 looks for mounts'
        as_root ln -sf ../proc/self/mounts /etc/mtab
    fi
    have fusermount3 || add_packages 'fusermount3, to mount without being root' fuse3
}

# Opens a device to all users unless it is: open_to_all DEVICE
open_to_all() {
    local mode
    mode=$(stat -c %a "$1") || return
    [ $((0$mode & 6)) != 6 ] || return 0
    say "opening $1 to all users; its mode was $mode (it is 666 where udev runs)"
    as_root chmod 666 "$1"
}

# Commands that make and read trees, archives, manifests and image layouts, and compare them.
need_tree_tools() {
    { have getfattr && have setfattr; } || add_packages 'tests with extended attributes' attr || return
    have setfacl || add_packages 'tests with access control lists' acl || return
    { have veritysetup && have fsverity; } || add_packages 'tests with hash trees' cryptsetup-bin fsverity || return
    { have bsdtar && have cpio && have mtree; } ||
        add_packages 'tests with archives and manifests' libarchive-tools cpio mtree-netbsd || return
    have matchpathcon || add_packages 'tests with labels of SELinux' selinux-utils || return
    have fakeroot || add_packages 'tests with owners that are faked' fakeroot || return
    have simg2img || add_packages 'tests with sparse images' android-sdk-libsparse-utils || return
    have diff || add_packages 'to compare trees' diffutils || return
    have mount || add_packages 'to mount images by the kernel' mount || return
    { have umoci && have skopeo; } || add_packages 'tests with image layouts' umoci skopeo
}

# What mirrored directories are tested with: small devices, programs that rely on what is synced, and stress.
need_mirror_tools() {
    { have mkfs.ext4 && have e2fsck; } || add_packages 'to lose the power of a device' e2fsprogs || return
    { have mkfs.xfs && have xfs_io; } || add_packages 'to lose the power of a device' xfsprogs || return
    { have mkfs.btrfs && have btrfs; } || add_packages 'directories with a quota' btrfs-progs || return
    have sqlite3 || add_packages 'transactions on a mirror' sqlite3 || return
    have git || add_packages 'repositories on a mirror' git || return
    have stress-ng || add_packages 'stress for a mirror' stress-ng
}

# The Debian mirror that this machine already uses, if it is a Debian; otherwise nothing: debootstrap knows one.
debian_mirror() {
    if [ -n "${ANTEROS_DEBIAN_MIRROR-}" ]; then
        echo "$ANTEROS_DEBIAN_MIRROR"
    elif grep -qx 'ID=debian' /etc/os-release; then
        cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
            sed -n 's/^URIs: *\([^ ]*\/debian\/\?\)\( .*\)\?$/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\/debian\/\?\) .*/\2/p' |
            head -n1
    fi
}

# Makes a small Debian tree, whole or not at all: debian_tree SUITE PACKAGES DIRECTORY
debian_tree() {
    local suite=$1 packages=$2 tree=$3 partial
    have debootstrap || add_packages 'to make small Debian trees' debootstrap || return
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
        add_packages 'to know a genuine Debian' debian-archive-keyring || return
    mkdir -p "$(dirname "$tree")"
    partial=$(mktemp -d "$tree.XXXXXX")
    if as_root debootstrap --variant=minbase ${packages:+"--include=$packages"} "$suite" "$partial/tree" \
        $(debian_mirror) </dev/null >"$tree.log" 2>&1; then
        as_root find "$partial/tree/var/cache/apt/archives" "$partial/tree/var/lib/apt/lists" -type f -delete
        as_root rm -rf "$tree" && as_root mv "$partial/tree" "$tree"
    else
        say "debootstrap failed: $(tail -n1 "$tree.log") (all of it in $tree.log)"
        as_root rm -rf "$partial"
        return 1
    fi
    rmdir "$partial"
}

# The other implementations that judge ours; see scripts/peers.sh.
need_judges() { scripts/peers.sh; }

# The tests of SQLite, which judge what databases lie on; see scripts/peers.sh.
need_sqlite_judge() { scripts/peers.sh sqlite; }

# The judges of what can be written to: fsx and pjdfstest, built from their source.
need_posix_judges() {
    [ -x "$ANTEROS_PEERS/bin/fsx" ] && [ -x "$ANTEROS_PEERS/bin/pjdfstest" ] && return
    say "building fsx and pjdfstest into $ANTEROS_PEERS/bin (they judge mounts that are written to)"
    CARGO_TARGET_DIR=$ANTEROS_PEERS/build cargo install --quiet --locked --root "$ANTEROS_PEERS" \
        fsx@0.3.2 pjdfstest@0.2.2 </dev/null && rm -r "$ANTEROS_PEERS/build"
}

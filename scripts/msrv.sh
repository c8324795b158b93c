#!/usr/bin/env bash
# Compiles the workspace with the oldest Rust it promises to support (rust-version in Cargo.toml): the toolchain of
# rustup, or else that of Debian 13 in a small tree of its own, which needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh

# In the release profile, which builds macros fastest.
check=(cargo check --quiet --release --workspace --all-targets --locked)

# Has rustup that toolchain, or can it fetch it?
rustup_has_it() {
    have rustup || return 1
    rustup run "$msrv" rustc --version >/dev/null 2>&1 && return
    say "installing Rust $msrv by rustup (the oldest version that must compile this)"
    timeout 300 rustup toolchain install "$msrv" --profile minimal --no-self-update </dev/null >/dev/null 2>&1
}

# Runs the check in the Debian 13 tree, in mount points of its own that end with it.
check_in_debian() {
    local tree=$ANTEROS_PEERS/trixie-rust home=${CARGO_HOME:-$HOME/.cargo}
    if [ ! -x "$tree/usr/bin/cargo" ]; then
        say "installing Rust $msrv of Debian 13 into $tree (the oldest version that must compile this)"
        debian_tree trixie rustc,cargo,gcc,libc6-dev "$tree" || return
    fi
    cargo fetch --quiet --locked
    as_root unshare --mount sh -ec '
        tree=$1 home=$2 && shift 2
        mkdir -p "$tree/src" "$tree/cargo"
        mount --bind . "$tree/src"
        mount --bind "$home" "$tree/cargo"
        exec chroot "$tree" env -i PATH=/usr/bin:/bin HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/src/target/msrv \
            sh -ec "cd /src && rustc --version && exec \"\$@\"" sh "$@" --offline' sh "$tree" "$home" "${check[@]}"
}

if rustup_has_it; then
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv rustup run "$msrv" "${check[@]}"
else
    say "rustup cannot give Rust $msrv; trying Debian's"
    check_in_debian
fi

#!/usr/bin/env bash
# Has containerd unpack images through its EROFS differ and snapshotter, with anteros as mkfs.erofs: containerd.sh BIN [COUNT]
#
# BIN holds containerd and ctr of version 2.1 or later. COUNT images of three layers with whiteouts, 8 unless told, are
# made of the corpus minbase and unpacked side by side, first by anteros, then by the mkfs.erofs of erofs-utils. One of
# them is compared with what the overlayfs snapshotter shows of it. Needs root, python3 and attr, and no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
bin=$(realpath "${1:?usage: containerd.sh BIN [COUNT]}")
count=${2:-8}
anteros=$(realpath "${ANTEROS:-target/release/anteros}")
tree=$(scripts/corpus.sh minbase)
work=$(mktemp -d /var/tmp/containerd.XXXXXX)
mkdir "$work/names"
server=

end() {
    umount "$work"/*.mnt 2>/dev/null || true
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    sed -n "s,^[^ ]* \($work[^ ]*\) .*,\1,p" /proc/self/mounts | sort -r | xargs -r -n1 umount 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# Images as archives of an OCI layout, each with another lowest layer.
python3 - "$tree" "$work" "$count" <<'PYTHON'
import gzip, hashlib, io, json, sys, tarfile

tree, work, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

def layer(names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in names:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            elif content.startswith(b"->"):
                member.type, member.linkname = tarfile.LNKTYPE, content[2:].decode()
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content or b""))
    return out.getvalue()

base = io.BytesIO()
with tarfile.open(fileobj=base, mode="w", format=tarfile.PAX_FORMAT) as tar:
    tar.add(tree, ".")
base = base.getvalue().rstrip(b"\0")
base += b"\0" * (-len(base) % 512)
second = layer([
    ("etc", None), ("etc/hostname", b"two\n"), ("usr", None), ("usr/share", None), ("usr/share/.wh.doc", b""),
    ("opt", None), ("opt/a", b"a"), ("opt/b", b"->opt/a"), ("usr/share/locale", None),
    ("usr/share/locale/.wh..wh..opq", b""), ("usr/share/locale/new", b"only\n"),
])
third = layer([("etc", None), ("etc/.wh.passwd", b""), ("opt", None), ("opt/a", b"three"), ("opt/.wh.b", b"")])
for number in range(count):
    first = base + layer([(f"number-{number}", b"x")])
    blobs, layers, digests = {}, [], []
    def blob(data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest
    for plain in (first, second, third):
        packed = gzip.compress(plain, 1, mtime=0)
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        layers.append({"mediaType": kind, "digest": blob(packed), "size": len(packed)})
        digests.append("sha256:" + hashlib.sha256(plain).hexdigest())
    platform = {"architecture": "amd64", "os": "linux"}
    config = json.dumps(platform | {"rootfs": {"type": "layers", "diff_ids": digests}}).encode()
    kind = "application/vnd.oci.image.manifest.v1+json"
    described = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": blob(config), "size": len(config)}
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": described, "layers": layers}
    manifest = json.dumps(manifest).encode()
    name = {"io.containerd.image.name": f"test.local/image:{number}"}
    entry = {"mediaType": kind, "digest": blob(manifest), "size": len(manifest), "annotations": name, "platform": platform}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    with tarfile.open(f"{work}/{number}.tar", "w") as tar:
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
        files |= {"blobs/sha256/" + digest[7:]: data for digest, data in blobs.items()}
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
PYTHON

# Starts containerd with one of the builders in its PATH, with nothing unpacked, and all images imported.
start() {
    cat >"$work/config.toml" <<TOML
version = 3
root = "$work/$1/root"
state = "$work/$1/state"
[grpc]
  address = "$work/$1.sock"
[ttrpc]
  address = "$work/$1.sock.ttrpc"
[plugins."io.containerd.service.v1.diff-service"]
  default = ["erofs", "walking"]
TOML
    PATH=$work/names:$PATH "$bin/containerd" -c "$work/config.toml" >"$work/$1.log" 2>&1 &
    server=$!
    until ctr "$1" version >/dev/null 2>&1; do sleep 0.2; done
    for image in "$work"/*.tar; do ctr "$1" images import --no-unpack "$image" >/dev/null; done
}

ctr() {
    local which=$1
    shift
    "$bin/ctr" -a "$work/$which.sock" "$@"
}

# Unpacks all images side by side, and tells how long that took.
unpack() {
    local from to number
    from=$(date +%s%N)
    for ((number = 0; number < count; number++)); do
        mkdir -p "$work/$1-$number.mnt"
        ctr "$1" images mount --snapshotter erofs "test.local/image:$number" "$work/$1-$number.mnt" >/dev/null &
        jobs+=($!)
    done
    wait "${jobs[@]}"
    jobs=()
    to=$(date +%s%N)
    echo "$1: $count images unpacked in $(((to - from) / 1000000)) ms"
}

# All that a tree shows, but for its root.
shown() {
    (cd "$1" && find . -mindepth 1 ! -type d -printf '%P %y %m %U:%G %s %T@ %n %l\n' -o -mindepth 1 -printf '%P d %m %U:%G %T@\n' |
        sort && find . -type f -exec sha256sum {} + | sort -k2 && getfattr -Rhd -m - . 2>/dev/null | grep -v overlay)
}

jobs=()
# The peer by its own loader, as looking for it each time would count as its time.
cargo build --quiet --locked -p xtask
target/debug/xtask peer mkfs.erofs -V >/dev/null
sid=${ANTEROS_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/anteros/peers}/sid
loader=$(find "$sid/usr/lib" -mindepth 2 -maxdepth 2 -name 'ld-linux*' | head -n1)
cat >"$work/wrapper" <<SH
#!/bin/sh
exec "$loader" --library-path "$(dirname "$loader")" "$sid/usr/bin/mkfs.erofs" "\$@"
SH
chmod +x "$work/wrapper"
for which in anteros peer; do
    if [ $which = anteros ]; then ln -sf "$anteros" "$work/names/mkfs.erofs"; else ln -sf "$work/wrapper" "$work/names/mkfs.erofs"; fi
    start $which
    unpack $which
    if [ $which = anteros ]; then
        grep -q 'mkfs.erofs --tar=f --aufs' "$work/$which.log" || { echo 'containerd did not call mkfs.erofs' >&2; exit 1; }
        mkdir "$work/overlay.mnt"
        ctr $which images mount --snapshotter overlayfs test.local/image:0 "$work/overlay.mnt" >/dev/null
        diff <(shown "$work/$which-0.mnt") <(shown "$work/overlay.mnt")
        [ ! -e "$work/$which-0.mnt/etc/passwd" ] && [ "$(cat "$work/$which-0.mnt/etc/hostname")" = two ]
        umount "$work/overlay.mnt"
        echo 'the tree is the one that the overlayfs snapshotter shows'
    fi
    umount "$work/$which"-*.mnt
    kill -9 $server
    server=
    sed -n "s,^[^ ]* \($work/$which/[^ ]*\) .*,\1,p" /proc/self/mounts | sort -r | xargs -r -n1 umount
done

#!/usr/bin/env bash
# Makes corpus/images: a tree of few and small files that still has one of everything, stored in each way that
# mkfs.erofs and anteros know; corpus/encode: files of that tree, with an effort and a budget; and corpus/tar: archives of
# a part of it. See README.md.
#
#   make-corpus.sh MKFS OURS      commands (words separated by blanks) that run mkfs.erofs and anteros
#
# Needs root (device nodes, owners, trusted and security attributes), attr and cpio.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

read -ra mkfs <<<"${1:?usage: make-corpus.sh MKFS OURS}"
read -ra ours <<<"${2:?usage: make-corpus.sh MKFS OURS}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
images=$here/corpus/images
inputs=$here/corpus/encode
archives=$here/corpus/tar
work=$here/target/corpus
tree=$work/tree
built=1700000000
rm -rf "$work"
mkdir -p "$tree" "$images" "$inputs" "$archives"

# Prints COUNT bytes that no compressor makes smaller.
noise() { # COUNT
    printf "$(awk -v x=7 -v count="$1" 'BEGIN {
        while (count--) { x = (x * 16807) % 2147483647; printf "\\%03o", int(x / 128) % 256 } }')"
}

fill_tree() {
    mkdir d && (
        cd d
        : >empty
        echo 'hello, world' >hello
        seq -f 'line %03.0f' 1 300 >lines
        { seq 1 150 && seq 1 150; } >twice
        noise 700 >noise
        cat lines noise lines >mixed
        truncate -s 5000 hole && echo end >>hole
        ln hello again
    )
    # What leads out of the tree, for the target `extract`; it puts more of the kind in the way.
    ln -s ../outside up
    ln -s ../witness file
    ln -s d/hello soft
    mkdir -p in/in/in && echo deep >in/in/in/deep
    mkdir many && (cd many && touch $(seq -f name-%02.0f 1 28))
    mknod null c 1 3
    mkfifo fifo
    echo x >xattr
    setfattr -n user.one -v 1 xattr
    setfattr -n trusted.overlay.opaque -v y in
    for name in a b c d; do
        echo "$name" >"shared-$name"
        setfattr -n user.org.example.shared -v 'the same for all' "shared-$name"
    done
    echo 4294967294 >owner && chown 4294967294:70000 owner && chmod 4711 owner
    find . -exec touch -h -d "@$built" {} +
    touch -d "@$((built - 1)).123456789" d/hello
}

# Says what was made.
tell() { printf '%6d  %s\n' "$(stat -c %s "$images/$1")" "$1"; }

theirs() { # NAME OPTION...
    local name=$1 && shift
    "${mkfs[@]}" --quiet -d1 "-T$built" --mkfs-time -U 616e7465-726f-7300-0000-000000000000 "$@" "$images/$name" "$tree"
    tell "$name"
}

own() { # NAME OPTION...
    local name=ours-$1 && shift
    "${ours[@]}" mkfs "$@" "$images/$name" "$tree" >/dev/null
    tell "$name"
}

(cd "$tree" && fill_tree)
rm -f "$images"/*
theirs plain -b512
theirs plain-4k -Eforce-inode-extended
theirs lz4 -b512 -zlz4
theirs lz4-4k -zlz4hc
theirs lz4-full -b512 -zlz4hc -C2048 -Elegacy-compress
theirs lz4-compact-2k -b512 -zlz4hc -C2048
theirs tail -b512 -zlz4hc -C1024 -Eztailpacking
theirs tail-full -b512 -zlz4hc -Eztailpacking,legacy-compress
theirs fragments -b512 -zlz4hc -C2048 -Efragments
theirs dedupe -b512 -zlz4hc -C1024 -Efragments,dedupe,ztailpacking
theirs all-fragments -b512 -zlz4hc -C2048 -Eall-fragments,dedupe
theirs directories -b512 -zlz4hc -C1024 -Efragments --zD
theirs lzma -b512 -zlzma,level=6 -C2048
theirs deflate -b512 -zdeflate,level=9 -C2048
theirs zstd -b512 -zzstd,level=9 -C2048
theirs chunks -b512 --chunksize=1024
theirs chunk-indexes -b512 --chunksize=1024 -Eforce-chunk-indexes
theirs device -b512 --chunksize=1024 "--blobdev=$work/blob"
theirs 48bit -b512 -zlz4hc -C2048 -E48bit
theirs 48bit-fixed -b512 -zlz4hc -C2048 -E48bit --max-extent-bytes=-4096
theirs dot-omitted -b512 -zlz4hc -Edot-omitted
theirs metabox -b512 -zlz4hc -C1024 -m1024
theirs metabox-lzma -b512 -zlz4hc:lzma -C1024 -m1024:lzma --MZ=i
theirs prefixes -b512 -x1 --xattr-prefix=user.org.example. --xattr-prefix=trusted.overlay.
theirs prefixes-packed -b512 -zlz4hc -Efragments --xattr-prefix=user.org.example. --xattr-prefix=trusted.overlay.
own plain -b512 -znone
own lz4 -b512 -zlz4 -C512
own lz4-full -b512 -zlz4hc -C2048 -Elegacy-compress
own chunks -b512 --chunksize=1024 --holes=keep

# Puts the effort (0 to 12) and the budget in front of a file of the tree.
encode() { # EFFORT BUDGET FILE
    local name=$3-$1-$2
    printf "\\x$(printf %02x "$1")\\x$(printf %02x $(($2 % 256)))\\x$(printf %02x $(($2 / 256)))" >"$inputs/$name"
    cat "$tree/d/$3" >>"$inputs/$name"
}

rm -f "$inputs"/*
for effort in 0 1 3 9 12; do
    encode $effort 512 mixed
    encode $effort 4096 lines
    encode $effort 100 twice
done

# Archives of a part of the tree and of a layer, behind a byte of options: 0 none, 1 whiteouts of AUFS.
pack() { # NAME OPTIONS ARGUMENT...
    local name=$1 && printf "\\x$2" >"$archives/$name" && shift 2
    tar -C "$tree" -b1 -c "$@" >>"$archives/$name"
}

rm -f "$archives"/*
members=(d/hello d/again d/hole in/in soft null fifo xattr owner)
pack posix 00 --format=posix --sparse --xattrs '--xattrs-include=*' "${members[@]}"
pack sparse-0.0 00 --format=posix --sparse --sparse-version=0.0 d/hole
pack sparse-0.1 00 --format=posix --sparse --sparse-version=0.1 d/hole
pack gnu 00 --format=gnu --sparse --transform="s,hello,$(printf 'long%.0s' {1..30})," "${members[@]}"
for format in newc crc; do
    printf '\x00' >"$archives/cpio-$format"
    (cd "$tree" && printf '%s\n' "${members[@]}" | cpio --quiet -o -H "$format" -C 4) >>"$archives/cpio-$format"
done
pack layer 01 --format=ustar --transform='s,hello,.wh.gone,;s,empty,.wh..wh..opq,' d/hello d/empty in

#!/usr/bin/env bash
# Makes a corpus for the benchmarks, once, and prints where it is: corpus.sh NAME
#
#   minbase   the smallest Debian 12 system, without the archives and lists of apt; needs root
#   tree60k   60,000 files: the first ones, in byte order of their paths, of Linux as Debian packages its source
#   text1g    one file of 10^9 bytes: the files of that source one after the other, in the same order
#   usr       /usr of this machine, as it is
#
# They lie in $ANTEROS_CORPORA, by default ~/.cache/anteros/corpora.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh

corpora=${ANTEROS_CORPORA:-${XDG_CACHE_HOME:-$HOME/.cache}/anteros/corpora}
name=${1:?usage: corpus.sh minbase|tree60k|text1g|usr}
mkdir -p "$corpora"

# The source of Linux that the distribution packages, unpacked.
linux() {
    [ -d "$corpora/linux" ] && return
    say "fetching the source of Linux from the distribution's mirror (for the corpus $name)"
    local partial
    partial=$(mktemp -d "$corpora/linux.XXXXXX")
    (
        cd "$partial"
        package=$(apt-cache depends linux-source | sed -n 's/^ *Depends: \(linux-source-.*\)/\1/p')
        apt-get download -qq "$package" 2>/dev/null
        dpkg-deb -x ./*.deb . && rm ./*.deb
        mkdir tree && tar -C tree --strip-components=1 --no-same-owner -xf usr/src/linux-source-*.tar.*
    )
    mv "$partial/tree" "$corpora/linux" && rm -r "$partial"
}

# The regular files of that source, in byte order, each ended by a zero byte.
linux_files() { find . -type f -print0 | sort -z; }

make_minbase() { debian_tree bookworm '' "$corpora/minbase"; }

make_tree60k() {
    linux
    mkdir "$corpora/tree60k.partial"
    (cd "$corpora/linux" && linux_files | sed -z -n 1,60000p | tar -c --null -T - | tar -C "$corpora/tree60k.partial" -x)
    mv "$corpora/tree60k.partial" "$corpora/tree60k"
}

make_text1g() {
    linux
    mkdir "$corpora/text1g.partial"
    # head ends the pipe when it has enough, which xargs takes for a failure.
    (cd "$corpora/linux" && { linux_files | xargs -0 cat || :; } 2>/dev/null | head -c 1000000000) \
        >"$corpora/text1g.partial/text"
    [ "$(stat -c %s "$corpora/text1g.partial/text")" = 1000000000 ]
    mv "$corpora/text1g.partial" "$corpora/text1g"
}

case $name in
    usr) echo /usr && exit ;;
    minbase | tree60k | text1g) ;;
    *) say "no such corpus: $name" && exit 2 ;;
esac
if [ ! -d "$corpora/$name" ]; then
    say "making the corpus $name in $corpora"
    rm -rf "$corpora/$name.partial"
    "make_$name" >&2
fi
echo "$corpora/$name"

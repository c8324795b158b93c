#!/usr/bin/env bash
# Makes a corpus for the benchmarks, once, and prints where it is: corpus.sh NAME
#
#   minbase   the smallest Debian 12 system, without the archives and lists of apt; needs root
#   minbase-updated  the same with the updates that apt knows for its packages: their files over a copy; needs root
#   tree60k   60,000 files: the first ones, in byte order of their paths, of Linux as Debian packages its source
#   text1g    one file of 10^9 bytes: the files of that source one after the other, in the same order
#   silesia   a tar of 180 MB of twelve kinds of data, mixed about as in the Silesia corpus; needs root
#   apps      the smallest Debian 12 system with python3 and git, to start programs from; needs root
#   programs  the smallest Debian 12 system with python3 and numpy, Node.js, Java and LibreOffice, to start them from; needs root
#   pictures  what the manual of Marble, a globe, shows in all its languages, as Debian packages it: 147 PNG files, 28 MB
#   chromium  Chromium as the distribution packages it: one program of 250 MB, libraries and resources
#   usr       /usr of this machine, as it is
#
# They lie in $ANTEROS_CORPORA, by default ~/.cache/anteros/corpora.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh

corpora=${ANTEROS_CORPORA:-${XDG_CACHE_HOME:-$HOME/.cache}/anteros/corpora}
name=${1:?usage: corpus.sh minbase|minbase-updated|tree60k|text1g|silesia|apps|programs|pictures|chromium|usr}
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

# The packages of the tree in $1 that apt has newer ones of, as its own lists tell.
outdated() {
    apt-get -s -o Dir::State::status="$1/var/lib/dpkg/status" -o Dir::State::extended_states=/dev/null upgrade |
        sed -n 's/^Inst \([^ ]*\) \[.*/\1/p' | sort
}

# The record of an updated package in the status of a tree, as dpkg has it: version NAME VERSION FILE
version() { as_root sed -i "/^Package: $1\$/,/^\$/s/^Version: .*/Version: $2/" "$3"; }

make_minbase-updated() {
    local tree=$corpora/minbase-updated.partial/tree old deb packages
    old=$(scripts/corpus.sh minbase)
    as_root apt-get update -qq </dev/null
    packages=$(outdated "$old")
    [ -n "$packages" ] || { say "apt has no update for $old" && return 1; }
    mkdir -p "$corpora/minbase-updated.partial/debs"
    as_root cp -a "$old" "$tree"
    # shellcheck disable=SC2086 # each is a word
    (cd "$corpora/minbase-updated.partial/debs" && apt-get download -qq $packages 2>/dev/null)
    for deb in "$corpora/minbase-updated.partial/debs"/*.deb; do
        say "updating $(dpkg-deb -f "$deb" Package) to $(dpkg-deb -f "$deb" Version)"
        # As tar unpacks them: directories that are links in the tree, such as /lib, stay so.
        dpkg-deb --fsys-tarfile "$deb" | as_root tar -C "$tree" -x --keep-directory-symlink
        version "$(dpkg-deb -f "$deb" Package)" "$(dpkg-deb -f "$deb" Version)" "$tree/var/lib/dpkg/status"
    done
    as_root touch -r "$old/var/lib/dpkg/status" "$tree/var/lib/dpkg/status"
    as_root mv "$tree" "$corpora/minbase-updated" && rm -r "$corpora/minbase-updated.partial"
}

make_apps() { debian_tree bookworm python3,git "$corpora/apps"; }

make_programs() {
    debian_tree bookworm python3-numpy,nodejs,openjdk-17-jre-headless,libreoffice-writer-nogui "$corpora/programs"
}

make_pictures() {
    mkdir -p "$corpora/pictures.partial/package"
    (
        cd "$corpora/pictures.partial/package"
        apt-get download -qq marble-data 2>/dev/null
        dpkg-deb -x ./*.deb .
        number=0
        find . -name '*.png' -print0 | sort -z | while IFS= read -r -d '' file; do
            mv "$file" "../$(printf %03d "$number").png"
            number=$((number + 1))
        done
    )
    rm -r "$corpora/pictures.partial/package"
    mv "$corpora/pictures.partial" "$corpora/pictures"
}

make_chromium() {
    mkdir "$corpora/chromium.partial"
    (
        cd "$corpora/chromium.partial"
        apt-get download -qq chromium chromium-common 2>/dev/null
        for package in *.deb; do dpkg-deb -x "$package" . && rm "$package"; done
    )
    mv "$corpora/chromium.partial" "$corpora/chromium"
}

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

# piece NAME BYTES DIRECTORY [FIND-TEST]...: the files below, one after the other in byte order, up to that size.
piece() {
    local piece=$corpora/silesia.partial/pieces/$1 bytes=$2 directory=$3 && shift 3
    # head ends the pipe when it has enough, which xargs takes for a failure.
    (cd "$directory" && { find . -type f "$@" -print0 | sort -z | xargs -0 cat || :; } 2>/dev/null | head -c "$bytes") \
        >"$piece"
    [ -s "$piece" ]
}

make_silesia() {
    linux
    local apps
    apps=$(scripts/corpus.sh apps)
    mkdir -p "$corpora/silesia.partial/pieces"
    piece dictionary 41000000 "$corpora/linux/arch" -name '*.dts*'
    piece prose 10200000 "$corpora/linux/Documentation" -name '*.rst'
    piece programs 51200000 "$apps/usr/bin"
    piece libraries 16000000 "$apps/usr/lib" -name '*.so*'
    piece registers 33500000 "$corpora/linux/drivers/gpu/drm/amd/include" -name '*.h'
    piece source 21600000 "$corpora/linux/drivers/net/ethernet" -name '*.c'
    piece packages 10100000 "$apps/var/lib/dpkg"
    piece compressed 6600000 "$apps/usr/share" -name '*.gz'
    piece bytecode 7200000 "$apps/usr" -name '*.pyc'
    piece scripts 8500000 "$apps/usr/lib/python3.11" -name '*.py'
    piece tables 5300000 "$corpora/linux/tools/perf/pmu-events" -name '*.json'
    piece locales 5300000 "$apps/usr/lib/locale"
    tar -C "$corpora/silesia.partial/pieces" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
        -cf "$corpora/silesia.partial/silesia.tar" .
    rm -r "$corpora/silesia.partial/pieces"
    mv "$corpora/silesia.partial" "$corpora/silesia"
}

case $name in
    usr) echo /usr && exit ;;
    minbase | minbase-updated | tree60k | text1g | silesia | apps | programs | pictures | chromium) ;;
    *) say "no such corpus: $name" && exit 2 ;;
esac
if [ ! -d "$corpora/$name" ]; then
    say "making the corpus $name in $corpora"
    rm -rf "$corpora/$name.partial"
    "make_$name" >&2
fi
echo "$corpora/$name"

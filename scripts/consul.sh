#!/bin/sh
# Unpacks a Consul server for the tests into target/tools, where there is none on the PATH. Debian 11 was the last release
# with Consul in it, so the package comes by a list of its own, from the mirror that this machine uses; nothing of the
# system is touched, and no rights are needed.
set -eu
tools=$(dirname "$0")/../target/tools

if command -v consul >/dev/null 2>&1 || [ -x "$tools/consul/usr/bin/consul" ]; then
    exit 0
fi

cannot() {
    echo "$0: no Consul for the tests: $1; or put any \`consul\` on the PATH" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || cannot "only on Debian is it known where to get it"
# Where this release's own packages come from, in whichever format that is written down.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# shellcheck disable=SC2016 # apt's own variables
mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Identifier: Packages' 'Component: main' | sed -n "s|^$release ||p" | head -n 1)
[ -n "$mirror" ] || cannot "apt has no source with the packages of ${release:-this release}"

echo "fetching Consul, as it was in Debian 11"
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)
work=$(mktemp -d "$tools/consul.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/unpacked"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
signed=
[ ! -e $keys ] || signed="[signed-by=$keys]"
echo "deb $signed $mirror bullseye main" >"$work/sources.list"
apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists" \
        -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
(cd "$work" && apt update && apt download consul) || cannot "apt could not get it from $mirror, see above"
dpkg -x "$work"/consul_*.deb "$work/unpacked"
rm -rf "$tools/consul"
mv "$work/unpacked" "$tools/consul"

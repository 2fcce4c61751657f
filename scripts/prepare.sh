#!/bin/sh
# Installs the Debian packages that building (`build`) or testing (`test`) needs and that are missing. Where nothing is
# missing it does nothing, and needs neither a network nor root.
set -eu
# Where servers are, which is not on everybody's path.
PATH=$PATH:/usr/sbin

# command, or file (which may have a *), that shows that a package is there = package
BUILD="protoc=protobuf-compiler /usr/include/google/protobuf/empty.proto=libprotobuf-dev"
TEST="$BUILD etcd=etcd-server etcdctl=etcd-client faketime=faketime /usr/lib/*/libnss_wrapper.so=libnss-wrapper sqlite3=sqlite3 curl=curl docker=docker.io kubectl=kubernetes-client openssl=openssl python3=python3 pip3=python3-pip
dockerd=docker.io /var/lib/dpkg/info/busybox-static.list=busybox-static nghttp=nghttp2-client chromium=chromium slowhttptest=slowhttptest
/usr/share/zookeeper/bin/zkCli.sh=zookeeper /usr/lib/python3/dist-packages/kazoo=python3-kazoo
/usr/share/java/curator-recipes.jar=libcurator-recipes-java
/usr/lib/postgresql/*/bin/initdb=postgresql mariadbd=mariadb-server pgbouncer=pgbouncer"

# What tests need and no Debian package has.
beyond_debian() {
    [ "$1" = test ] || return 0
    "$(dirname "$0")/python.sh" kubernetes-37.0.2 kubernetes==37.0.2
    "$(dirname "$0")/python.sh" python-clients-2 grpcio==1.85.3 websockets==17.4 kosoku==0.1.0 uvicorn==0.54.0
    "$(dirname "$0")/python.sh" python-httpx-1 "httpx[http2]==0.28.1" h2==4.3.0
    "$(dirname "$0")/python.sh" python-hypercorn-1 hypercorn==0.18.0 h2==4.4.1 wsproto==1.3.2
}

case "${1:-}" in
    build) wanted=$BUILD ;;
    test) wanted=$TEST ;;
    *) echo "usage: $0 build|test" >&2; exit 2 ;;
esac

if [ "$1" = test ]; then
    "$(dirname "$0")/consul.sh"
fi

missing=
for pair in $wanted; do
    sign=${pair%%=*}
    case "$sign" in
        # shellcheck disable=SC2086 # a pattern
        /*) ls -d $sign >/dev/null 2>&1 || missing="$missing ${pair#*=}" ;;
        *) command -v "$sign" >/dev/null 2>&1 || missing="$missing ${pair#*=}" ;;
    esac
done
[ -n "$missing" ] || { beyond_debian "$1"; exit 0; }

cannot() {
    echo "$0: missing:$missing; $1" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || cannot "install what provides them on this system (these are the names on Debian)"
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || cannot "run as root: apt-get install$missing"
    as_root=sudo
fi

echo "installing$missing"
# Servers that a package brings stay off: the tests start their own, on free ports and with their data in temporary folders.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
    trap '$as_root rm -f $policy' EXIT
fi
$as_root apt-get update -qq || cannot "apt-get update did not work, see above"
# Since Debian 13 the Docker client is a package of its own, which the engine's only recommends.
case "$missing" in
    *docker.io*) ! apt-cache show docker-cli >/dev/null 2>&1 || missing="$missing docker-cli" ;;
esac
# shellcheck disable=SC2086 # a list of names
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null \
    || cannot "apt-get could not install them, see above"
beyond_debian "$1"

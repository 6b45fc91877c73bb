#!/usr/bin/env bash
# Installs what sagad needs to be built, tested and run, on Debian 12. The only place that names
# Debian packages. Quick, and without the network, when everything is there already.
#   deploy/setup.sh            to build, to test, to run the demo and the benchmark
#   deploy/setup.sh --checks   that, and what only the format and static checks need
#   deploy/setup.sh --kafka    that, and what a Kafka broker of the tests and the demo needs: Java, and
#                              Maven to fetch it (tests/kafka/broker.sh)
#   deploy/setup.sh --workers  that, and what the workers in other languages need of Debian: gRPC and
#                              database drivers for Python, a JDK and Maven for Java, Node where
#                              there is none
set -euo pipefail

packages=(
    build-essential cmake ninja-build pkg-config ccache
    libgrpc-dev libprotobuf-dev libprotobuf-c-dev protobuf-compiler protobuf-c-compiler
    libpq-dev libssl-dev libjansson-dev libinih-dev uthash-dev libcmocka-dev librdkafka-dev
    postgresql-15 postgresql-client-15
    libmariadb-dev mariadb-server-core mariadb-client-core # no service: the tests start their own
    libhiredis-dev redis-server # the cache of the fulfilment demo, which starts one of its own
    python3-protobuf # what the JSON of payloads is compared with
    python3-grpcio # a worker of no SDK, in the tests
    clang-14 libclang-rt-14-dev llvm-14 valgrind spin
)
checks=(clang-format-14 clang-tidy-14 cppcheck)
kafka=(openjdk-17-jre-headless maven)
workers=(python3-grpcio python3-protobuf python3-psycopg python3-psycopg2 python3-pymysql
    openjdk-17-jdk-headless maven)
command -v node >/dev/null || workers+=(nodejs npm) # another one's packages may conflict with Debian's

case "${1-}" in
    '') ;;
    --checks) packages+=("${checks[@]}") ;;
    --kafka) packages+=("${kafka[@]}") ;;
    --workers) packages+=("${workers[@]}") ;;
    *)
        echo "usage: $0 [--checks|--kafka|--workers]" >&2
        exit 2
        ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "$0: this system has no apt-get. The Debian 12 packages, or what matches them, are needed:" >&2
    echo "  ${packages[*]}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null; then
    as_root=(sudo env)
else
    echo "$0: these packages are missing, and installing them needs root or sudo. As root:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

echo "setup: installing ${missing[*]}"
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq update
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    install "${missing[@]}"

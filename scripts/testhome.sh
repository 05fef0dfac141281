# shellcheck shell=bash
# For scripts that run `go test` on everything: the binaries, both versions of
# bubblewrap, and a home and a temporary directory that hold nothing, so that
# tests find neither the caller's caches nor a home below /tmp. All of it goes
# when the script ends.

scripts/testenv .testenv bwrap-0.8 bwrap-0.12
stage=$(mktemp -d /var/tmp/pk-XXXXXX)
trap 'chmod -R u+w "$stage" 2>/dev/null; rm -rf "$stage"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
make -s build BIN="$stage/bin"
cp -a .testenv/bwrap-0.8 .testenv/bwrap-0.12 "$stage/"
chmod -R a+rX "$stage"
GOCACHE=$(go env GOCACHE) GOMODCACHE=$(go env GOMODCACHE)
mkdir -m 700 "$stage/h" "$stage/t"
export GOCACHE GOMODCACHE HOME="$stage/h" TMPDIR="$stage/t"
export PK_BIN="$stage/bin" PK_TEST_BWRAP="$stage/bwrap-0.12/bwrap"

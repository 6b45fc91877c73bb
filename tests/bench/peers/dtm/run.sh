#!/usr/bin/env bash
# DTM, through Go: not yet. It tells whether the module can be had, and is skipped.
#   tests/bench/peers/dtm/run.sh SECONDS CALLERS...
source "$(dirname "$0")/../peer.sh"
command -v go >/dev/null || {
    say "SKIPPED: there is no Go"
    exit 77
}
cd "$scratch"
peer_fetch "its Go module" go mod download github.com/dtm-labs/dtm@v1.19.0
say "SKIPPED: its module can be had, but a worker for it is still to be written"
exit 77

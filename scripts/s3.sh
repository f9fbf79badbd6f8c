# shellcheck shell=bash
# An S3 server of loopback for a script: versitygw, which keeps objects as files in $WORK/store. Sourced behind lib.sh, with WORK set.
# Builds it where it is missing, which needs Go.
#
#   BUCKET=garage      garage.sh instead, for a room with a log elsewhere

S3_PORT=${PORT:-$((20000 + $$ % 12000))}
S3_PID=
export AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$S3_PORT
if [ "${BUCKET:-}" = garage ]; then
    . "$(dirname "${BASH_SOURCE[0]}")/garage.sh"
    return
fi

VERSITYGW_VERSION=v1.8.0
S3_SERVER=$(command -v versitygw || echo "$TOOLS/bin/versitygw")
if [ ! -x "$S3_SERVER" ]; then
    have go || die "versitygw is missing, and Go, which builds it: apt install golang"
    GOBIN=$TOOLS/bin go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION" >&2
fi
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testsecret
mkdir -p "$WORK/store/rooms"

# start_server [OPTION...]: of the server.
start_server() {
    ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=testsecret "$S3_SERVER" --port "127.0.0.1:$S3_PORT" "$@" posix "$WORK/store" >>"$WORK/server.log" 2>&1 &
    S3_PID=$!
    wait_for_port "$S3_PORT" || die "versitygw does not start: $(tail -n 3 "$WORK/server.log")"
}
stop_server() {
    [ -n "$S3_PID" ] || return 0
    kill -9 "$S3_PID" 2>/dev/null || true
    wait "$S3_PID" 2>/dev/null || true
    S3_PID=
}

#!/usr/bin/env bash
# Tests the Java library: builds its native half, runs its JUnit suites under -Xcheck:jni, and checks its Javadoc.
# Part of `make test`. The first run downloads Maven's plugins and JUnit; later ones need no network.
#
#   scripts/test-java.sh [arguments of mvn: -Dtest=FilesTest]
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if ! have javac || ! have mvn; then
    install_packages default-jdk-headless maven
fi
cd "$ROOT/bindings/java"

# Without the network when everything is there already. What fails for a test fails again, and is shown then.
run() { mvn --batch-mode --quiet -Dnative.profile=dev -Dsurefire.printSummary=true "$@"; }
offline=()
if [ -d "$HOME/.m2/repository/org/junit/jupiter" ]; then
    offline=(--offline)
fi
mkdir -p target
# Of an earlier run nothing may count.
rm -rf target/surefire-reports
log=target/test.log
status=0
# One check that failed does not keep the others from running.
failed() {
    warn "$1"
    status=1
}
if ! run "${offline[@]}" test "$@" >"$log" 2>&1; then
    if [ ${#offline[@]} -eq 0 ] || ! grep -q 'offline mode' "$log" || ! run test "$@" >"$log" 2>&1; then
        cat "$log"
        failed "the Java tests failed: see above"
    fi
fi

# The machine's own checks of native code are warnings on standard output, which Maven files away.
if grep -rhE 'WARNING.*(JNI|native)|FATAL ERROR in native' target/surefire-reports --include='*.dumpstream' --include='*-output.txt' "$log"; then
    failed "the virtual machine found misuse of JNI: see above"
fi

if [ $# -eq 0 ]; then
    rm -rf target/javadoc
    # Errors and warnings alike: everything public is described.
    javadoc -quiet -Xdoclint:all -Werror -d target/javadoc -sourcepath src/main/java \
        -subpackages org.strongroom:info.guardianproject 2>&1 | tail -n 40
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed "the Javadoc has gaps: see above"
fi

python3 - <<'PY'
import glob
from xml.etree import ElementTree
total = [0, 0, 0, 0]
for path in sorted(glob.glob("target/surefire-reports/TEST-*.xml")):
    suite = ElementTree.parse(path).getroot()
    numbers = [int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")]
    total = [a + b for a, b in zip(total, numbers)]
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            print("Java: failed: %s.%s" % (case.get("classname"), case.get("name")))
print("Java: tests %d, failures %d, errors %d, skipped %d" % tuple(total))
PY
exit "$status"

package harness

import (
	"os"
	"os/exec"
	"testing"
)

// packages says how to get a program on Debian.
var packages = map[string]string{
	"kcat":   "apt-get install kcat",
	"java":   "apt-get install openjdk-17-jdk-headless",
	"javac":  "apt-get install openjdk-17-jdk-headless",
	"mvn":    "apt-get install maven",
	"strace": "apt-get install strace",
	// Clients.
	"python3": "apt-get install python3-venv",
	"node":    "apt-get install nodejs",
	"npm":     "apt-get install npm",
	// The power cuts.
	"losetup":   "apt-get install mount",
	"mkfs.ext4": "apt-get install e2fsprogs",
	"mkfs.xfs":  "apt-get install xfsprogs",
}

// inCI tells whether a missing program is a failure: what a pipeline checks must not shrink unseen.
func inCI() bool { return os.Getenv("CI") == "true" }

// Need skips the test when a program is not installed; with CI=true it fails it.
func Need(tb testing.TB, programs ...string) {
	tb.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Unavailable(tb, "needs "+p+": "+packages[p])
		}
	}
}

// NeedKafka skips the test when a real Apache Kafka cannot be run here.
func NeedKafka(tb testing.TB) {
	tb.Helper()
	Need(tb, "java", "javac")
	if os.Getenv(libsVariable) == "" {
		Need(tb, "mvn")
	}
}

// Unavailable skips the test because of what this machine lacks or does not allow; with CI=true it fails it.
func Unavailable(tb testing.TB, why string) {
	tb.Helper()
	if inCI() {
		tb.Fatal(why)
	}
	tb.Skip(why)
}

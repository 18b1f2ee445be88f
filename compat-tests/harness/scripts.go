package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Versions of the clients that are written in a scripting language.
const (
	aiokafkaVersion = "0.14.0"
	kafkajsVersion  = "2.2.4"
)

// aiokafka is a Python that has the client, in an environment of its own.
var aiokafka = sync.OnceValues(func() (string, error) {
	dir, unlock, err := cached("aiokafka-" + aiokafkaVersion)
	if err != nil {
		return "", err
	}
	defer unlock()
	python := filepath.Join(dir, "venv", "bin", "python")
	return python, fetched(dir, [][]string{
		{"python3", "-m", "venv", "--clear", filepath.Join(dir, "venv")},
		{python, "-m", "pip", "install", "--quiet", "aiokafka==" + aiokafkaVersion},
	})
})

// kafkajs is the directory of modules that has the client.
var kafkajs = sync.OnceValues(func() (string, error) {
	dir, unlock, err := cached("kafkajs-" + kafkajsVersion)
	if err != nil {
		return "", err
	}
	defer unlock()
	return filepath.Join(dir, "node_modules"), fetched(dir, [][]string{
		{"npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, "kafkajs@" + kafkajsVersion},
	})
})

// fetched runs commands that fill a directory, unless they have all succeeded before.
func fetched(dir string, commands [][]string) error {
	done := filepath.Join(dir, ".fetched")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	for _, c := range commands {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", c, err, out)
		}
	}
	return os.WriteFile(done, nil, 0o600)
}

// AIOKafka is a Python that has aiokafka, fetched from PyPI on first use. Without Python the test is skipped, with
// CI=true it fails.
func AIOKafka(tb testing.TB) string {
	tb.Helper()
	Need(tb, "python3")
	if err := exec.CommandContext(tb.Context(), "python3", "-c", "import ensurepip").Run(); err != nil {
		Unavailable(tb, "needs Python's venv: apt-get install python3-venv")
	}
	python, err := aiokafka()
	if err != nil {
		tb.Fatal(err)
	}
	return python
}

// KafkaJS is the value of NODE_PATH with which kafkajs is found, fetched from npm on first use. Without Node.js the
// test is skipped, with CI=true it fails.
func KafkaJS(tb testing.TB) string {
	tb.Helper()
	Need(tb, "node", "npm")
	modules, err := kafkajs()
	if err != nil {
		tb.Fatal(err)
	}
	return modules
}

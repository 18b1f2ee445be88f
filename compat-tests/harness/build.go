package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// binaryVariable names a ready-made gregor binary; without it the parent directory is built.
const binaryVariable = "GREGOR_BINARY"

// moduleDir is the directory of compat-tests.
func moduleDir() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("harness: no caller")
	}
	return filepath.Dir(filepath.Dir(file))
}

// Binary builds gregor, once per test process, and returns its path.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return filepath.Abs(path)
	}
	dir, err := os.MkdirTemp("", "gregor-compat-bin")
	if err != nil {
		return "", err
	}
	atExit(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "gregor")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/gregor")
	cmd.Dir = filepath.Dir(moduleDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/gregor: %w\n%s", err, out)
	}
	return path, nil
})

package harness

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// kcatTimeout bounds one run of kcat.
const kcatTimeout = 60 * time.Second

// Kcat runs kcat against a node to its end.
func Kcat(tb testing.TB, n *Node, stdin string, args ...string) Result {
	tb.Helper()
	Need(tb, "kcat")
	return RunProgram(tb, kcatTimeout, stdin, "kcat", append([]string{"-b", n.Addr}, args...)...)
}

// RunProgram runs a program to its end.
func RunProgram(tb testing.TB, timeout time.Duration, stdin, name string, args ...string) Result {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		tb.Fatalf("%s %q: %v\n%s%s", name, args, err, stdout.String(), stderr.String())
	}
	return Result{Status: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

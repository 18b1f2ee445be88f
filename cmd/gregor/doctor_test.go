package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// doctor runs the command, and returns what it prints.
func doctor(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := newDoctor()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	err := c.Execute()
	return out.String(), err
}

func TestDoctorTakesDirectoriesAndAFileInAnyOrder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(file, []byte("node.id=1\nprocess.roles=broker,controller\nlog.dirs="+filepath.Join(dir, "a")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "b")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{data}, {"--log-dirs", data}, {file, data}, {data, file}} {
		out, err := doctor(t, args...)
		var status errStatus
		if err != nil && !errors.As(err, &status) {
			t.Errorf("%v: %v", args, err)
		}
		if !strings.Contains(out, data) || strings.Contains(out, "cannot read the configuration") {
			t.Errorf("%v: %s", args, out)
		}
	}
	if _, err := doctor(t, file, file+"2"); err == nil || !strings.Contains(err.Error(), "only one of them") {
		t.Errorf("two files: %v", err)
	}
	if _, err := doctor(t); err == nil || !strings.Contains(err.Error(), "nothing to examine") {
		t.Errorf("no argument: %v", err)
	}
}

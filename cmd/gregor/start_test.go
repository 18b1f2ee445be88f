package main

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestTerminalThatGoesAwayStopsTheNodeUnlessIgnored(t *testing.T) {
	if !slices.Contains(stopSignals(false), os.Signal(syscall.SIGHUP)) || slices.Contains(stopSignals(true), os.Signal(syscall.SIGHUP)) {
		t.Errorf("signals %v, with nohup %v", stopSignals(false), stopSignals(true))
	}
}

func TestLogOfASelfFormattingStartShowsNoKeys(t *testing.T) {
	var out bytes.Buffer
	l := lineLogger{slog.New(slog.NewTextHandler(&out, nil))}
	if _, err := l.Write([]byte("Bootstrap metadata: UserScramCredentialRecord(storedKey=[1])\nFormatting d.\n")); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "storedKey") || !strings.Contains(got, "Formatting d.") {
		t.Errorf("log %q", got)
	}
}

func TestFormatTakesOneWayToNameTheControllers(t *testing.T) {
	root := newRoot()
	root.SetArgs([]string{"format", "-t", "x", "-c", "no.properties", "-s", "-N"})
	root.SetOut(&bytes.Buffer{})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "none of the others can be") {
		t.Errorf("-s with -N: %v", err)
	}
}

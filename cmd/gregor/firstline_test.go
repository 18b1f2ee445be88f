package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestTheNodeIntroducesItselfBeforeAnyOtherLine(t *testing.T) {
	var out bytes.Buffer
	held := newHeldLog(slog.NewTextHandler(&out, nil))
	log := slog.New(held).With("a", 1)
	log.Warn("early")
	if out.Len() > 0 {
		t.Errorf("written before the first line: %s", out.String())
	}
	held.release(func() { log.Info("first") })
	log.Info("late")
	var got []string
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(line))
	}
	want := []string{"INFO msg=first a=1", "WARN msg=early a=1", "INFO msg=late a=1"}
	if strings.Join(got, ";") != strings.Join(want, ";") {
		t.Errorf("lines %q, want %q", got, want)
	}
}

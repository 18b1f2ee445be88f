package config

import (
	"strings"
	"testing"
)

func TestAlterationsThatDoNotFitTogetherAreRefused(t *testing.T) {
	c, _ := mustLoad(t, combined+"log.cleaner.dedupe.buffer.size=2097152\nnum.io.threads=4\n")
	base, _ := c.WithDynamic(map[string]string{"background.threads": "20"}, nil)
	for _, x := range []struct {
		defaults, own, want string // one NAME=VALUE each; want is "" for accepted
	}{
		{"background.threads=20", "", ""},
		{"background.threads=40", "", ""},
		{"background.threads=41", "", "background.threads=41, value should not be greater than double the current value 20"},
		{"background.threads=9", "", "background.threads=9, value should be at least half the current value 20"},
		{"background.threads=99", "background.threads=20", ""}, // the broker's own value is in force
		{"background.threads=20", "num.io.threads=8", ""},
		{"background.threads=20", "num.io.threads=9", "num.io.threads=9, value should not"},
		{"background.threads=20", "log.cleaner.threads=2", "log.cleaner.dedupe.buffer.size: Invalid value 2097152: must be at least 1MB per cleaner thread"},
		{"background.threads=20", "log.retention.ms=0", "log.retention.ms"},
		{"background.threads=20", "some.plugin=0", ""},
	} {
		err := base.CheckAlteration(pair(x.defaults), pair(x.own))
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func pair(s string) map[string]string {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return nil
	}
	return map[string]string{name: value}
}

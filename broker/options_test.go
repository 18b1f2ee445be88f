package broker

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"gregor/broker/config"
)

func TestHostsWhoseLimitIsNotKeptAreWarnedOf(t *testing.T) {
	c, _, err := config.Load(config.Options{Overrides: []string{"max.connections.per.ip.overrides=127.0.0.1:3,[::1]:4,no host:5"}})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	limits := connectionLimits(c, slog.New(slog.NewTextHandler(&log, nil))).MaxConnectionsPerIPOverrides
	if len(limits) != 2 || limits[netip.MustParseAddr("127.0.0.1")] != 3 || limits[netip.MustParseAddr("::1")] != 4 {
		t.Errorf("limits %v", limits)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `host="no host"`) {
		t.Errorf("log %q", got)
	}
}

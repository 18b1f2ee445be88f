// Package groups shows that Gregor's group coordinator does what Kafka's does: the same random requests get the same
// answers, real clients roll over its groups, groups move between the two on one data directory, and bad input costs
// neither correctness nor memory.
package groups

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) {
	// The groups of the rolling test live at the same time; they mostly wait.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	harness.Main(m)
}

// patience bounds every wait; the machine may be busy.
const patience = 60 * time.Second

// setting is a number from the environment.
func setting(tb testing.TB, name string, usual int64) int64 {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}

// awaitCoordinator waits until the node has loaded the groups.
func awaitCoordinator(tb testing.TB, n *harness.Node, groups ...string) {
	tb.Helper()
	c := wire.Dial(tb, n.Addr)
	defer func() { _ = c.Close() }()
	for _, g := range groups {
		harness.Eventually(tb, patience, fmt.Sprintf("%s coordinates %s", n.Kind, g), func() bool {
			find := wire.At(kmsg.NewPtrFindCoordinatorRequest(), 4)
			find.CoordinatorKeys = []string{g}
			if r, ok := c.Request(find).(*kmsg.FindCoordinatorResponse); !ok || r.Coordinators[0].ErrorCode != 0 {
				return false
			}
			req := wire.At(kmsg.NewPtrOffsetFetchRequest(), 7)
			req.Group = g
			r, ok := c.Request(req).(*kmsg.OffsetFetchResponse)
			return ok && r.ErrorCode == 0
		})
	}
}

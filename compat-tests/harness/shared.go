package harness

import (
	"sync"
	"testing"
)

var sharedNodes struct {
	sync.Mutex
	byKind map[Kind]*Node
}

// Shared returns a node that all tests of the package use together, started by the first that wants it. Tests keep
// out of each other's way by the names of their topics and groups.
func Shared(tb testing.TB, kind Kind) *Node {
	tb.Helper()
	sharedNodes.Lock()
	defer sharedNodes.Unlock()
	if n := sharedNodes.byKind[kind]; n != nil {
		if !n.Alive() {
			tb.Fatalf("the shared %s is gone:\n%s", kind, n.LogTail(60))
		}
		return n
	}
	n, err := newNode(tb, kind, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	n.Start(tb)
	atExit(n.discard)
	if sharedNodes.byKind == nil {
		sharedNodes.byKind = map[Kind]*Node{}
	}
	sharedNodes.byKind[kind] = n
	return n
}

// OnBoth runs a test against Gregor and, where it can be run, against Kafka: what a test claims about Kafka is so
// checked on Kafka.
func OnBoth(t *testing.T, test func(t *testing.T, n *Node)) {
	t.Helper()
	for _, kind := range []Kind{Gregor, Kafka} {
		t.Run(string(kind), func(t *testing.T) {
			test(t, Shared(t, kind))
		})
	}
}

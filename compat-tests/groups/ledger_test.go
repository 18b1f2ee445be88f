package groups

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
)

// ledger keeps what the members of one group own and have processed.
type ledger struct {
	mu        sync.Mutex
	processed map[int]int
	owners    map[int32]string
	// byGeneration is who owned a partition in a generation, where a client tells.
	byGeneration map[string]string
	faults       []string
	assignments  int
}

func newLedger() *ledger {
	return &ledger{processed: map[int]int{}, owners: map[int32]string{}, byGeneration: map[string]string{}}
}

// assign notes that a member owns partitions from now on. A generation of 0 is not known.
func (l *ledger) assign(member string, generation int32, partitions []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		l.assignments++
		if other, taken := l.owners[p]; taken && other != member {
			l.faults = append(l.faults, fmt.Sprintf("partition %d is given to %s while %s owns it", p, member, other))
		}
		l.owners[p] = member
		if generation <= 0 {
			continue
		}
		key := fmt.Sprintf("%d/%d", generation, p)
		if other, taken := l.byGeneration[key]; taken && other != member {
			l.faults = append(l.faults, fmt.Sprintf("partition %d belongs to %s and to %s in generation %d", p, other, member, generation))
		}
		l.byGeneration[key] = member
	}
}

// release notes that a member gave partitions back.
func (l *ledger) release(member string, partitions []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		if l.owners[p] == member {
			delete(l.owners, p)
		}
	}
}

// dead notes that a member is gone or paused: what it owned is free.
func (l *ledger) dead(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, owner := range l.owners {
		if owner == member {
			delete(l.owners, p)
		}
	}
}

func (l *ledger) process(value string) {
	n, err := strconv.Atoi(value)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.faults = append(l.faults, fmt.Sprintf("a record that nobody wrote: %q", value))
		return
	}
	l.processed[n]++
}

// missing is how many of the first n records nobody has processed.
func (l *ledger) missing(n int) (count, first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = -1
	for i := range n {
		if l.processed[i] == 0 {
			if count++; first < 0 {
				first = i
			}
		}
	}
	return count, first
}

// report logs what happened and fails the test for each fault.
func (l *ledger) report(t *testing.T, written int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	again := 0
	for _, n := range l.processed {
		again += n - 1
	}
	for _, f := range l.faults {
		t.Error(f)
	}
	t.Logf("%d records written, each processed; %d processed again after a failure; %d assignments of a partition", written, again, l.assignments)
}

// network is the network of one member: it can be cut for ever, and held for a time.
type network struct {
	mu    sync.Mutex
	gone  bool
	held  chan struct{} // closed when it is let go; nil while it is not held
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	if err := n.pass(); err != nil {
		return nil, err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return &heldConn{Conn: c, network: n}, nil
}

// pass waits while the network is held.
func (n *network) pass() error {
	n.mu.Lock()
	held, gone := n.held, n.gone
	n.mu.Unlock()
	if gone {
		return net.ErrClosed
	}
	if held != nil {
		<-held
	}
	return nil
}

// cut ends every connection without a word.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
	for _, c := range n.conns {
		_ = c.Close()
	}
}

func (n *network) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = make(chan struct{})
}

func (n *network) letGo() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held != nil {
		close(n.held)
		n.held = nil
	}
}

// heldConn is a connection of a network that may be held.
type heldConn struct {
	net.Conn
	network *network
}

// Read implements net.Conn.
func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if passErr := c.network.pass(); passErr != nil {
		return 0, passErr
	}
	return n, err
}

// Write implements net.Conn.
func (c *heldConn) Write(b []byte) (int, error) {
	if err := c.network.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

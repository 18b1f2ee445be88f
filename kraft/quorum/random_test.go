package quorum

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// history is a random run of a cluster.
type history struct {
	*cluster
	t     *rapid.T
	named int
}

// TestCommittedPrefixNeverChangesInRandomHistories runs elections, proposals, losses, duplicates, partitions, crashes in
// the middle of writes, snapshots and voter changes in random order. What any node takes for committed must be the
// same on all nodes, for ever, and be what its leader promised; an epoch has one leader; in the end all logs are equal.
func TestCommittedPrefixNeverChangesInRandomHistories(t *testing.T) {
	for _, voters := range []int32{1, 3, 5} {
		t.Run(fmt.Sprintf("%d voters", voters), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h := &history{t: t, cluster: newCluster(t, rapid.Int16Range(0, 1).Draw(t, "level"))}
				var ids []int32
				for id := int32(1); id <= voters; id++ {
					ids = append(ids, id)
				}
				h.format(ids...)
				for _, id := range ids {
					h.must(h.start(id))
				}
				for range rapid.IntRange(50, 400).Draw(t, "steps") {
					h.act()
				}
				h.recover()
				h.finish()
			})
		})
	}
}

// act does one thing. Deliveries are the most frequent, or nothing would ever be committed.
func (h *history) act() {
	actions := []struct {
		weight int
		name   string
		run    func()
	}{
		{40, "deliver", h.deliverOne},
		{3, "drop", h.dropOne},
		{3, "duplicate", h.duplicate},
		{20, "propose", h.proposeSome},
		{6, "campaign", h.campaignOne},
		{6, "tick leader", h.tickLeader},
		{2, "partition", h.partitionOff},
		{3, "heal", h.healAll},
		{3, "crash", h.crashOne},
		{4, "crash soon", h.crashSoon},
		{8, "restart", h.restartOne},
		{4, "snapshot", h.snapshotOne},
		{4, "clean", h.cleanOne},
		{2, "add voter", h.addOne},
		{2, "remove voter", h.removeOne},
		{3, "fetch", h.fetchOne},
		{1, "resign", h.resignOne},
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := rapid.IntRange(0, total-1).Draw(h.t, "action")
	for _, a := range actions {
		if at -= a.weight; at < 0 {
			h.t.Log(a.name)
			a.run()
			return
		}
	}
}

func (h *history) pick(what string, of []int32) (int32, bool) {
	if len(of) == 0 {
		return 0, false
	}
	return of[rapid.IntRange(0, len(of)-1).Draw(h.t, what)], true
}

func (h *history) which(want func(*testNode) bool) []int32 {
	return slices.DeleteFunc(h.ids(), func(id int32) bool { return !want(h.nodes[id]) })
}

func isUp(n *testNode) bool    { return n.machine != nil }
func isDown(n *testNode) bool  { return n.machine == nil }
func isVoter(n *testNode) bool { return n.machine != nil && n.machine.rn != nil }
func leads(n *testNode) bool   { return n.machine != nil && n.machine.lead.opened }

func (h *history) deliverOne() {
	if len(h.queue) > 0 {
		h.must(h.deliver(rapid.IntRange(0, min(len(h.queue)-1, 5)).Draw(h.t, "message")))
	}
}

func (h *history) dropOne() {
	if len(h.queue) > 0 {
		i := rapid.IntRange(0, len(h.queue)-1).Draw(h.t, "message")
		h.queue = slices.Delete(h.queue, i, i+1)
	}
}

func (h *history) duplicate() {
	if len(h.queue) > 0 && len(h.queue) < 200 {
		h.queue = append(h.queue, h.queue[rapid.IntRange(0, len(h.queue)-1).Draw(h.t, "message")])
	}
}

func (h *history) proposeSome() {
	id, ok := h.pick("leader", h.which(leads))
	if !ok {
		return
	}
	var names []string
	for range rapid.IntRange(1, 4).Draw(h.t, "records") {
		h.named++
		names = append(names, fmt.Sprintf("topic-%d", h.named))
	}
	if _, _, err := h.propose(h.nodes[id], names...); err != nil && leads(h.nodes[id]) && !h.nodes[id].machine.lead.handing {
		h.t.Fatalf("leader %d: %v", id, err)
	}
}

func (h *history) campaignOne() {
	if id, ok := h.pick("candidate", h.which(isVoter)); ok {
		h.campaign(id)
	}
}

func (h *history) tickLeader() {
	for _, id := range h.which(leads) {
		for range rapid.IntRange(1, 4).Draw(h.t, "ticks") {
			if leads(h.nodes[id]) {
				h.must(h.nodes[id].machine.tick())
				h.must(h.settle(h.nodes[id]))
			}
		}
	}
}

func (h *history) partitionOff() {
	clear(h.cut)
	for _, a := range h.ids() {
		if rapid.Bool().Draw(h.t, "cut off") {
			for _, b := range h.ids() {
				h.cut[[2]int32{a, b}], h.cut[[2]int32{b, a}] = true, true
			}
		}
	}
}

func (h *history) healAll() { clear(h.cut) }

func (h *history) crashOne() {
	if id, ok := h.pick("node", h.which(isUp)); ok {
		h.crash(id, rapid.Uint64().Draw(h.t, "seed"))
	}
}

func (h *history) crashSoon() {
	if id, ok := h.pick("node", h.which(isUp)); ok {
		h.crashIn(h.nodes[id], rapid.IntRange(0, 6).Draw(h.t, "operations"), rapid.Uint64().Draw(h.t, "seed"))
	}
}

func (h *history) restartOne() {
	if id, ok := h.pick("node", h.which(isDown)); ok {
		h.must(h.start(id))
	}
}

func (h *history) snapshotOne() {
	id, ok := h.pick("node", h.which(isUp))
	if !ok || h.nodes[id].events.next == 0 {
		return
	}
	_, _ = h.cluster.snapshot(h.nodes[id])
	h.must(h.settle(h.nodes[id]))
}

func (h *history) cleanOne() {
	id, ok := h.pick("node", h.which(isUp))
	if !ok {
		return
	}
	n := h.nodes[id]
	before := n.opts.Log
	n.opts.Log.RetentionBytes = 0
	h.must(n.machine.maintain(time.Now()))
	n.opts.Log = before
	h.must(h.settle(n))
}

func (h *history) addOne() {
	leader, ok := h.pick("leader", h.which(leads))
	if !ok {
		return
	}
	observer, ok := h.pick("observer", h.which(func(n *testNode) bool { return n.machine != nil && n.machine.rn == nil }))
	if !ok {
		if len(h.nodes) < 7 {
			id := int32(len(h.nodes) + 1)
			h.add(id, 0)
			h.must(h.start(id))
		}
		return
	}
	l := h.nodes[leader]
	_, _ = l.machine.addVoter(testVoter(observer, 0))
	h.must(h.settle(l))
}

func (h *history) removeOne() {
	leader, ok := h.pick("leader", h.which(leads))
	if !ok {
		return
	}
	l := h.nodes[leader]
	if l.machine.config.voters.Len() <= 2 {
		return // the loss of one must not stop the quorum for ever
	}
	victim, _ := h.pick("victim", l.machine.config.voters.IDs())
	_, _ = l.machine.removeVoter(testVoter(victim, 0).Key)
	h.must(h.settle(l))
}

func (h *history) fetchOne() {
	leader, ok := h.pick("leader", h.which(leads))
	if !ok {
		return
	}
	observer, ok := h.pick("observer", h.which(func(n *testNode) bool { return n.machine != nil && n.machine.rn == nil }))
	if !ok || h.cut[[2]int32{leader, observer}] {
		return
	}
	if err := h.observe(h.nodes[observer], h.nodes[leader]); err != nil && isUp(h.nodes[observer]) {
		// An old leader is answered with an old epoch; a fetch from it ends without progress.
		if h.nodes[leader].machine.seen.term >= h.nodes[observer].machine.states.hardState().term {
			h.t.Fatalf("observer %d fetching from %d: %v", observer, leader, err)
		}
	}
}

func (h *history) resignOne() {
	if id, ok := h.pick("leader", h.which(leads)); ok {
		h.must(h.nodes[id].machine.startRaft())
		h.must(h.settle(h.nodes[id]))
	}
}

// recover ends all crashes.
func (h *history) recover() {
	for _, id := range h.ids() {
		n := h.nodes[id]
		n.fs.OnOp(nil)
		if disk := n.remains.Load(); disk != nil {
			n.machine, n.fs = nil, disk
		}
		if n.machine == nil {
			h.must(h.start(id))
		}
	}
}

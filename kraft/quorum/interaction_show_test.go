package quorum

import (
	"fmt"
	"strings"
)

// statusCommand: `status` shows a line for each node.
func (in *interaction) statusCommand() string { return in.status() }

// logCommand: `log 1 [from=5]` lists the batches of a node's log.
func (in *interaction) logCommand() string { return in.node().dump(in.arg("from", 0)) }

// eventsCommand: `events 1` shows, once, what a node's state machine was told.
func (in *interaction) eventsCommand() string {
	n := in.node()
	calls := n.events.calls
	n.events.calls = nil
	if len(calls) == 0 {
		return "nothing\n"
	}
	return strings.Join(calls, "\n") + "\n"
}

// quorumStateCommand: `quorum-state 1` shows the term and vote on a node's disk.
func (in *interaction) quorumStateCommand() string {
	n := in.node()
	s, err := openStateFile(n.fs, n.opts.Dir+"/"+quorumStateFile, 0)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("epoch=%d voted=%d leader=%d\n", s.saved.term, nodeID(s.saved.vote), s.saved.leader)
}

package quorum

import (
	"fmt"
	"time"
)

// snapshotCommand: `snapshot 1` writes a snapshot of all that is committed on a node.
func (in *interaction) snapshotCommand() string {
	id, err := in.snapshot(in.node())
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("snapshot %v\n", id)
}

// clean: `clean 1` deletes all snapshots but the newest, and the log before it.
func (in *interaction) clean() string {
	n := in.node()
	before := n.opts.Log
	n.opts.Log.RetentionBytes = 0
	in.must(n.machine.maintain(time.Now()))
	n.opts.Log = before
	return in.status()
}

package quorum

import "gregor/storage/vfs"

// addNodes: `add-nodes 1,2,3 [level=0|1]` formats and starts the first voters of the quorum.
func (in *interaction) addNodes() string {
	in.cluster = newCluster(in.t, int16(in.arg("level", 1)))
	ids := in.idList(in.d.CmdArgs[:1])
	in.format(ids...)
	for _, id := range ids {
		in.must(in.start(id))
	}
	return in.status()
}

// addObserver: `add-observer 4` starts a node with an empty disk that is no voter.
func (in *interaction) addObserver() string {
	in.add(in.id(), 0)
	in.must(in.start(in.id()))
	return in.status()
}

// stop: `stop 1` stops a node properly.
func (in *interaction) stop() string {
	in.node()
	in.close(in.id())
	return in.status()
}

// crashCommand: `crash 1 [seed=3|keep]` kills a node; what it did not sync is lost, or torn as the seed decides.
func (in *interaction) crashCommand() string {
	in.node()
	seed := uint64(in.arg("seed", 0))
	if in.d.HasArg("keep") {
		seed = vfs.CrashKeepAll
	}
	in.crash(in.id(), seed)
	return ""
}

// restart: `restart 1` starts a node from its disk.
func (in *interaction) restart() string { return in.result(in.start(in.id())) }

// wipe: `wipe 3` kills a node and gives it an empty disk with another directory id under its old name.
func (in *interaction) wipe() string {
	in.incarnation++
	old := in.nodes[in.id()]
	n := in.add(in.id(), in.incarnation)
	n.opts.StaticVoters = old.opts.StaticVoters
	return in.result(in.start(in.id()))
}

// crashInCommand: `crash-in 1 [operations=2] [seed=3|keep]` lets a node crash in the middle of what it does next: before one of
// its next writes, syncs or renames of the log, the quorum state or a snapshot.
func (in *interaction) crashInCommand() string {
	seed := uint64(in.arg("seed", 0))
	if in.d.HasArg("keep") {
		seed = vfs.CrashKeepAll
	}
	in.crashIn(in.node(), int(in.arg("operations", 0)), seed)
	return ""
}

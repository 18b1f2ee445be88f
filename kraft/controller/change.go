package controller

import (
	"slices"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// Leader ids with a meaning of their own in PartitionChangeRecord.
const (
	noLeader       int32 = -1
	noLeaderChange int32 = -2
)

// Values of LeaderRecoveryState (KIP-704).
const (
	recovered        int8 = 0
	recovering       int8 = 1
	noRecoveryChange int8 = -1
)

// electionKind says which replicas may become leader.
type electionKind int8

const (
	// The zero kind keeps a good leader, else takes the first live replica of ISR (or ELR when the ISR is empty).
	_ electionKind = iota
	// electPreferred is the same, but the first replica is taken when it can be.
	electPreferred
	// electUnclean is the same, but takes any live replica when none of ISR and ELR lives.
	electUnclean
)

// partitionChange computes the record that takes a partition from its present state to a wanted one: it completes a
// reassignment whose replicas are in sync, keeps the ELR (KIP-966), elects a leader and leaves out what does not
// change. The zero targets are the present state.
type partitionChange struct {
	part partition

	// mayLead tells whether a broker may lead this partition: active and with the replica's directory online.
	mayLead func(broker int32) bool
	// defaultDir is the directory of a replica that has none yet.
	defaultDir func(broker int32) protocol.UUID
	features   features
	minISR     int

	isr, replicas     []int32
	removing, adding  []int32
	elr               []int32
	dirs              map[int32]protocol.UUID
	uncleanShutdown   int32
	election          electionKind
	leaderRecovery    int8
	hasLeaderRecovery bool
}

// newPartitionChange starts a change of one partition.
func (d *Decider) newPartitionChange(part partition) *partitionChange {
	c := &partitionChange{
		part:            part,
		mayLead:         d.leaderTest(part.Partition, d.isActive),
		defaultDir:      d.defaultDir,
		features:        d.features,
		minISR:          d.effectiveMinISR(part.topic),
		isr:             part.ISR,
		replicas:        part.Replicas,
		removing:        part.RemovingReplicas,
		adding:          part.AddingReplicas,
		elr:             part.ELR,
		dirs:            make(map[int32]protocol.UUID, len(part.Replicas)),
		uncleanShutdown: noLeader,
	}
	for i, r := range part.Replicas {
		if i < len(part.Directories) {
			c.dirs[r] = part.Directories[i]
		}
	}
	return c
}

// leaderTest narrows a test of brokers to those whose directory of this replica is online.
func (d *Decider) leaderTest(part *image.Partition, alive func(int32) bool) func(int32) bool {
	return func(broker int32) bool {
		if !alive(broker) {
			return false
		}
		dir, ok := part.Directory(broker)
		if !ok {
			dir = protocol.DirectoryMigrating
		}
		return d.hasOnlineDir(broker, dir)
	}
}

// record gives the change as a record, or nil when nothing changes.
func (c *partitionChange) record() *metadata.PartitionChangeRecord {
	r := &metadata.PartitionChangeRecord{
		PartitionID: c.part.index, TopicID: c.part.topic.ID, Leader: noLeaderChange, LeaderRecoveryState: noRecoveryChange,
	}
	c.completeReassignment()
	c.targetELR()
	c.elect(r)
	if r.Leader == noLeaderChange && !containsAll(c.replicas, c.part.Replicas) {
		// A replica is taken away: a new leader epoch makes it stop fetching.
		r.Leader = c.part.Leader
	}
	c.setELR(r)
	if r.ISR == nil && (len(c.isr) > 0 || c.features.elr()) && !slices.Equal(c.isr, c.part.ISR) {
		r.ISR = nonNil(c.isr)
	}
	if c.features.leaderEpochBumpOnISRShrink() && r.Leader == noLeaderChange && r.ISR != nil &&
		!containsAll(r.ISR, c.part.ISR) {
		r.Leader = c.part.Leader
	}
	c.setLastKnownLeader(r)
	c.setAssignment(r)
	if c.hasLeaderRecovery && c.leaderRecovery != c.part.LeaderRecoveryState {
		r.LeaderRecoveryState = c.leaderRecovery
	}
	if isNoOp(r) {
		return nil
	}
	return r
}

func isNoOp(r *metadata.PartitionChangeRecord) bool {
	return r.ISR == nil && r.EligibleLeaderReplicas == nil && r.LastKnownELR == nil && r.Leader == noLeaderChange &&
		r.Replicas == nil && r.RemovingReplicas == nil && r.AddingReplicas == nil &&
		r.LeaderRecoveryState == noRecoveryChange && r.Directories == nil
}

// completeReassignment ends a reassignment whose target replicas are all in sync.
func (c *partitionChange) completeReassignment() {
	if len(c.removing) == 0 && len(c.adding) == 0 {
		return
	}
	isr, replicas := without(c.isr, c.removing...), without(c.replicas, c.removing...)
	if len(c.removing) > 0 && (len(isr) == 0 || len(replicas) == 0) || !containsAll(isr, replicas) {
		return
	}
	c.isr, c.replicas = isr, replicas
	c.removing, c.adding = nil, nil
}

// targetELR keeps the replicas that hold all committed data although they are out of the ISR, for as long as the ISR
// is below min.insync.replicas.
func (c *partitionChange) targetELR() {
	if !c.features.elr() {
		return
	}
	if len(c.isr) >= c.minISR {
		c.elr = nil
		return
	}
	candidates := append(slices.Clone(c.elr), c.part.ISR...)
	candidates = without(without(candidates, c.isr...), c.uncleanShutdown)
	// A reassignment that has just ended may have taken a replica away; Kafka 4.4 would keep it in the ELR.
	candidates = slices.DeleteFunc(candidates, func(r int32) bool { return !slices.Contains(c.replicas, r) })
	slices.Sort(candidates)
	c.elr = slices.Compact(candidates)
}

// mayBeElected says whether a replica holds all committed data and lives.
func (c *partitionChange) mayBeElected(broker int32) bool {
	holdsAll := slices.Contains(c.isr, broker) || len(c.isr) == 0 && slices.Contains(c.elr, broker)
	return holdsAll && c.mayLead(broker)
}

// chooseLeader gives the leader to be and whether committed data may be lost with it.
func (c *partitionChange) chooseLeader() (leader int32, unclean bool) {
	if c.election == electPreferred && len(c.replicas) > 0 && c.mayBeElected(c.replicas[0]) {
		return c.replicas[0], false
	}
	if c.mayBeElected(c.part.Leader) {
		return c.part.Leader, false
	}
	if i := slices.IndexFunc(c.replicas, c.mayBeElected); i >= 0 {
		return c.replicas[i], false
	}
	if last, ok := c.lastKnownLeader(); ok {
		return last, true
	}
	if c.election == electUnclean {
		if i := slices.IndexFunc(c.replicas, c.mayLead); i >= 0 {
			return c.replicas[i], true
		}
	}
	return noLeader, false
}

// lastKnownLeader is the leader that was last before ISR and ELR ran empty; KIP-966 elects it when it is back
// ("balanced recovery").
func (c *partitionChange) lastKnownLeader() (int32, bool) {
	if !c.features.elr() || len(c.elr) > 0 || len(c.isr) > 0 || len(c.part.LastKnownELR) != 1 {
		return noLeader, false
	}
	last := c.part.LastKnownELR[0]
	return last, c.mayLead(last)
}

func (c *partitionChange) elect(r *metadata.PartitionChangeRecord) {
	leader, unclean := c.chooseLeader()
	if leader == c.part.Leader {
		return
	}
	if slices.Contains(c.elr, leader) {
		c.isr = []int32{leader}
		c.elr = without(c.elr, leader)
	}
	r.Leader = leader
	if unclean {
		r.ISR = []int32{leader}
		if c.part.LeaderRecoveryState != recovering {
			r.LeaderRecoveryState = recovering
		}
	}
}

// setELR writes the new ELR; an unclean election empties it, for nothing is known any more.
func (c *partitionChange) setELR(r *metadata.PartitionChangeRecord) {
	if r.ISR != nil || !c.features.elr() {
		c.elr = nil
	}
	if !slices.Equal(c.elr, c.part.ELR) {
		r.EligibleLeaderReplicas = nonNil(c.elr)
	}
}

// setLastKnownLeader remembers the leader when the ISR runs empty and forgets it when there is a leader again.
func (c *partitionChange) setLastKnownLeader(r *metadata.PartitionChangeRecord) {
	if !c.features.elr() {
		return
	}
	known := c.part.LastKnownELR
	switch {
	case r.ISR != nil && len(r.ISR) == 0 && (len(known) != 1 || known[0] != c.part.Leader):
		r.LastKnownELR = []int32{c.part.Leader}
	case (r.Leader >= 0 || c.part.Leader != noLeader && r.Leader != noLeader) && len(known) > 0:
		r.LastKnownELR = []int32{}
	}
}

func (c *partitionChange) setAssignment(r *metadata.PartitionChangeRecord) {
	if len(c.replicas) > 0 {
		if dirs := c.directories(); c.features.directoryAssignment() && !slices.Equal(dirs, c.part.Directories) {
			r.Directories = dirs
		}
		if !slices.Equal(c.replicas, c.part.Replicas) {
			r.Replicas = slices.Clone(c.replicas)
		}
	}
	if !slices.Equal(c.removing, c.part.RemovingReplicas) {
		r.RemovingReplicas = nonNil(c.removing)
	}
	if !slices.Equal(c.adding, c.part.AddingReplicas) {
		r.AddingReplicas = nonNil(c.adding)
	}
}

// directories are those of the new replicas, in their order.
func (c *partitionChange) directories() []protocol.UUID {
	dirs := make([]protocol.UUID, len(c.replicas))
	for i, replica := range c.replicas {
		dir, ok := c.dirs[replica]
		if !ok {
			dir = c.defaultDir(replica)
		}
		dirs[i] = dir
	}
	return dirs
}

// nonNil copies a list so that it is never nil: nil means "no change" in a PartitionChangeRecord.
func nonNil(list []int32) []int32 {
	return append(make([]int32, 0, len(list)), list...)
}

// without copies a list, leaving out the given members.
func without(list []int32, gone ...int32) []int32 {
	out := make([]int32, 0, len(list))
	for _, x := range list {
		if !slices.Contains(gone, x) {
			out = append(out, x)
		}
	}
	return out
}

// containsAll says whether every member of sub is in list.
func containsAll(list, sub []int32) bool {
	for _, x := range sub {
		if !slices.Contains(list, x) {
			return false
		}
	}
	return true
}

package controller

import (
	"gregor/kraft/metadata"
)

// partitionUpdate says which broker a round of partition changes is about; noLeader means none.
type partitionUpdate struct {
	// remove leaves all ISRs and may not lead, whatever the image says of it.
	remove int32
	// add may lead although the image still shows it fenced.
	add int32
	// unclean has lost its disk or may have: it leaves ISR and ELR and may not lead.
	unclean int32
}

// updatePartitions appends the changes of the chosen partitions that a broker's coming or going makes.
func (d *Decider) updatePartitions(
	out []metadata.Record, up partitionUpdate, chosen partitionFilter,
) []metadata.Record {
	alive := func(broker int32) bool {
		return broker != up.remove && broker != up.unclean && (broker == up.add || d.isActive(broker))
	}
	for p := range d.partitions() {
		if !chosen(p) {
			continue
		}
		c := d.newPartitionChange(p)
		c.mayLead = d.leaderTest(p.Partition, alive)
		if d.uncleanElectionEnabled(p.topic.Name) {
			c.election = electUnclean
		}
		c.uncleanShutdown = up.unclean
		c.isr = without(p.ISR, up.remove, up.unclean)
		if r := c.record(); r != nil {
			out = append(out, r)
		}
	}
	return out
}

package quorum

// campaignCommand: `campaign 1` makes a node stand for election while the others know no leader.
func (in *interaction) campaignCommand() string {
	in.campaign(in.node().id)
	return in.status()
}

// tick: `tick 1 [count=10]` lets time pass on one node.
func (in *interaction) tick() string {
	n := in.node()
	for range in.arg("count", 1) {
		in.must(n.machine.tick())
		in.must(in.settle(n))
	}
	return in.status()
}

// resign: `resign 1` makes a leader step down.
func (in *interaction) resign() string {
	n := in.node()
	in.must(n.machine.startRaft())
	in.must(in.settle(n))
	return in.status()
}

// transferCommand: `transfer 1` makes a leader hand over, as it does when it stops.
func (in *interaction) transferCommand() string {
	n := in.node()
	handing, err := n.machine.handOver()
	in.must(err)
	if !handing {
		return "nobody to hand over to\n"
	}
	in.stabilize()
	return in.status()
}

package controller

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// usableBroker is a broker that may get new replicas: registered, not in controlled shutdown, and with a log
// directory that is not cordoned. A fenced broker is usable as a follower only.
type usableBroker struct {
	id     int32
	rack   *string
	fenced bool
}

// brokerRing hands out the brokers of one rack in turn. The start moves on by one with every partition (epoch), so
// that leaders spread.
type brokerRing struct {
	ids    []int32
	index  int
	offset int
	epoch  int
}

func (r *brokerRing) start(rnd *rand.Rand) {
	if len(r.ids) > 0 {
		slices.Sort(r.ids)
		r.offset = rnd.IntN(len(r.ids))
	}
}

// next gives the next broker of this epoch, or -1 when the ring is through.
func (r *brokerRing) next(epoch int) int32 {
	if len(r.ids) == 0 {
		return -1
	}
	if r.epoch != epoch {
		r.epoch = epoch
		r.index = 0
		r.offset = (r.offset + 1) % len(r.ids)
	}
	if r.index >= len(r.ids) {
		return -1
	}
	id := r.ids[(r.index+r.offset)%len(r.ids)]
	r.index++
	return id
}

// rackRing holds the brokers of one rack; unfenced ones are preferred.
type rackRing struct {
	fenced, unfenced brokerRing
}

func (r *rackRing) next(epoch int) int32 {
	if id := r.unfenced.next(epoch); id >= 0 {
		return id
	}
	return r.fenced.next(epoch)
}

// placer distributes the replicas of a topic's partitions over racks and brokers: racks in turn, within a rack
// brokers in turn, leaders only on unfenced brokers. It follows Kafka's striped placement (KIP-631): the same
// evenness, with random starts.
type placer struct {
	rnd         *rand.Rand
	racks       []*rackRing
	total       int
	numUnfenced int
	epoch       int
	offset      int
}

func newPlacer(rnd *rand.Rand, brokers []usableBroker) *placer {
	p := &placer{rnd: rnd}
	byName := make(map[string]*rackRing)
	var names []string
	for _, b := range brokers {
		// A broker without a rack sorts before all named racks; "\x00" cannot start a configured rack name.
		name := "\x00"
		if b.rack != nil {
			name = *b.rack
		}
		rack := byName[name]
		if rack == nil {
			rack = new(rackRing)
			byName[name] = rack
			names = append(names, name)
		}
		if b.fenced {
			rack.fenced.ids = append(rack.fenced.ids, b.id)
		} else {
			rack.unfenced.ids = append(rack.unfenced.ids, b.id)
			p.numUnfenced++
		}
		p.total++
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		rack := byName[name]
		rack.fenced.start(rnd)
		rack.unfenced.start(rnd)
		p.racks = append(p.racks, rack)
	}
	if len(p.racks) > 0 {
		p.offset = rnd.IntN(len(p.racks))
	}
	return p
}

// place gives the replicas of each of numPartitions partitions, the preferred leader first.
func (p *placer) place(numPartitions int, replicationFactor int16) ([][]int32, *Fault) {
	switch {
	case replicationFactor <= 0:
		return nil, refuse(codeInvalidReplicationFactor,
			"Invalid replication factor %d: the replication factor must be positive.", replicationFactor)
	case p.numUnfenced == 0:
		return nil, refuse(codeInvalidReplicationFactor,
			"All brokers are currently fenced, or have all their log directories cordoned.")
	case int(replicationFactor) > p.total:
		return nil, refuse(codeInvalidReplicationFactor,
			"The target replication factor of %d cannot be reached because only %d broker(s) are registered or some "+
				"brokers have all their log directories cordoned.", replicationFactor, p.total)
	}
	out := make([][]int32, numPartitions)
	for i := range out {
		out[i] = p.placeOne(int(replicationFactor))
	}
	return out, nil
}

// placeOne gives the replicas of the next partition. The caller has checked that enough brokers exist.
func (p *placer) placeOne(replicationFactor int) []int32 {
	// After as many partitions as there are leaders to choose from, the same combinations would come again: shuffle.
	// With one leader there is nothing to shuffle, and the epoch must go on or the ring would never restart.
	if p.epoch == p.numUnfenced && p.numUnfenced > 1 {
		p.shuffle()
		p.epoch = 0
	}
	if p.offset == len(p.racks) {
		p.offset = 0
	}
	replicas := make([]int32, 0, replicationFactor)
	leaderRack := p.offset
	for {
		if id := p.racks[leaderRack].unfenced.next(p.epoch); id >= 0 {
			replicas = append(replicas, id)
			break
		}
		leaderRack = (leaderRack + 1) % len(p.racks)
	}
	// The leader's rack is passed over once, for it has got its replica of this round.
	rack := p.offset
	for len(replicas) < replicationFactor {
		id := int32(-1)
		if rack == leaderRack {
			leaderRack = -1
		} else {
			id = p.racks[rack].next(p.epoch)
		}
		rack = (rack + 1) % len(p.racks)
		if id >= 0 {
			replicas = append(replicas, id)
		}
	}
	p.epoch++
	p.offset++
	return replicas
}

func (p *placer) shuffle() {
	p.rnd.Shuffle(len(p.racks), func(i, j int) { p.racks[i], p.racks[j] = p.racks[j], p.racks[i] })
	for _, rack := range p.racks {
		for _, ring := range []*brokerRing{&rack.fenced, &rack.unfenced} {
			p.rnd.Shuffle(len(ring.ids), func(i, j int) { ring.ids[i], ring.ids[j] = ring.ids[j], ring.ids[i] })
		}
	}
}

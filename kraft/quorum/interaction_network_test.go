package quorum

import (
	"fmt"
	"slices"
	"strings"
)

// stabilizeCommand: `stabilize` delivers messages until there are none.
func (in *interaction) stabilizeCommand() string {
	in.cluster.stabilize()
	return in.status()
}

// deliverCommand: `deliver [to=1] [from=2] [count=1]` delivers the waiting messages of a link, or the first ones.
func (in *interaction) deliverCommand() string {
	for _, i := range in.matching() {
		in.must(in.deliver(i))
	}
	return in.status()
}

// drop: `drop [to=1] [from=2] [count=1]` loses waiting messages.
func (in *interaction) drop() string {
	matching := in.matching()
	for _, i := range matching {
		in.queue = slices.Delete(in.queue, i, i+1)
	}
	return fmt.Sprintf("%d lost\n", len(matching))
}

// matching lists the positions of messages, corrected for each being taken before the next one.
func (in *interaction) matching() []int {
	to, from, count := in.arg("to", 0), in.arg("from", 0), in.arg("count", 1<<30)
	var positions []int
	for i, msg := range in.queue {
		if (to == 0 || int64(msg.to) == to) && (from == 0 || int64(msg.from) == from) && int64(len(positions)) < count {
			positions = append(positions, i-len(positions))
		}
	}
	return positions
}

// partition: `partition 1 2,3` cuts the links between the groups.
func (in *interaction) partition() string {
	clear(in.cut)
	for i := range in.d.CmdArgs {
		for j := range in.d.CmdArgs {
			if i == j {
				continue
			}
			for _, a := range in.idList(in.d.CmdArgs[i : i+1]) {
				for _, b := range in.idList(in.d.CmdArgs[j : j+1]) {
					in.cut[[2]int32{a, b}] = true
				}
			}
		}
	}
	return ""
}

// heal: `heal` ends the partition.
func (in *interaction) heal() string {
	clear(in.cut)
	return ""
}

// queueCommand: `queue` lists the messages that wait.
func (in *interaction) queueCommand() string {
	var out strings.Builder
	for _, msg := range in.queue {
		e, s := parseEnvelope(msg.bytes)
		what := fmt.Sprintf("kind %d", e.kind)
		switch e.kind {
		case kindRaft:
			m, offer, err := parseRaft(e, s)
			if err != nil {
				what = err.Error()
				break
			}
			what = fmt.Sprintf("%v term=%d index=%d/%d commit=%d entries=%d reject=%v", m.GetType(), m.GetTerm(), m.GetIndex(),
				m.GetLogTerm(), m.GetCommit(), len(m.GetEntries()), m.GetReject())
			if offer != nil {
				what += fmt.Sprintf(" snapshot=%v", offer.id)
			}
		case kindChunkRequest, kindChunk:
			c, _ := s.chunk(e.kind == kindChunkRequest)
			what = fmt.Sprintf("chunk snapshot=%v position=%d bytes=%d", c.id, c.position, len(c.bytes))
		case kindNotVoter:
			what = "not a voter"
		}
		fmt.Fprintf(&out, "%d->%d %s\n", msg.from, msg.to, what)
	}
	return out.String()
}

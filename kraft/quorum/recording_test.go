package quorum

import (
	"fmt"
	"strings"

	"gregor/kraft/metadata"
)

// recordingMachine is a state machine that keeps the topics it was told of, and a list of its calls.
type recordingMachine struct {
	calls  []string
	topics []string
	next   int64
	leader LeaderAndEpoch
	faults []string
}

func (r *recordingMachine) Commit(b CommittedBatch) {
	if b.BaseOffset != r.next {
		r.faults = append(r.faults, fmt.Sprintf("commit at %d, expected %d", b.BaseOffset, r.next))
	}
	r.next = b.LastOffset + 1
	var names []string
	for _, rec := range b.Records {
		if topic, ok := rec.(*metadata.TopicRecord); ok {
			names = append(names, topic.Name)
		} else {
			names = append(names, rec.MessageName())
		}
	}
	r.topics = append(r.topics, names...)
	if len(names) == 0 {
		names = []string{"control"}
	}
	r.calls = append(r.calls, fmt.Sprintf("commit %d %s", b.BaseOffset, strings.Join(names, " ")))
}

func (r *recordingMachine) LoadSnapshot(s *SnapshotReader) error {
	r.topics = nil
	for b, err := range s.Batches() {
		if err != nil {
			return err
		}
		for _, rec := range b.Records {
			if topic, ok := rec.(*metadata.TopicRecord); ok {
				r.topics = append(r.topics, topic.Name)
			} else {
				r.topics = append(r.topics, rec.MessageName())
			}
		}
	}
	r.next = s.ID().Offset
	r.calls = append(r.calls, fmt.Sprintf("load %v with %d records", s.ID(), len(r.topics)))
	return nil
}

func (r *recordingMachine) LeaderChange(l LeaderAndEpoch) {
	if l.Epoch < r.leader.Epoch {
		r.faults = append(r.faults, fmt.Sprintf("epoch %d after %d", l.Epoch, r.leader.Epoch))
	}
	r.leader = l
	r.calls = append(r.calls, fmt.Sprintf("leader %d epoch %d", l.LeaderID, l.Epoch))
}

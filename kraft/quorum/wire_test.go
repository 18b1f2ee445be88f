package quorum

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"gregor/protocol"
)

func TestMessagesReadBackAsTheyWereWritten(t *testing.T) {
	batches := slices.Concat(batchAt(t, 10, 4, 3), batchAt(t, 13, 4, 1))
	rapid.Check(t, func(t *rapid.T) {
		env := envelope{
			clusterID: rapid.StringN(0, 30, 100).Draw(t, "cluster"),
			from:      ReplicaKey{ID: rapid.Int32Range(0, 1<<30).Draw(t, "from"), DirectoryID: protocol.UUID{3: 7}},
			to:        ReplicaKey{ID: rapid.Int32Range(0, 1<<30).Draw(t, "to"), DirectoryID: protocol.UUID{9: 1}},
		}
		kinds := []raftpb.MessageType{
			raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
			raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow,
		}
		term := rapid.Uint64Range(4, 1<<31-1).Draw(t, "term")
		number := rapid.Uint64Range(0, 1<<62)
		m := &raftpb.Message{
			Type: rapid.SampledFrom(kinds).Draw(t, "type").Enum(), From: new(raftID(env.from.ID)), To: new(raftID(env.to.ID)),
			Term: &term, LogTerm: new(rapid.Uint64Range(0, 4).Draw(t, "log term")), Index: new(number.Draw(t, "index")),
			Commit: new(number.Draw(t, "commit")), RejectHint: new(number.Draw(t, "hint")),
			Context: rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "context"),
		}
		if rapid.Bool().Draw(t, "reject") {
			m.Reject = new(true)
		}
		out := appendRaft(encodeEnvelope(env), m)
		if m.GetType() == raftpb.MsgApp {
			m.Index = new(uint64(10))
			out = append(appendRaft(encodeEnvelope(env), m), batches...)
		}
		gotEnv, s := parseEnvelope(out)
		if s.err != nil || gotEnv != env {
			t.Fatalf("envelope %+v, %v", gotEnv, s.err)
		}
		got, _, err := parseRaft(gotEnv, s)
		if err != nil {
			t.Fatal(err)
		}
		if m.GetType() == raftpb.MsgApp {
			again, err := appendBatches(nil, got.GetEntries(), noLeaderChange)
			if err != nil || !bytes.Equal(again, batches) {
				t.Fatalf("entries: %v", err)
			}
			got.Entries = nil
		}
		if len(m.Context) == 0 {
			m.Context = nil
		}
		if !proto.Equal(got, m) {
			t.Fatalf("got  %v\nwant %v", got, m)
		}
	})
}

func TestChunksReadBackAsTheyWereWritten(t *testing.T) {
	want := chunk{id: SnapshotID{77, 3}, position: 5, sizeBytes: 100, bytes: []byte("piece")}
	for _, request := range []bool{false, true} {
		_, s := parseEnvelope(appendChunk(encodeEnvelope(envelope{clusterID: "c"}), want, request))
		got, err := s.chunk(request)
		if err != nil || got.id != want.id || got.position != 5 || !request && (got.sizeBytes != 100 || string(got.bytes) != "piece") {
			t.Errorf("request %v: %+v, %v", request, got, err)
		}
	}
}

func TestMessagesThatRaftMayNotSeeAreRefused(t *testing.T) {
	env := envelope{from: ReplicaKey{ID: 1}, to: ReplicaKey{ID: 2}}
	for name, m := range map[string]*raftpb.Message{
		"proposal":         {Type: raftpb.MsgProp.Enum(), Term: new(uint64(1))},
		"hup":              {Type: raftpb.MsgHup.Enum(), Term: new(uint64(1))},
		"unreachable":      {Type: raftpb.MsgUnreachable.Enum(), Term: new(uint64(1))},
		"storage response": {Type: raftpb.MsgStorageAppendResp.Enum(), Term: new(uint64(1))},
		"unknown type":     {Type: raftpb.MessageType(99).Enum(), Term: new(uint64(1))},
		"no term":          {Type: raftpb.MsgApp.Enum()},
		"term too large":   {Type: raftpb.MsgApp.Enum(), Term: new(uint64(1 << 31))},
		"index too large":  {Type: raftpb.MsgApp.Enum(), Term: new(uint64(1)), Index: new(uint64(1 << 63))},
		"log term above":   {Type: raftpb.MsgApp.Enum(), Term: new(uint64(1)), LogTerm: new(uint64(2))},
		"empty snapshot":   {Type: raftpb.MsgSnap.Enum(), Term: new(uint64(1))},
	} {
		e, s := parseEnvelope(appendRaft(encodeEnvelope(env), m))
		if _, _, err := parseRaft(e, s); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestMessagesOfOthersAreRefused(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1, 2, 3)
	c.must(c.start(1))
	m := c.nodes[1].machine
	good := envelope{clusterID: testClusterID, from: testVoter(2, 0).Key, to: testVoter(1, 0).Key}
	response := &raftpb.Message{Type: raftpb.MsgVoteResp.Enum(), Term: new(uint64(1))}
	for name, tc := range map[string]struct {
		change func(*envelope)
		msg    *raftpb.Message
		want   error
	}{
		"fine":                         {func(*envelope) {}, response, nil},
		"other cluster":                {func(e *envelope) { e.clusterID = "x" }, response, ErrWrongPeer},
		"other node":                   {func(e *envelope) { e.to.ID = 9 }, response, ErrWrongPeer},
		"other directory":              {func(e *envelope) { e.to.DirectoryID = protocol.UUID{1: 1} }, response, ErrWrongPeer},
		"from itself":                  {func(e *envelope) { e.from = e.to }, response, ErrWrongPeer},
		"vote of a wiped disk":         {func(e *envelope) { e.from = testVoter(2, 7).Key }, response, ErrWrongPeer},
		"campaign of a wiped disk":     {func(e *envelope) { e.from = testVoter(2, 7).Key }, &raftpb.Message{Type: raftpb.MsgVote.Enum(), Term: new(uint64(1))}, ErrWrongPeer},
		"leader that is known as such": {func(e *envelope) { e.from = testVoter(2, 7).Key }, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(1))}, nil},
	} {
		env := good
		tc.change(&env)
		malformed, err := m.receive(appendRaft(encodeEnvelope(env), tc.msg))
		if !errors.Is(err, tc.want) || malformed != (tc.want != nil) {
			t.Errorf("%s: malformed %v, error %v", name, malformed, err)
		}
	}
}

// FuzzReceive gives arbitrary bytes to a follower: it may refuse or drop them, but neither panic nor fail, unless raft
// finds that the log lost entries.
func FuzzReceive(f *testing.F) {
	env := envelope{clusterID: testClusterID, from: testVoter(2, 0).Key, to: testVoter(1, 0).Key}
	for _, kind := range []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgVote, raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgAppResp, raftpb.MsgTimeoutNow} {
		m := &raftpb.Message{Type: kind.Enum(), Term: new(uint64(2)), LogTerm: new(uint64(1)), Index: new(uint64(3))}
		out := appendRaft(encodeEnvelope(env), m)
		switch kind {
		case raftpb.MsgApp:
			out = append(out, batchAt(f, 3, 2, 2)...)
		case raftpb.MsgSnap:
			out = appendInt64(appendSnapshotID(out, SnapshotID{100, 2}), 500)
		}
		f.Add(out)
	}
	for _, kind := range []messageKind{kindChunkRequest, kindChunk, kindNotVoter} {
		env.kind = kind
		f.Add(appendChunk(encodeEnvelope(env), chunk{id: SnapshotID{0, 0}, bytes: []byte("x")}, kind == kindChunkRequest))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		c := newCluster(t, 1)
		c.format(1, 2, 3)
		for id := int32(1); id <= 3; id++ {
			c.must(c.start(id))
		}
		c.campaign(2)
		c.stabilize()
		malformed, err := c.nodes[1].machine.receive(msg)
		if malformed && err == nil {
			t.Fatal("refused without a reason")
		}
		if !malformed && err != nil && !errors.Is(err, ErrLogLost) {
			t.Fatal(err)
		}
		if err == nil {
			_ = c.settle(c.nodes[1])
		}
	})
}

func TestTruncatedMessagesAreRefused(t *testing.T) {
	c := newCluster(t, 1)
	c.format(1, 2)
	c.must(c.start(1))
	env := envelope{clusterID: testClusterID, from: testVoter(2, 0).Key, to: testVoter(1, 0).Key}
	whole := append(appendRaft(encodeEnvelope(env), &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), Term: new(uint64(2)), Index: new(uint64(0)),
	}), batchAt(t, 0, 2, 1)...)
	atBatches := len(whole) - len(batchAt(t, 0, 2, 1))
	for n := range whole {
		malformed, err := c.nodes[1].machine.receive(whole[:n])
		if n != atBatches && !malformed {
			t.Fatalf("%d of %d bytes were accepted: %v", n, len(whole), err)
		}
	}
}

package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"gregor/protocol"
	"gregor/protocol/wire"
	"gregor/protocol/wire/wiretest"
)

func TestFrameIsThatOfKafka(t *testing.T) {
	// The first record of a metadata log written by Kafka 4.4.0.
	want, _ := hex.DecodeString("0117000100" + "1212" + hex.EncodeToString([]byte("Bootstrap records")))
	name := "Bootstrap records"
	got, err := Append(nil, &BeginTransactionRecord{Name: &name}, 0)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v\n got %x\nwant %x", err, got, want)
	}
	rec, version, err := DecodeVersion(want)
	begin, ok := rec.(*BeginTransactionRecord)
	if err != nil || !ok || version != 0 || *begin.Name != name {
		t.Fatalf("%#v %d %v", rec, version, err)
	}
}

func TestFramesThatAreNoneAreErrors(t *testing.T) {
	for frame, want := range map[string]error{
		"":                 wire.ErrMalformed,
		"01":               wire.ErrMalformed,
		"0114":             wire.ErrMalformed,
		"011400":           wire.ErrMalformed, // NoOpRecord without its tag section
		"01140000ff":       wire.ErrMalformed, // one byte too many
		"00140000":         wire.ErrVersion,   // frame version 0
		"02140000":         wire.ErrVersion,
		"01140100":         wire.ErrVersion, // NoOpRecord 1
		"0114ffff7f00":     wire.ErrVersion,
		"01060000":         ErrUnknownRecord, // no record has key 6
		"01ffff0f0000":     ErrUnknownRecord,
		"01ffffffff7f0000": wire.ErrMalformed, // more than 32 bits
	} {
		b, err := hex.DecodeString(frame)
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := Decode(b); !errors.Is(err, want) {
			t.Errorf("%s: %v %v, want %v", frame, rec, err, want)
		}
	}
}

func TestFieldThatTheVersionLacksIsAnErrorAndLeavesDstAlone(t *testing.T) {
	id := protocol.UUID{1}
	for _, c := range []struct {
		rec     Record
		version int16
	}{
		{&PartitionRecord{Directories: []protocol.UUID{id}}, 0},
		{&PartitionRecord{EligibleLeaderReplicas: []int32{1}}, 1},
		{&PartitionChangeRecord{LastKnownELR: []int32{}}, 1}, // empty is not null
		{&BrokerRegistrationChangeRecord{InControlledShutdown: 1}, 0},
		{&RegisterBrokerRecord{CordonedLogDirs: []protocol.UUID{}}, 3},
		{&RegisterBrokerRecord{InControlledShutdown: true}, 0},
	} {
		got, err := Append([]byte("x"), c.rec, c.version)
		if !errors.Is(err, wire.ErrField) || string(got) != "x" {
			t.Errorf("%s %d: %q %v", c.rec.MessageName(), c.version, got, err)
		}
		_, highest := c.rec.Versions()
		if _, err := Append(nil, c.rec, highest); err != nil {
			t.Errorf("%s %d: %v", c.rec.MessageName(), highest, err)
		}
	}
}

func TestBrokerRegistrationChangeTakesTheLowestVersionThatHoldsItsFields(t *testing.T) {
	dirs := []protocol.UUID{{1}}
	for want, rec := range []*BrokerRegistrationChangeRecord{
		{Fenced: 1},
		{Fenced: 1, InControlledShutdown: 1},
		{LogDirs: dirs, InControlledShutdown: 1},
		{LogDirs: dirs, CordonedLogDirs: []protocol.UUID{}},
	} {
		if got := RecordVersion(rec, LatestMetadataVersion); got != int16(want) {
			t.Errorf("version %d, want %d", got, want)
		}
		if _, err := Append(nil, rec, int16(want)); err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownTaggedFieldsSurviveInTheirOrder(t *testing.T) {
	for _, tags := range []wire.Tags{
		{{Number: 100, Data: []byte("raft")}},
		{{Number: 1, Data: []byte{}}, {Number: 100, Data: []byte("a")}, {Number: 70000, Data: bytes.Repeat([]byte("b"), 300)}},
	} {
		voters := &VotersRecord{Extra: tags, Voters: []VotersRecordVoter{{VoterID: 1, Extra: tags}}}
		b, err := voters.Append(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got VotersRecord
		if err := got.Decode(b, 0); err != nil {
			t.Fatal(err)
		}
		equal := func(a, b wire.Tag) bool { return a.Number == b.Number && bytes.Equal(a.Data, b.Data) }
		if !slices.EqualFunc(got.Extra, tags, equal) || !slices.EqualFunc(got.Voters[0].Extra, tags, equal) {
			t.Errorf("got %v and %v, want %v", got.Extra, got.Voters[0].Extra, tags)
		}
	}
	// Known tags keep their place between unknown ones.
	broker := &RegisterBrokerRecord{LogDirs: []protocol.UUID{{1}}, Extra: wire.Tags{{Number: 1, Data: []byte{7}}, {Number: 100}}}
	b, err := broker.Append(nil, 3) // tag 1 is unknown to version 3
	if err != nil {
		t.Fatal(err)
	}
	var got RegisterBrokerRecord
	if err := got.Decode(b, 3); err != nil || len(got.Extra) != 2 || len(got.LogDirs) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	broker.Extra = wire.Tags{{Number: 0, Data: []byte{7}}}
	if _, err := broker.Append(nil, 3); !errors.Is(err, wire.ErrField) {
		t.Errorf("a tag twice: %v", err)
	}
}

func TestDecodedRecordsDoNotAliasTheirBytes(t *testing.T) {
	rec := &UserScramCredentialRecord{Name: "alice", Salt: []byte("salt"), StoredKey: []byte("k"), Extra: wire.Tags{{Number: 100, Data: []byte("x")}}}
	frame, err := Append(nil, rec, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	clear(frame)
	again, err := Append(nil, got, 0)
	if want, _ := Append(nil, rec, 0); err != nil || !bytes.Equal(again, want) {
		t.Errorf("%v\n got %x\nwant %x", err, again, want)
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range wiretest.Read(f, goldenMessages) {
		if rec, ok := allMessages[g.Name]().(Record); ok && rec.Decode(g.Bytes, g.Version) == nil {
			frame, _ := Append(nil, rec, g.Version)
			f.Add(frame)
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		rec, version, err := DecodeVersion(frame)
		if err != nil {
			return
		}
		again, err := Append(nil, rec, version)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("%x: %v", again, err)
		}
	})
}

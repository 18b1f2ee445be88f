package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestGoldenControlValues(t *testing.T) {
	text, err := os.ReadFile("testdata/control.tsv")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]ControlType{
		"LeaderChangeMessage": ControlLeaderChange, "KRaftVersionRecord": ControlKRaftVersion, "VotersRecord": ControlKRaftVoters,
		"SnapshotHeaderRecord": ControlSnapshotHeader, "SnapshotFooterRecord": ControlSnapshotFooter,
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		name, bytesHex := f[0], f[4]
		value, err := hex.DecodeString(bytesHex)
		if err != nil {
			t.Fatal(err)
		}
		typ, ok := types[name]
		if !ok {
			checkMarker(t, name, value)
			continue
		}
		// The file has arbitrary numbers in the version field; in a log it is the version of the message.
		version, _ := strconv.Atoi(f[1])
		value[0], value[1] = 0, byte(version)
		rec, err := ParseControl(AppendControlKey(nil, typ), value)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if rec.Type() != typ || !bytes.Equal(rec.Append(nil), value) {
			t.Errorf("%s: got %+v, which is %x", line, rec, rec.Append(nil))
		}
		for cut := range value {
			if _, err := ParseControl(AppendControlKey(nil, typ), value[:cut]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut to %d: %v", name, cut, err)
			}
		}
	}
}

func checkMarker(t *testing.T, name string, value []byte) {
	t.Helper()
	switch name {
	case "EndTxnMarker":
		m, err := ParseEndTxnMarker(append([]byte{0, 0}, value...))
		if err != nil || !bytes.Equal(m.Append(nil)[2:], value) {
			t.Errorf("marker %x: %+v, %v", value, m, err)
		}
	case "ControlRecordTypeSchema":
		typ, err := ParseControlKey(append([]byte{0, 0}, value...))
		if err != nil || !bytes.Equal(AppendControlKey(nil, typ)[2:], value) {
			t.Errorf("key %x: %d, %v", value, typ, err)
		}
	default:
		t.Errorf("unexpected message %s", name)
	}
}

func TestUnknownTaggedFieldsSurvive(t *testing.T) {
	tags := func(n uint32) []TaggedField { return []TaggedField{{n, []byte{1, 2}}, {n + 1<<20, []byte{}}} }
	for _, rec := range []ControlRecord{
		&LeaderChange{
			Version: 1, LeaderID: 1, Tags: tags(1),
			Voters: []Voter{{ID: 1, DirectoryID: [16]byte{3}, Tags: tags(2)}}, GrantingVoters: []Voter{{ID: 7}},
		},
		&SnapshotHeader{LastContainedLogTimestampMillis: -5, Tags: tags(3)},
		&SnapshotFooter{Tags: tags(4)},
		&KRaftVersion{KRaftVersion: 1, Tags: tags(5)},
		&KRaftVoters{Tags: tags(6), Voters: []VoterDetails{{
			ID: 3, DirectoryID: [16]byte{4}, Tags: tags(7), KRaftVersion: VersionRange{Min: 0, Max: 1, Tags: tags(8)},
			Endpoints: []VoterEndpoint{{Name: "A", Host: "b", Port: 65535, Tags: tags(9)}, {Name: "", Host: "c"}},
		}}},
	} {
		again, err := ParseControl(AppendControlKey(nil, rec.Type()), rec.Append(nil))
		if err != nil || !reflect.DeepEqual(again, rec) {
			t.Errorf("got %+v, %v, want %+v", again, err, rec)
		}
	}
}

// TestGoldenMetadataControlBatches reads the control records of a log and a snapshot and builds their batches again.
func TestGoldenMetadataControlBatches(t *testing.T) {
	want := map[string][]string{
		"metadata.log":        {"LEADER_CHANGE KRAFT_VERSION KRAFT_VOTERS"},
		"metadata.checkpoint": {"SNAPSHOT_HEADER KRAFT_VERSION KRAFT_VOTERS", "SNAPSHOT_FOOTER"},
	}
	for name, want := range want {
		data, err := os.ReadFile("testdata/golden/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for b, err := range Batches(data) {
			if err != nil || !b.CRCValid() {
				t.Fatal(name, err)
			}
			if !b.IsControl() {
				continue
			}
			builder := NewBuilder(BuilderOptions{BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(), Control: true})
			var names []string
			for _, r := range collect(t, b) {
				rec, err := ParseControl(r.Key, r.Value)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, rec.Type().String())
				checkVoters(t, rec)
				builder.AddControl(r.Timestamp, rec)
			}
			got = append(got, strings.Join(names, " "))
			if !bytes.Equal(builder.Bytes(), b) {
				t.Errorf("%s: %s differs", name, names)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func checkVoters(t *testing.T, rec ControlRecord) {
	t.Helper()
	voters, ok := rec.(*KRaftVoters)
	if !ok {
		return
	}
	v := voters.Voters[0]
	e := v.Endpoints[0]
	if len(voters.Voters) != 1 || v.ID != 1 || e.Name != "CONTROLLER" || e.Host != "localhost" || e.Port != 39493 {
		t.Errorf("voters %+v", voters)
	}
}

func TestGoldenMarkersAreBuiltByteForByte(t *testing.T) {
	built := 0
	for _, data := range loadGolden(t, "transactions").segments {
		for b := range Batches(data) {
			typ, m, ok, err := ParseEndTxnBatch(b, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				continue
			}
			got := BuildEndTxnMarker(EndTxnOptions{
				BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(), TimestampMillis: b.MaxTimestamp(),
				ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
				Commit: typ == ControlCommit, CoordinatorEpoch: m.CoordinatorEpoch,
			})
			if !bytes.Equal(got, b) {
				t.Errorf("got  %x\nwant %x", []byte(got), []byte(b))
			}
			built++
		}
	}
	if built == 0 {
		t.Fatal("there are no markers")
	}
}

func TestControlKeysAndMarkersOfLaterVersionsAreRead(t *testing.T) {
	if typ, err := ParseControlKey([]byte{0, 3, 0, 1, 9, 9}); err != nil || typ != ControlCommit {
		t.Error(typ, err)
	}
	if m, err := ParseEndTxnMarker([]byte{0, 3, 0, 0, 0, 8, 1, 2}); err != nil || m.CoordinatorEpoch != 8 {
		t.Error(m, err)
	}
	for _, key := range [][]byte{nil, {0}, {0, 0, 0}, {0xff, 0xff, 0, 1}} {
		if _, err := ParseControlKey(key); !errors.Is(err, ErrCorrupt) {
			t.Errorf("key %x: %v", key, err)
		}
	}
	for _, value := range [][]byte{nil, {0, 0, 0, 0, 0}, {0xff, 0xff, 0, 0, 0, 1}} {
		if _, err := ParseEndTxnMarker(value); !errors.Is(err, ErrCorrupt) {
			t.Errorf("marker %x: %v", value, err)
		}
	}
	if _, err := ParseControl([]byte{0, 0, 0, 99}, nil); err == nil {
		t.Error("unknown type")
	}
	if ControlType(99).String() != "UNKNOWN" || ControlType(-1).String() != "UNKNOWN" {
		t.Error("name of an unknown type")
	}
}

func TestMarkersAreOnlyReadFromControlBatchesOfProducers(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	b.Add(1, AppendControlKey(nil, ControlCommit), EndTxnMarker{1}.Append(nil), nil)
	if _, _, ok, err := ParseEndTxnBatch(b.Bytes(), Limits{}); ok || err != nil {
		t.Error("a data batch", ok, err)
	}
	b.Reset(BuilderOptions{Control: true, HasProducer: true, ProducerID: 1})
	b.Add(1, []byte{0}, nil, nil)
	if _, _, _, err := ParseEndTxnBatch(b.Bytes(), Limits{}); !errors.Is(err, ErrCorrupt) {
		t.Error("a short key", err)
	}
}

func TestTagsMustAscendAndFit(t *testing.T) {
	for name, tags := range map[string]string{
		"same twice": "0201010101010101", "descending": "020501010101" + "01", "count too large": "ff01", "value too long": "010105aa",
	} {
		raw, err := hex.DecodeString("0000" + tags)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseControl(AppendControlKey(nil, ControlSnapshotFooter), raw); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

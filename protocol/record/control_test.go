package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestGoldenMarkersAndKeysAreReadAndWrittenAlike(t *testing.T) {
	text, err := os.ReadFile("testdata/control.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		name, bytesHex := f[0], f[4]
		value, err := hex.DecodeString(bytesHex)
		if err != nil {
			t.Fatal(err)
		}
		checkMarker(t, name, value)
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

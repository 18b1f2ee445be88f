package schema

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"gregor/protocol/wire"
)

type goldenRecord struct {
	key, value         []byte // value nil for a tombstone
	keyText, valueText string // as Kafka prints them
}

func readRecords(t testing.TB, file string) []goldenRecord {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var out []goldenRecord
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		col := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		r := goldenRecord{keyText: col[2], valueText: col[3]}
		if r.key, err = hex.DecodeString(col[0]); err != nil {
			t.Fatal(err)
		}
		if col[1] != "-" {
			if r.value, err = hex.DecodeString(col[1]); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, r)
	}
	return out
}

type decoders struct {
	key   func(b []byte) (Key, error)
	value func(recordType int16, b []byte) (Value, error)
}

var (
	offsets    = decoders{DecodeOffsetsKey, DecodeOffsetsValue}
	shareState = decoders{DecodeShareStateKey, DecodeShareStateValue}
)

func TestRecordsOfKafkaAreReadAsKafkaPrintsThemAndWrittenBack(t *testing.T) {
	for file, d := range map[string]decoders{"consumer_offsets.tsv": offsets, "share_group_state.tsv": shareState} {
		types := map[int16]bool{}
		for _, g := range readRecords(t, file) {
			k, err := d.key(g.key)
			if err != nil {
				t.Fatal(err)
			}
			types[k.RecordType()] = true
			text := `{"type":"` + strconv.Itoa(int(k.RecordType())) + `","data":` + string(k.AppendJSON(nil, 0)) + "}"
			if again, err := AppendKey(nil, k); err != nil || !bytes.Equal(again, g.key) || text != g.keyText {
				t.Errorf("%v\n got %x %s\nwant %x %s", err, again, text, g.key, g.keyText)
			}
			v, err := d.value(k.RecordType(), g.value)
			if err != nil {
				t.Fatal(err)
			}
			if v == nil {
				if g.value != nil || g.valueText != "<DELETE>" {
					t.Errorf("%s: read as a tombstone", g.keyText)
				}
				continue
			}
			version := int16(g.value[1])
			if again, err := AppendValue(nil, v, version); err != nil || !bytes.Equal(again, g.value) {
				t.Errorf("%s: %v\n got %x\nwant %x", g.keyText, err, again, g.value)
			}
			if group, ok := v.(*GroupMetadataValue); ok && len(group.Members) > 0 {
				checkMembers(t, group, g.valueText)
				continue
			}
			text = `{"version":"` + strconv.Itoa(int(version)) + `","data":` + string(v.AppendJSON(nil, version)) + "}"
			if text != g.valueText {
				t.Errorf("\n got %s\nwant %s", text, g.valueText)
			}
		}
		if least := map[string]int{"consumer_offsets.tsv": 16, "share_group_state.tsv": 2}[file]; len(types) < least {
			t.Errorf("%s: only types %v", file, types)
		}
	}
}

// checkMembers compares what is inside the members' bytes, which Kafka prints too.
func checkMembers(t *testing.T, g *GroupMetadataValue, want string) {
	t.Helper()
	for _, m := range g.Members {
		s, version, err := DecodeSubscription(m.Subscription)
		if err != nil {
			t.Fatal(err)
		}
		if text := `"subscription":` + string(s.AppendJSON(nil, version)); !strings.Contains(want, text) {
			t.Errorf("\n got %s\nwant %s", text, want)
		}
		if again, err := AppendSubscription(nil, s, version); err != nil || !bytes.Equal(again, m.Subscription) {
			t.Errorf("%v\n got %x\nwant %x", err, again, m.Subscription)
		}
		if len(m.Assignment) == 0 {
			continue
		}
		a, version, err := DecodeAssignment(m.Assignment)
		if err != nil {
			t.Fatal(err)
		}
		if text := `"assignment":` + string(a.AppendJSON(nil, version)); !strings.Contains(want, text) {
			t.Errorf("\n got %s\nwant %s", text, want)
		}
		if again, err := AppendAssignment(nil, a, version); err != nil || !bytes.Equal(again, m.Assignment) {
			t.Errorf("%v\n got %x\nwant %x", err, again, m.Assignment)
		}
	}
}

func TestUnknownTypesAndVersionsAreToldApart(t *testing.T) {
	for in, want := range map[string]error{
		"": wire.ErrMalformed, "00": wire.ErrMalformed, "0002": wire.ErrMalformed, "0009": ErrUnknownRecord,
		"0018": ErrUnknownRecord, "ffff": ErrUnknownRecord, "00020001": wire.ErrMalformed,
	} {
		b, _ := hex.DecodeString(in)
		if k, err := DecodeOffsetsKey(b); !errors.Is(err, want) || k != nil {
			t.Errorf("key %s: %v %v, want %v", in, k, err, want)
		}
	}
	for in, want := range map[string]error{
		"00": wire.ErrMalformed, "0005": wire.ErrVersion, "ffff": wire.ErrVersion, "0003": wire.ErrMalformed,
	} {
		b, _ := hex.DecodeString(in)
		if v, err := DecodeOffsetsValue(2, b); !errors.Is(err, want) || v != nil {
			t.Errorf("value %s: %v %v, want %v", in, v, err, want)
		}
	}
	if _, err := DecodeOffsetsValue(9, []byte{0, 0}); !errors.Is(err, ErrUnknownRecord) {
		t.Error(err)
	}
	if v, err := DecodeOffsetsValue(9, nil); v != nil || err != nil {
		t.Errorf("a tombstone of an unknown type: %v %v", v, err)
	}
	// 0 is a committed offset in one topic, a share snapshot in the other.
	if k, err := DecodeShareStateKey(make([]byte, 24)); err != nil || k.MessageName() != "ShareSnapshotKey" {
		t.Errorf("%v %v", k, err)
	}
}

func TestBytesAfterAValueAreIgnoredAsKafkaDoes(t *testing.T) {
	b, err := AppendValue(nil, &ConsumerGroupMetadataValue{Epoch: 7}, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := DecodeOffsetsValue(3, append(b, "more"...))
	if group, ok := v.(*ConsumerGroupMetadataValue); err != nil || !ok || group.Epoch != 7 {
		t.Errorf("%v %v", v, err)
	}
}

func TestConsumerProtocolOfANewerClientIsReadAsFarAsKnown(t *testing.T) {
	rack := "r"
	s := &ConsumerProtocolSubscription{Topics: []string{"t"}, GenerationID: 3, RackID: &rack}
	b, err := AppendSubscription(nil, s, 3)
	if err != nil {
		t.Fatal(err)
	}
	b[1] = 9 // a version to come, with another field at the end
	got, version, err := DecodeSubscription(append(b, "new"...))
	if err != nil || version != 9 || *got.RackID != "r" || got.GenerationID != 3 {
		t.Errorf("%+v version %d: %v", got, version, err)
	}
	for _, bad := range []string{"", "00", "ffff00000000", "000000000001"} {
		b, _ := hex.DecodeString(bad)
		if _, _, err := DecodeSubscription(b); err == nil {
			t.Errorf("%s is a subscription", bad)
		}
		if _, _, err := DecodeAssignment(b); err == nil {
			t.Errorf("%s is an assignment", bad)
		}
	}
	// Fields that an old version lacks are dropped: the consumer does not need to know.
	old, err := AppendSubscription(nil, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, version, err = DecodeSubscription(old)
	if err != nil || version != 0 || got.GenerationID != -1 || got.RackID != nil {
		t.Errorf("%+v version %d: %v", got, version, err)
	}
}

func TestPrincipalHasItsVersionInFront(t *testing.T) {
	p := &DefaultPrincipalData{Type: "User", Name: "alice", TokenAuthenticated: true}
	b, err := AppendPrincipal(nil, p)
	if want := "0000" + "0555736572" + "06616c696365" + "01" + "00"; err != nil || hex.EncodeToString(b) != want {
		t.Fatalf("%x %v, want %s", b, err, want)
	}
	got, err := DecodePrincipal(b)
	if err != nil || got.Type != "User" || got.Name != "alice" || !got.TokenAuthenticated {
		t.Errorf("%+v %v", got, err)
	}
	b[1] = 1
	if _, err := DecodePrincipal(b); !errors.Is(err, wire.ErrVersion) {
		t.Error(err)
	}
	if _, err := DecodePrincipal(b[:1]); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func FuzzDecodeOffsets(f *testing.F) {
	for _, g := range readRecords(f, "consumer_offsets.tsv") {
		f.Add(g.key, g.value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		k, err := DecodeOffsetsKey(key)
		if err != nil {
			return
		}
		if _, err := AppendKey(nil, k); err != nil {
			t.Fatal(err)
		}
		v, err := DecodeOffsetsValue(k.RecordType(), value)
		if err != nil || v == nil {
			return
		}
		if _, err := AppendValue(nil, v, int16(value[0])<<8|int16(value[1])); err != nil {
			t.Fatal(err)
		}
	})
}

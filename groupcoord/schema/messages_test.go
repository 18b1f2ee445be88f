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

type golden struct {
	name, variant string
	version       int16
	bytes         []byte
	json          string
}

func readGolden(t testing.TB) []golden {
	t.Helper()
	text, err := os.ReadFile("testdata/messages.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		col := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		v, err := strconv.ParseInt(col[1], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(col[3])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, golden{name: col[0], version: int16(v), variant: col[2], bytes: b, json: col[4]})
	}
	return out
}

func TestMessagesOfKafkaDecodeAndEncodeToTheSameBytes(t *testing.T) {
	versions := map[string]map[int16]bool{}
	for _, g := range readGolden(t) {
		if versions[g.name] == nil {
			versions[g.name] = map[int16]bool{}
		}
		versions[g.name][g.version] = true
		m := allMessages[g.name]()
		if err := m.Decode(g.bytes, g.version); err != nil {
			t.Errorf("%s v%d %s: %v", g.name, g.version, g.variant, err)
			continue
		}
		got, err := m.Append([]byte("x"), g.version)
		if err != nil || !bytes.Equal(got[1:], g.bytes) {
			t.Errorf("%s v%d %s: %v\n got %x\nwant %x", g.name, g.version, g.variant, err, got[1:], g.bytes)
		}
	}
	for name, newMessage := range allMessages {
		low, high := newMessage().Versions()
		for v := low; v <= high; v++ {
			if !versions[name][v] {
				t.Errorf("%s v%d is not compared with Kafka", name, v)
			}
		}
	}
}

func TestMessagesPrintTheJSONOfKafka(t *testing.T) {
	for _, g := range readGolden(t) {
		m := allMessages[g.name]()
		if err := m.Decode(g.bytes, g.version); err != nil {
			t.Fatal(err)
		}
		if got := string(m.AppendJSON(nil, g.version)); got != g.json {
			t.Errorf("%s v%d %s:\n got %s\nwant %s", g.name, g.version, g.variant, got, g.json)
		}
	}
}

func TestNewMessagesHaveTheDefaultsOfKafka(t *testing.T) {
	for _, g := range readGolden(t) {
		if g.variant != "default" {
			continue
		}
		got, err := allMessages[g.name]().Append(nil, g.version)
		if err != nil || !bytes.Equal(got, g.bytes) {
			t.Errorf("%s v%d: %v\n got %x\nwant %x", g.name, g.version, err, got, g.bytes)
		}
	}
}

func TestEveryTruncationOfAMessageIsMalformed(t *testing.T) {
	for _, g := range readGolden(t) {
		m := allMessages[g.name]()
		for n := range g.bytes {
			if err := m.Decode(g.bytes[:n], g.version); !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%s v%d: first %d of %d bytes: %v", g.name, g.version, n, len(g.bytes), err)
			}
		}
		if err := m.Decode(append(bytes.Clone(g.bytes), 0), g.version); !errors.Is(err, wire.ErrMalformed) {
			t.Fatalf("%s v%d: a byte too many: %v", g.name, g.version, err)
		}
	}
}

func TestVersionsOutsideTheRangeAreErrors(t *testing.T) {
	for name, newMessage := range allMessages {
		low, high := newMessage().Versions()
		for _, v := range []int16{low - 1, high + 1} {
			if err := newMessage().Decode(nil, v); !errors.Is(err, wire.ErrVersion) {
				t.Errorf("%s v%d decoded: %v", name, v, err)
			}
			if _, err := newMessage().Append(nil, v); !errors.Is(err, wire.ErrVersion) {
				t.Errorf("%s v%d encoded: %v", name, v, err)
			}
		}
	}
}

// What decodes must encode in the same version, and decode again to the same value.
func FuzzMessages(f *testing.F) {
	names := make([]string, 0, len(allMessages))
	for _, g := range readGolden(f) {
		if len(names) == 0 || names[len(names)-1] != g.name {
			names = append(names, g.name)
		}
		f.Add(uint8(len(names)-1), g.version, g.bytes)
	}
	f.Fuzz(func(t *testing.T, which uint8, version int16, data []byte) {
		name := names[int(which)%len(names)]
		m := allMessages[name]()
		if m.Decode(data, version) != nil {
			return
		}
		encoded, err := m.Append(nil, version)
		if err != nil {
			t.Fatalf("%s v%d: %+v: %v", name, version, m, err)
		}
		again := allMessages[name]()
		if err := again.Decode(encoded, version); err != nil {
			t.Fatalf("%s v%d: %x: %v", name, version, encoded, err)
		}
		// Compared by their bytes, since NaN differs from itself.
		twice, err := again.Append(nil, version)
		if err != nil || !bytes.Equal(twice, encoded) {
			t.Fatalf("%s v%d: %+v is not %+v (%v)", name, version, m, again, err)
		}
	})
}

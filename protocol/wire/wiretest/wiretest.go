// Package wiretest holds the tests that all packages of generated messages share. They compare with what a real Kafka
// encoded and printed, which each package has in its testdata/messages.tsv: a line for each message, version and variant.
package wiretest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"

	"gregor/protocol/wire"
)

// Golden is a message as Kafka encodes and prints it.
type Golden struct {
	Name    string
	Variant string // "default", or which fields are set
	Version int16
	Bytes   []byte
	JSON    string
}

// Read reads golden messages, one a line: name, version, variant, bytes in hex, JSON.
func Read(t testing.TB, golden string) []Golden {
	t.Helper()
	var out []Golden
	for line := range strings.Lines(golden) {
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
		out = append(out, Golden{Name: col[0], Version: int16(v), Variant: col[2], Bytes: b, JSON: col[4]})
	}
	return out
}

// All runs the tests of a package's messages.
func All(t *testing.T, golden string, all map[string]func() wire.Message) {
	t.Run("messages of Kafka decode and encode to the same bytes", func(t *testing.T) { decodeAndEncode(t, golden, all) })
	t.Run("messages print the JSON of Kafka", func(t *testing.T) { printJSON(t, golden, all) })
	t.Run("new messages have the defaults of Kafka", func(t *testing.T) { defaults(t, golden, all) })
	t.Run("every truncation of a message is malformed", func(t *testing.T) { truncations(t, golden, all) })
	t.Run("versions outside the range are errors", func(t *testing.T) { versionsOutside(t, all) })
}

// decodeAndEncode holds every message of Kafka to its bytes, in every version.
func decodeAndEncode(t *testing.T, golden string, all map[string]func() wire.Message) {
	t.Helper()
	versions := map[string]map[int16]bool{}
	for _, g := range Read(t, golden) {
		if versions[g.Name] == nil {
			versions[g.Name] = map[int16]bool{}
		}
		versions[g.Name][g.Version] = true
		m := all[g.Name]()
		if err := m.Decode(g.Bytes, g.Version); err != nil {
			t.Errorf("%s v%d %s: %v", g.Name, g.Version, g.Variant, err)
			continue
		}
		got, err := m.Append([]byte("x"), g.Version)
		if err != nil || !bytes.Equal(got[1:], g.Bytes) {
			t.Errorf("%s v%d %s: %v\n got %x\nwant %x", g.Name, g.Version, g.Variant, err, got[1:], g.Bytes)
		}
	}
	for name, newMessage := range all {
		low, high := newMessage().Versions()
		for v := low; v <= high; v++ {
			if !versions[name][v] {
				t.Errorf("%s v%d is not compared with Kafka", name, v)
			}
		}
	}
}

// printJSON holds every message to what Kafka prints.
func printJSON(t *testing.T, golden string, all map[string]func() wire.Message) {
	t.Helper()
	for _, g := range Read(t, golden) {
		m := all[g.Name]()
		if err := m.Decode(g.Bytes, g.Version); err != nil {
			t.Fatal(err)
		}
		if got := string(m.AppendJSON(nil, g.Version)); got != g.JSON {
			t.Errorf("%s v%d %s:\n got %s\nwant %s", g.Name, g.Version, g.Variant, got, g.JSON)
		}
	}
}

// defaults holds new messages to those of Kafka.
func defaults(t *testing.T, golden string, all map[string]func() wire.Message) {
	t.Helper()
	for _, g := range Read(t, golden) {
		if g.Variant != "default" {
			continue
		}
		got, err := all[g.Name]().Append(nil, g.Version)
		if err != nil || !bytes.Equal(got, g.Bytes) {
			t.Errorf("%s v%d: %v\n got %x\nwant %x", g.Name, g.Version, err, got, g.Bytes)
		}
	}
}

// truncations cuts every message everywhere, and adds a byte.
func truncations(t *testing.T, golden string, all map[string]func() wire.Message) {
	t.Helper()
	for _, g := range Read(t, golden) {
		m := all[g.Name]()
		for n := range g.Bytes {
			if err := m.Decode(g.Bytes[:n], g.Version); !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%s v%d: first %d of %d bytes: %v", g.Name, g.Version, n, len(g.Bytes), err)
			}
		}
		if err := m.Decode(append(bytes.Clone(g.Bytes), 0), g.Version); !errors.Is(err, wire.ErrMalformed) {
			t.Fatalf("%s v%d: a byte too many: %v", g.Name, g.Version, err)
		}
	}
}

// versionsOutside tries the versions beside those that a message has.
func versionsOutside(t *testing.T, all map[string]func() wire.Message) {
	t.Helper()
	for name, newMessage := range all {
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

// Fuzz shows that what decodes is encoded in the same version, and decoded again to the same value.
func Fuzz(f *testing.F, golden string, all map[string]func() wire.Message) {
	f.Helper()
	names := make([]string, 0, len(all))
	for _, g := range Read(f, golden) {
		if len(names) == 0 || names[len(names)-1] != g.Name {
			names = append(names, g.Name)
		}
		f.Add(uint8(len(names)-1), g.Version, g.Bytes)
	}
	f.Fuzz(func(t *testing.T, which uint8, version int16, data []byte) {
		name := names[int(which)%len(names)]
		m := all[name]()
		if m.Decode(data, version) != nil {
			return
		}
		encoded, err := m.Append(nil, version)
		if err != nil {
			t.Fatalf("%s v%d: %+v: %v", name, version, m, err)
		}
		again := all[name]()
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

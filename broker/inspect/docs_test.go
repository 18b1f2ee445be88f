package inspect

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gregor/storage/vfs"
)

// example is a fenced block of docs/formats.md: its kind, the rest of its first line, and its lines.
type example struct {
	kind, about string
	lines       []string
}

func examples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "formats.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []example
	open := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !open:
			kind, about, _ := strings.Cut(fence, " ")
			out = append(out, example{kind: kind, about: about})
		case isFence:
		case open:
			out[len(out)-1].lines = append(out[len(out)-1].lines, line)
		}
		open = open != isFence
	}
	return out
}

// TestExamplesOfTheFormatsPageAreTrue compares every example with the file that it is of.
func TestExamplesOfTheFormatsPageAreTrue(t *testing.T) {
	all := examples(t)
	t.Chdir(filepath.Join("..", "..")) // the paths on the page are those of the repository
	kinds := map[string]int{}
	for _, e := range all {
		kinds[e.kind]++
		switch e.kind {
		case "bytes":
			e.checkBytes(t)
		case "dump":
			e.checkDump(t)
		case "text":
			b, err := os.ReadFile(e.about)
			if got := strings.Join(e.lines, "\n"); err != nil || strings.TrimSuffix(string(b), "\n") != got {
				t.Errorf("%s is %q, the page says %q (%v)", e.about, b, got, err)
			}
		default:
			t.Errorf("an example of kind %q", e.kind)
		}
	}
	if kinds["bytes"] < 6 || kinds["dump"] < 7 || kinds["text"] < 7 {
		t.Errorf("examples %v", kinds)
	}
}

var byteLine = regexp.MustCompile(`^ *(\d+)  ([0-9a-f]+) +(.*)$`)

var byteValue = regexp.MustCompile(`(u?int)\d+ = (-?\d+)`)

// checkBytes compares a byte diagram: positions follow each other, and bytes and numbers are those of the file.
func (e *example) checkBytes(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile(e.about)
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for _, line := range e.lines {
		m := byteLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%s: no line of a diagram: %q", e.about, line)
			continue
		}
		at, _ := strconv.Atoi(m[1])
		want, err := hex.DecodeString(m[2])
		if err != nil || at != next || at+len(want) > len(raw) || string(raw[at:at+len(want)]) != string(want) {
			t.Errorf("%s: line %q at byte %d, %v", e.about, line, next, err)
			return
		}
		next += len(want)
		if v := byteValue.FindStringSubmatch(m[3]); v != nil && v[2] != decimal(want, v[1] == "uint") {
			t.Errorf("%s: %q says %s, the bytes are %s", e.about, line, v[2], decimal(want, v[1] == "uint"))
		}
	}
}

func decimal(b []byte, unsigned bool) string {
	var wide [8]byte
	if !unsigned && b[0]&0x80 != 0 {
		wide = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	copy(wide[8-len(b):], b)
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(wide[:])), 10)
}

// checkDump compares with what Dump prints; an example that ends with "..." is its beginning.
func (e *example) checkDump(t *testing.T) {
	t.Helper()
	var out strings.Builder
	o := DumpOptions{FS: vfs.Real(), Out: &out}
	args := strings.Fields(e.about)
	for _, a := range args[:len(args)-1] {
		switch a {
		case "--print-data-log":
			o.Decoder = PlainDecoder
		case "--cluster-metadata-decoder":
			o.Decoder = MetadataDecoder
		default:
			t.Errorf("unknown option %s", a)
		}
	}
	if err := Dump(args[len(args)-1:], o); err != nil {
		t.Errorf("%s: %v", e.about, err)
	}
	want, whole := e.lines, true
	if n := len(want); n > 0 && want[n-1] == "..." {
		want, whole = want[:n-1], false
	}
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if whole && len(got) != len(want) || len(got) < len(want) {
		t.Errorf("%s: %d lines, the page has %d", e.about, len(got), len(want))
		return
	}
	for i := range want {
		if strings.TrimRight(got[i], " ") != strings.TrimRight(want[i], " ") {
			t.Errorf("%s:\n got %s\nwant %s", e.about, got[i], want[i])
		}
	}
}

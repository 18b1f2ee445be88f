package storage

import (
	"bytes"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"gregor/storage/segment"
	"gregor/storage/vfs"
)

// TestFlippedBitsOfSwapFilesTakeNothingElse damages the files of a cleaning that was interrupted between the names: the next
// start swaps them in. What is in them is damaged then, and whoever reads it says so; but the segments that they do not
// replace must stay, whatever a damaged batch says of its offsets.
func TestFlippedBitsOfSwapFilesTakeNothingElse(t *testing.T) {
	var cases []*flipCase
	for _, c := range flipCases(t) {
		if c.options.HadCleanShutdown && len(c.bases()) > 2 {
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		t.Fatal("no case has several segments")
	}
	for try := range flipTries() {
		r := rand.New(rand.NewPCG(uint64(try), 5))
		c := cases[r.IntN(len(cases))]
		bases := c.bases()
		swapped := bases[r.IntN(len(bases)-1)] // not the one that is written
		files, f := c.swapAndDamage(r, swapped)
		if problem := c.checkSwapped(t, files, f, swapped); problem != "" {
			t.Errorf("seed %d: %s, bits %v of %s: %s", try, c.name, f.bits, f.file, problem)
		}
	}
}

// bases are those of the segments, ascending.
func (c *flipCase) bases() (bases []int64) {
	for _, name := range c.names {
		if base, suffix, ok := segment.ParseFileName(name); ok && suffix == segment.LogSuffix {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases
}

// swapAndDamage gives the files of a segment the suffix .swap, and damages one of them. The flip has its later name.
func (c *flipCase) swapAndDamage(r *rand.Rand, base int64) (map[string][]byte, flip) {
	files := map[string][]byte{}
	var swaps []string
	for _, name := range c.names {
		b, suffix, ok := segment.ParseFileName(name)
		if ok && b == base && suffix != segment.SnapshotSuffix {
			files[name+segment.SwapSuffix] = c.files[name]
			if len(c.files[name]) > 0 {
				swaps = append(swaps, name)
			}
			continue
		}
		files[name] = c.files[name]
	}
	f := flip{file: swaps[r.IntN(len(swaps))]}
	raw := bytes.Clone(c.files[f.file])
	for range 1 + r.IntN(4) {
		bit := r.IntN(8 * len(raw))
		raw[bit/8] ^= 1 << (bit % 8)
		f.bits = append(f.bits, bit)
	}
	files[f.file+segment.SwapSuffix] = raw
	return files, f
}

func (c *flipCase) checkSwapped(t *testing.T, files map[string][]byte, f flip, swapped int64) string {
	t.Helper()
	o := c.options
	m := vfs.NewMem()
	install(t, m, testDir, files)
	o.FS = m
	l, err := OpenLog(o)
	if err != nil {
		if !named(err, f) {
			return "open: the error names no file: " + err.Error()
		}
	} else {
		defer l.CloseUnclean()
		if _, err := l.UpdateHighWatermark(c.end); err != nil {
			return "high watermark: " + err.Error()
		}
		if problem := c.readAll(l, f); problem != "" {
			return problem
		}
	}
	for _, base := range c.bases() {
		name := segment.FileName(base, segment.LogSuffix)
		raw, err := vfs.ReadFile(m, path.Join(testDir, name))
		if base == swapped {
			_, swapErr := vfs.ReadFile(m, path.Join(testDir, name+segment.SwapSuffix))
			if err != nil && swapErr != nil {
				return "the swapped segment is gone"
			}
			continue
		}
		if err != nil || !bytes.Equal(raw, c.files[name]) {
			return strings.TrimSpace("the segment " + name + " is gone or changed")
		}
	}
	return ""
}

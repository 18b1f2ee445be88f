package cleaner

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"gregor/storage/segment"
)

// scripted is a segment of a script.
type scripted struct {
	base, size, newest, first, modified int64
	offsets, times                      int64
	err                                 error
}

func (s scripted) Base() int64      { return s.base }
func (s scripted) SizeBytes() int64 { return s.size }

func (s scripted) MaxTimestamp() (segment.TimestampOffset, error) {
	return segment.TimestampOffset{Timestamp: s.newest}, s.err
}

func (s scripted) FirstTimestamp() (int64, bool, error) { return s.first, s.size > 0, s.err }

func (s scripted) LastModifiedMillis() (int64, error) { return s.modified, s.err }

// parseSegments reads lines of name=number.
func parseSegments(t *testing.T, input string) []scripted {
	t.Helper()
	var list []scripted
	for line := range strings.Lines(input) {
		s := scripted{newest: -1, first: -1}
		for f := range strings.FieldsSeq(line) {
			name, text, _ := strings.Cut(f, "=")
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "base":
				s.base = n
			case "size":
				s.size = n
			case "newest":
				s.newest = n
			case "first":
				s.first = n
			case "modified":
				s.modified = n
			case "offsets":
				s.offsets = n
			case "times":
				s.times = n
			default:
				t.Fatalf("unknown %q", name)
			}
		}
		list = append(list, s)
	}
	return list
}

func number(t *testing.T, d *datadriven.TestData, name string, otherwise int64) int64 {
	t.Helper()
	if !d.HasArg(name) {
		return otherwise
	}
	var text string
	d.ScanArgs(t, name, &text)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPlans runs the scripts of testdata/plan: "plan" says what of a log can be cleaned and whether it is due, "group" which
// segments become one.
func TestPlans(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			segments := parseSegments(t, d.Input)
			switch d.Cmd {
			case "plan":
				policy := Policy{
					MinDirtyRatio: float64(number(t, d, "ratio", 50)) / 100, MinLagMillis: number(t, d, "minlag", 0),
					MaxLagMillis: number(t, d, "maxlag", 1<<62),
				}
				o := Offsets{
					LogStart: number(t, d, "start", 0), LastStable: number(t, d, "stable", 1<<40), LogEnd: number(t, d, "end", 1<<40),
					CleanedTo: number(t, d, "cleaned", 0),
				}
				p, err := newPlan(o, &policy, segments, number(t, d, "now", 1000))
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("dirty %d-%d: %d of %d bytes (%d%%), delay %d, due %t, invalid %t\n", p.FirstDirty, p.FirstUncleanable,
					p.CleanableBytes, p.CleanBytes+p.CleanableBytes, int(100*p.Ratio()), p.DelayMillis, p.due(&policy), p.Invalid)
			case "group":
				items := make([]groupItem, len(segments))
				for i, s := range segments {
					items[i] = groupItem{base: s.base, sizes: sizes{log: s.size, offsets: s.offsets, times: s.times}}
				}
				policy := Policy{SegmentBytes: int32(number(t, d, "bytes", 1000)), SegmentIndexBytes: int32(number(t, d, "index", 1000))}
				return fmt.Sprintln(groupSizes(items, &policy, number(t, d, "end", 1<<20)))
			}
			return "unknown command\n"
		})
	})
}

func TestPlanFailsWithItsSegments(t *testing.T) {
	broken := errors.New("broken")
	segments := []scripted{{base: 0, size: 10, err: broken}, {base: 10}}
	for _, policy := range []Policy{{MinLagMillis: 1, MaxLagMillis: 1 << 62}, {MaxLagMillis: 1}} {
		if _, err := newPlan(Offsets{LastStable: 10, LogEnd: 10}, &policy, segments, 1000); !errors.Is(err, broken) {
			t.Errorf("%+v: %v", policy, err)
		}
	}
}

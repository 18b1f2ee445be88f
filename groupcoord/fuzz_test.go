package groupcoord

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/offsets"
	"gregor/groupcoord/schema"
	"gregor/internal/coordinator"
	"gregor/internal/timeline"
	"gregor/kraft/image"
	"gregor/protocol/record"
)

// noTimers forgets what is scheduled.
type noTimers struct{}

func (noTimers) Schedule(string, time.Duration, bool, func() (effect, error)) {}
func (noTimers) Cancel(string)                                                {}
func (noTimers) Scheduled(string) bool                                        { return false }

func testShard() *shard {
	opts := &Options{Config: DefaultConfig(), NewUUID: newMemberUUID, Image: image.Empty}
	opts.Config.Offsets.RetentionMillis = 0
	return newShard(handle{Registry: timeline.NewRegistry(0), Timers: noTimers{}, Logger: slog.New(slog.DiscardHandler)}, opts)
}

// kafkaRecords are the records of real groups.
func kafkaRecords(t testing.TB) (out []record.Record) {
	files, err := filepath.Glob("testdata/kafka/*/*.log")
	if err != nil || len(files) == 0 {
		t.Fatal("no recorded segments", err)
	}
	for _, file := range files {
		out = append(out, segmentRecords(t, file)...)
	}
	return out
}

// FuzzReplay applies any two records: whatever they hold, the shard survives
// it, and what it would write about its groups can be encoded and applied.
func FuzzReplay(f *testing.F) {
	records := kafkaRecords(f)
	for i, rec := range records {
		next := records[(i+1)%len(records)]
		f.Add(rec.Key, rec.Value, next.Key, next.Value)
	}
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 []byte) {
		s := testShard()
		for i, kv := range [][2][]byte{{key1, value1}, {key2, value2}, {key2, nil}, {key1, value1}} {
			if len(kv[1]) == 0 {
				kv[1] = nil
			}
			rec, err := codec{}.Decode(kv[0], kv[1])
			if err != nil {
				if errors.Is(err, coordinator.ErrUnknownRecord) && len(kv[0]) < 2 {
					t.Fatal("a key without a type is not an unknown type")
				}
				continue
			}
			if err := s.Replay(int64(i), coordinator.NoProducer, rec); err != nil {
				t.Logf("refused: %v", err)
			}
			s.Registry.Snapshot(int64(i + 1))
			s.Registry.Commit(int64(i + 1))
		}
		s.Loaded()
		exercise(t, s)
		s.Unloaded(coordinator.ErrNotCoordinator)
	})
}

// exercise asks about all groups and deletes what may be deleted.
func exercise(t *testing.T, s *shard) {
	listed, _ := s.list(nil, nil)
	ids := make([]string, 0, len(listed))
	for _, g := range listed {
		ids = append(ids, g.Group)
	}
	_, _ = s.describe(ids, 6)
	expired := s.expire()
	apply(t, s, expired.Records)
	results, deleted, _ := s.deleteGroups(ids)
	apply(t, s, deleted.Records)
	for _, r := range results {
		if _, err := s.lookup(r.Group); r.ErrorCode == 0 && err == nil {
			t.Fatalf("group %q is deleted and still there", r.Group)
		}
		if r.ErrorCode == 0 && s.offsets.HasOffsets(r.Group) {
			t.Fatalf("group %q is deleted and has offsets", r.Group)
		}
	}
}

func apply(t *testing.T, s *shard, records []schema.Record) {
	for _, rec := range records {
		buf, keyBytes, err := codec{}.Encode(nil, rec)
		if err != nil {
			t.Fatalf("encode %T: %v", rec.Key, err)
		}
		var value []byte
		if len(buf) > keyBytes {
			value = buf[keyBytes:]
		}
		decoded, err := codec{}.Decode(buf[:keyBytes], value)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		if err := s.Replay(100, coordinator.NoProducer, decoded); err != nil {
			t.Fatalf("replay what was decided: %v", err)
		}
	}
	s.Registry.Snapshot(s.Registry.LastOffset() + 1)
	s.Registry.Commit(s.Registry.LastOffset())
}

// TestCompactedLogsLoadToTheSameState leaves out records as the cleaner does: of
// those below the cleaned offset only the last of each key stays, and tombstones
// below the delete horizon go.
func TestCompactedLogsLoadToTheSameState(t *testing.T) {
	for _, dir := range []string{"live", "expired"} {
		for p := range 3 {
			all := segmentRecords(t, filepath.Join("testdata/kafka", dir, strconv.Itoa(p)+".log"))
			want := stateOf(t, all, func(int) bool { return true })
			for cleaned := range len(all) + 1 {
				last := map[string]int{}
				for i, rec := range all[:cleaned] {
					last[string(rec.Key)] = i
				}
				for horizon := 0; horizon <= cleaned; horizon += 3 {
					got := stateOf(t, all, func(i int) bool {
						return i >= cleaned || (last[string(all[i].Key)] == i && (all[i].Value != nil || i >= horizon))
					})
					if got != want {
						t.Fatalf("%s/%d, cleaned %d, horizon %d: loads to\n%s\nnot to\n%s", dir, p, cleaned, horizon, got, want)
					}
				}
			}
		}
	}
}

func segmentRecords(t testing.TB, file string) (out []record.Record) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range record.Batches(raw) {
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, rec)
		}
	}
	return out
}

// stateOf is what clients can see after the records were loaded.
func stateOf(t *testing.T, all []record.Record, keep func(int) bool) string {
	s := testShard()
	for i, rec := range all {
		if !keep(i) {
			continue
		}
		decoded, err := codec{}.Decode(rec.Key, rec.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Replay(rec.Offset, coordinator.NoProducer, decoded); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	s.Registry.Snapshot(1000)
	s.Registry.Commit(1000)
	return visible(s)
}

// visible is all that requests show of a shard.
func visible(s *shard) string {
	listed, _ := s.list(nil, nil)
	out := ""
	for _, g := range listed {
		out += fmt.Sprintf("%s %s %s %s\n", g.Group, g.GroupType, g.ProtocolType, g.GroupState)
		described, _ := s.describe([]string{g.Group}, 6)
		for _, m := range described[0].Members {
			instance := "none"
			if m.InstanceID != nil {
				instance = *m.InstanceID
			}
			out += fmt.Sprintf("  %s %s %s %s %x %x\n", m.MemberID, instance, m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
		}
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group, req.MemberEpoch = g.Group, -1
		fetched, err := s.fetchOffsets(offsets.Committed, &req)
		for _, topic := range fetched.Topics {
			for _, p := range topic.Partitions {
				out += fmt.Sprintf("  %s-%d %d %d %s\n", topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata)
			}
		}
		if err != nil {
			out += "  " + err.Error() + "\n"
		}
	}
	return out
}

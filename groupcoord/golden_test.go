package groupcoord_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord"
	"gregor/internal/coordinator/coordinatortest"
	"gregor/protocol/record"
)

// The directories under testdata/kafka hold the segments of __consumer_offsets
// (three partitions) of a Kafka 4.4.0: live while its groups had members,
// expired after they timed out and their offsets with them.

// loadKafka elects a coordinator over segments that Kafka wrote.
func loadKafka(t *testing.T, dir string) (*groupcoord.Coordinator, *coordinatortest.Log) {
	t.Helper()
	log := coordinatortest.NewLog(true)
	fill(t, log, dir)
	c := groupcoord.New(groupcoord.Options{Config: groupcoord.DefaultConfig(), Log: log, NumPartitions: func() int32 { return 3 }})
	t.Cleanup(c.Close)
	for p := range int32(3) {
		log.Lead(p, 5)
		c.Elect(p, 5)
	}
	synctest.Wait()
	return c, log
}

func listAll(ctx context.Context, c *groupcoord.Coordinator) []string {
	req := kmsg.NewPtrListGroupsRequest()
	req.Version = 5
	resp := c.ListGroups(ctx, req)
	out := []string{errorName(resp.ErrorCode)}
	for _, g := range resp.Groups {
		out = append(out, fmt.Sprintf("%s %s %s %s", g.Group, g.GroupType, g.ProtocolType, g.GroupState))
	}
	slices.Sort(out[1:])
	return out
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestKafkasGroupsLoadAsKafkaShowedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := loadKafka(t, "live")
		// As in describe-state.txt, list.txt and program.txt of the recording.
		equal(t, strings.Join(listAll(t.Context(), c), "\n"), strings.Join([]string{
			"ok",
			"classic-empty classic consumer Empty",
			"classic-range classic consumer Stable",
			"classic-sticky classic consumer Stable",
			"consumer-empty consumer consumer Empty",
			"consumer-regex consumer consumer Stable",
			"consumer-uniform consumer consumer Stable",
			"expiring classic  Empty",
			"offset-deleted classic  Empty",
			"share-1 share share Stable",
			"simple-offsets classic  Empty",
			"streams-1 streams streams Stable",
		}, "\n"))
	})
}

func TestKafkasExpiredGroupsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := loadKafka(t, "expired")
		equal(t, listAll(t.Context(), c), []string{"ok", "share-1 share share Empty"})
	})
}

func TestKafkasClassicGroupsAreDescribedAsKafkaDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := loadKafka(t, "live")
		// As in describe-members.txt.
		want := map[string][]string{
			"classic-range": {
				"r1-fa54636f-62f1-4606-8796-98ca3356f028 null /127.0.0.1 r1 in:2,3 other:1",
				"static-2-d4583856-d206-441b-9f94-339237fdeb27 static-2 /127.0.0.1 r2 in:0,1 other:0",
			},
			"classic-sticky": {
				"s1-46353e26-29bc-4846-ae17-95ee10bbce89 null /127.0.0.1 s1 in:0,1",
				"s2-bd6fe731-6443-4c64-a7df-ac2318c49d08 null /127.0.0.1 s2 in:2,3",
			},
		}
		protocols := map[string]string{"classic-range": "range", "classic-sticky": "cooperative-sticky"}
		for _, g := range c.DescribeGroups(t.Context(), []string{"classic-range", "classic-sticky"}, 6) {
			var got []string
			for _, m := range g.Members {
				a := kmsg.NewConsumerMemberAssignment()
				if err := a.ReadFrom(m.MemberAssignment); err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprintf("%s %s %s %s", m.MemberID, deref(m.InstanceID), m.ClientHost, m.ClientID)
				slices.SortFunc(a.Topics, func(a, b kmsg.ConsumerMemberAssignmentTopic) int { return strings.Compare(a.Topic, b.Topic) })
				for _, topic := range a.Topics {
					text += " " + topic.Topic + ":" + strings.ReplaceAll(strings.Trim(fmt.Sprint(topic.Partitions), "[]"), " ", ",")
				}
				got = append(got, text)
			}
			slices.Sort(got)
			equal(t, strings.Join(got, "\n"), strings.Join(want[g.Group], "\n"))
			equal(t, g.Protocol, protocols[g.Group])
			equal(t, g.State, "Stable")
		}
	})
}

func TestKafkasOffsetsAreFetchedAsKafkaShowedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := loadKafka(t, "live")
		// As in describe-offsets.txt.
		for group, want := range map[string]string{
			"classic-empty":    "[other-0=10@0 other-1=10@0]",
			"classic-range":    "[in-0=20@0 in-1=20@0 in-2=20@0 in-3=20@0 other-0=10@0 other-1=10@0]",
			"classic-sticky":   "[in-0=20@0 in-1=20@0]",
			"consumer-empty":   "[other-0=10@0 other-1=10@0]",
			"consumer-regex":   "[in-0=20@0 in-1=20@0 in-2=20@0 in-3=20@0 other-0=10@0 other-1=10@0]",
			"consumer-uniform": "[in-0=20@0 in-1=20@0 in-2=0 in-3=0 other-0=10@0 other-1=10@0]",
			"expiring":         "[in-0=5@0(meta é) in-1=7 other-0=3]",
			"offset-deleted":   "[in-0=5@0(meta é) other-0=3]",
			"simple-offsets":   "[in-0=5@0(meta é) in-1=7 other-0=3]",
			"deleted-group":    "[]",
			"share-1":          "[]",
		} {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Version, req.Groups = 9, []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1}}
			s := &script{t: t}
			s.fetched(answerTo(c.OffsetFetch, req))
			equal(t, group+" "+s.events[0](), group+" fetch ok "+want)
		}
	})
}

// Groups of unserved types are refused in their own way, and nothing is written
// that would touch them.
func TestForeignGroupsKeepTheirRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := loadKafka(t, "live")
		before := [3]int{len(log.Batches(0)), len(log.Batches(1)), len(log.Batches(2))}
		for _, id := range []string{"share-1", "streams-1"} {
			join := kmsg.NewPtrJoinGroupRequest()
			join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 9, id, "consumer", 10000
			join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
			equal(t, id+" "+errorName(dispatch(t.Context(), c, "", join).(*kmsg.JoinGroupResponse).ErrorCode), id+" INCONSISTENT_GROUP_PROTOCOL")

			sync := kmsg.NewPtrSyncGroupRequest()
			sync.Group, sync.MemberID = id, "m"
			equal(t, errorName(answerTo(c.SyncGroup, sync).ErrorCode), "UNKNOWN_MEMBER_ID")

			heartbeat := kmsg.NewPtrHeartbeatRequest()
			heartbeat.Group, heartbeat.MemberID = id, "m"
			equal(t, errorName(answerTo(c.Heartbeat, heartbeat).ErrorCode), "UNKNOWN_MEMBER_ID")

			described := c.DescribeGroups(t.Context(), []string{id}, 6)[0]
			equal(t, fmt.Sprint(errorName(described.ErrorCode), described.State, *described.ErrorMessage), "GROUP_ID_NOT_FOUNDDeadGroup "+id+" is not a classic group.")
			equal(t, errorName(c.DeleteGroups(t.Context(), []string{id})[0].ErrorCode), "NON_EMPTY_GROUP")
		}
		commit := kmsg.NewPtrOffsetCommitRequest()
		commit.Version, commit.Group, commit.Generation = 9, "share-1", -1
		commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "in", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
		equal(t, errorName(answerTo(c.OffsetCommit, commit).Topics[0].Partitions[0].ErrorCode), "GROUP_ID_NOT_FOUND")
		// The member of streams-1 has epoch 3.
		commit.Group, commit.MemberID, commit.Generation = "streams-1", "9w0Xk5YlTj6DmYQvZbVH4A", 2
		equal(t, errorName(answerTo(c.OffsetCommit, commit).Topics[0].Partitions[0].ErrorCode), "STALE_MEMBER_EPOCH")
		commit.Generation = 3
		equal(t, errorName(answerTo(c.OffsetCommit, commit).Topics[0].Partitions[0].ErrorCode), "ok")
		after := [3]int{len(log.Batches(0)), len(log.Batches(1)), len(log.Batches(2))}
		before[groupcoord.PartitionFor("streams-1", 3)]++
		equal(t, after, before)
	})
}

func TestAKafkaMemberGoesOnWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := loadKafka(t, "live")
		heartbeat := kmsg.NewPtrHeartbeatRequest()
		heartbeat.Version, heartbeat.Group, heartbeat.Generation = 3, "classic-range", 2
		heartbeat.MemberID = "r1-fa54636f-62f1-4606-8796-98ca3356f028"
		equal(t, errorName(answerTo(c.Heartbeat, heartbeat).ErrorCode), "ok")
		// The members of the recording have sessions of 60 s.
		time.Sleep(59 * time.Second)
		equal(t, errorName(answerTo(c.Heartbeat, heartbeat).ErrorCode), "ok")
		time.Sleep(59 * time.Second)
		// The other one was silent meanwhile.
		equal(t, errorName(answerTo(c.Heartbeat, heartbeat).ErrorCode), "REBALANCE_IN_PROGRESS")
	})
}

func TestPartitionOfAGroupIsKafkas(t *testing.T) {
	for id, want := range map[string]int32{
		"classic-sticky": 0, "offset-deleted": 0, "streams-1": 0, "simple-offsets": 1, "classic-empty": 1,
		"classic-range": 2, "consumer-empty": 2, "deleted-group": 2, "": 0,
		"polygenelubricants": 0, // its hash has no positive counterpart
	} {
		if got := groupcoord.PartitionFor(id, 3); got != want {
			t.Errorf("%q is in partition %d, want %d", id, got, want)
		}
	}
	// Java hashes the units of UTF-16.
	for _, id := range []string{"größe", "Ωmega", "€uro", "😀 group 𝄞", "in\xffvalid", "\xed\xa0\xbd"} {
		hash := int32(0)
		for _, unit := range utf16.Encode([]rune(id)) {
			hash = 31*hash + int32(unit)
		}
		if hash < 0 {
			hash = -hash
		}
		if got := groupcoord.PartitionFor(id, 1<<20); got != hash%(1<<20) {
			t.Errorf("%q is in partition %d, want %d", id, got, hash%(1<<20))
		}
	}
}

// TestKafkasGroupsExpireAsInKafka lets the recorded groups time out with
// offsets.retention.minutes=1: as in the recording only the share group is left,
// and what is written for the others are the same tombstones. (Members of
// streams groups do not time out here yet.)
func TestKafkasGroupsExpireAsInKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Kafka's timestamps count, so the clock has to be past them.
		time.Sleep(time.Until(time.UnixMilli(1795981700000)))
		log := coordinatortest.NewLog(true)
		cfg := groupcoord.DefaultConfig()
		cfg.Offsets.RetentionMillis, cfg.RetentionCheckInterval = 60_000, 10*time.Second
		fill(t, log, "live")
		before := [3]int{len(log.Batches(0)), len(log.Batches(1)), len(log.Batches(2))}
		c := groupcoord.New(groupcoord.Options{Config: cfg, Log: log, NumPartitions: func() int32 { return 3 }})
		defer c.Close()
		for p := range int32(3) {
			log.Lead(p, 5)
			c.Elect(p, 5)
		}
		time.Sleep(10 * time.Minute)
		equal(t, listAll(t.Context(), c), []string{"ok", "share-1 share share Stable", "streams-1 streams streams Stable"})

		expired := coordinatortest.NewLog(true)
		fill(t, expired, "expired")
		for p := range int32(3) {
			equal(t, lastValues(t, log.Batches(p)[before[p]:]), lastValues(t, expired.Batches(p)[before[p]:]))
		}
	})
}

// fill puts recorded segments into a log.
func fill(t *testing.T, log *coordinatortest.Log, dir string) {
	t.Helper()
	for p := range int32(3) {
		raw, err := os.ReadFile(fmt.Sprintf("testdata/kafka/%s/%d.log", dir, p))
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range record.Batches(raw) {
			if err != nil {
				t.Fatal(err)
			}
			log.Put(p, b)
			log.SetHighWatermark(p, b.NextOffset())
		}
	}
}

// lastValues lists the keys of the batches, and whether each is deleted in the
// end; without the groups of types that are not served.
func lastValues(t *testing.T, batches []record.Batch) []string {
	t.Helper()
	last := map[string]string{}
	for _, b := range batches {
		for rec, err := range b.Records(record.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			s := &script{t: t}
			key := s.showRecord(b, record.Record{Key: rec.Key})
			if strings.Contains(key, "Share") || strings.Contains(key, "Streams") || strings.Contains(key, "streams-1") || strings.Contains(key, "share-1") {
				continue
			}
			last[hex.EncodeToString(rec.Key)] = fmt.Sprintf("%s deleted=%v", key, rec.Value == nil)
		}
	}
	out := make([]string, 0, len(last))
	for _, text := range last {
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

package groupcoord_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord"
	"gregor/internal/coordinator"
	"gregor/internal/coordinator/coordinatortest"
)

// elected returns a coordinator of one partition over a log in memory.
func elected(b *testing.B, log *coordinatortest.Log) *groupcoord.Coordinator {
	b.Helper()
	loaded := make(chan struct{}, 1)
	cfg := groupcoord.DefaultConfig()
	cfg.Classic.InitialRebalanceDelay = 300 * time.Millisecond
	c := groupcoord.New(groupcoord.Options{
		Config: cfg, Log: log, NumPartitions: func() int32 { return 1 },
		Events: groupcoord.Events{Runtime: coordinator.Events{Loaded: func(coordinator.LoadSummary) { loaded <- struct{}{} }}},
	})
	log.Lead(0, 1)
	c.Elect(0, 1)
	<-loaded
	// The partition serves a moment after it is loaded.
	for c.Metrics().Active == 0 {
		time.Sleep(time.Millisecond)
	}
	return c
}

func commitRequest(group string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: partition, Offset: offset, LeaderEpoch: -1}}}}
	return req
}

func BenchmarkOffsetCommits(b *testing.B) {
	for _, committers := range []int{1, 64} {
		b.Run(fmt.Sprint(committers, "committers"), func(b *testing.B) {
			log := coordinatortest.NewLog(true)
			log.Discard(0)
			c := elected(b, log)
			defer c.Close()
			var next atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range committers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						resp := answerTo(c.OffsetCommit, commitRequest(fmt.Sprint("g", i), 0, n))
						if resp.Topics[0].Partitions[0].ErrorCode != 0 {
							b.Error("commit failed")
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(c.Metrics().Records)/float64(c.Metrics().Batches), "records/append")
		})
	}
}

// BenchmarkLoad replays a million offsets of a thousand groups.
func BenchmarkLoad(b *testing.B) {
	log := coordinatortest.NewLog(true)
	log.Lead(0, 1)
	c := elected(b, log)
	for g := range 1000 {
		req := commitRequest(fmt.Sprint("group-", g), 0, 1)
		for p := range int32(1000) {
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: p, Offset: int64(p), LeaderEpoch: -1})
		}
		answerTo(c.OffsetCommit, req)
	}
	c.Close()
	b.ReportAllocs()
	for b.Loop() {
		c := elected(b, log)
		b.StopTimer()
		c.Close()
		b.StartTimer()
	}
}

// BenchmarkLargeGroup lets 500 members of a classic group join and sync; 0.3 s of
// it is the initial delay.
func BenchmarkLargeGroup(b *testing.B) {
	log := coordinatortest.NewLog(true)
	log.Discard(0)
	c := elected(b, log)
	defer c.Close()
	const members = 500
	ids := make([]string, members)
	join := func(group string, i int) *kmsg.JoinGroupResponse {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.ProtocolType = 3, group, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 60_000, 60_000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
		return dispatch(context.Background(), c, "c", req).(*kmsg.JoinGroupResponse)
	}
	b.ResetTimer()
	for n := range b.N {
		group := fmt.Sprint("g", n)
		var wg sync.WaitGroup
		var leader atomic.Pointer[kmsg.JoinGroupResponse]
		var generation atomic.Int32
		for i := range members {
			wg.Go(func() {
				resp := join(group, i)
				ids[i] = resp.MemberID
				generation.Store(resp.Generation)
				if resp.LeaderID == resp.MemberID {
					leader.Store(resp)
				}
			})
		}
		wg.Wait()
		for i := range members {
			wg.Go(func() {
				req := kmsg.NewPtrSyncGroupRequest()
				req.Version, req.Group, req.MemberID, req.Generation = 3, group, ids[i], generation.Load()
				if l := leader.Load(); l != nil && l.MemberID == ids[i] {
					for _, m := range l.Members {
						req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: []byte("x")})
					}
				}
				answerTo(c.SyncGroup, req)
			})
		}
		wg.Wait()
	}
	if n := len(log.Batches(0)); n != 0 {
		b.Errorf("%d batches kept", n)
	}
}

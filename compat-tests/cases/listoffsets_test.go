package cases

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

const listOffsetsMax = 11

func stamped(timestamps ...int64) (out []wire.Record) {
	for _, ts := range timestamps {
		out = append(out, wire.Record{Timestamp: ts, Value: []byte("v")})
	}
	return out
}

func TestLookupBetweenTwoTimestamps(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for _, layout := range []string{"four-batches", "none", "gzip", "snappy", "lz4", "zstd"} {
			topic := wire.CreateTopic(t, n, "lookup-"+layout, 1)
			if layout == "four-batches" {
				for _, ts := range []int64{2, 4, 6, 8} {
					wire.MustProduce(t, n.Addr, topic, 0, wire.NewBatch(wire.None, stamped(ts)...))
				}
			}
			for _, codec := range wire.Codecs {
				if codec.String() == layout {
					wire.MustProduce(t, n.Addr, topic, 0, wire.NewBatch(codec, stamped(2, 4, 6, 8)...))
				}
			}
			for v := int16(1); v <= listOffsetsMax; v++ {
				for target, offset := range map[int64]int64{0: 0, 2: 0, 3: 1, 4: 1, 5: 2, 7: 3, 8: 3, 9: -1} {
					p := wire.ListOffset(t, n.Addr, v, topic, 0, target)
					stamp := 2 * (offset + 1)
					if offset < 0 {
						stamp = -1
					}
					if p.ErrorCode != 0 || p.Offset != offset || p.Timestamp != stamp {
						t.Errorf("%s v%d at %d: %+v", layout, v, target, p)
					}
				}
			}
		}
	})
}

func TestNothingAtOrAfterTheTimestamp(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		empty := wire.CreateTopic(t, n, "nothing-after-empty", 1)
		topic := wire.CreateTopic(t, n, "nothing-after", 1)
		wire.MustProduce(t, n.Addr, topic, 0, wire.NewBatch(wire.None, stamped(5, 6)...))
		for v := int16(1); v <= listOffsetsMax; v++ {
			for _, tp := range []wire.Topic{empty, topic} {
				p := wire.ListOffset(t, n.Addr, v, tp, 0, 4102444800000)
				if p.ErrorCode != 0 || p.Offset != -1 || p.Timestamp != -1 || p.LeaderEpoch != -1 {
					t.Errorf("%s v%d: %+v", tp.Name, v, p)
				}
			}
			for timestamp, offset := range map[int64]int64{-1: 2, -2: 0} {
				p := wire.ListOffset(t, n.Addr, v, topic, 0, timestamp)
				if p.ErrorCode != 0 || p.Offset != offset || p.Timestamp != -1 {
					t.Errorf("v%d at %d: %+v", v, timestamp, p)
				}
			}
		}
	})
}

func TestSpecialTimestampsInOldVersions(t *testing.T) {
	since := map[int64]int16{-3: 7, -4: 8, -5: 9, -6: 11, -7: 99, -100: 99}
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "special", 2)
		wire.MustProduce(t, n.Addr, topic, 0, wire.NewBatch(wire.None, stamped(5, 9, 7)...))
		for v := int16(1); v <= listOffsetsMax; v++ {
			for timestamp, first := range since {
				req := wire.At(kmsg.NewPtrListOffsetsRequest(), v)
				req.ReplicaID = -1
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic = topic.Name
				for p, ts := range []int64{timestamp, -1} {
					rp := kmsg.NewListOffsetsRequestTopicPartition()
					rp.Partition, rp.Timestamp = int32(p), ts
					rt.Partitions = append(rt.Partitions, rp)
				}
				req.Topics = append(req.Topics, rt)
				for _, p := range wire.Do[*kmsg.ListOffsetsResponse](t, n.Addr, req).Topics[0].Partitions {
					what := fmt.Sprintf("v%d timestamp %d partition %d", v, timestamp, p.Partition)
					switch {
					case p.Partition == 1:
						wantCode(t, what, p.ErrorCode, nil)
					case v < first:
						wantCode(t, what, p.ErrorCode, kerr.UnsupportedVersion)
						want(t, what, p.Offset, -1)
					default:
						wantCode(t, what, p.ErrorCode, nil)
						want(t, what, p.Offset, map[int64]int64{-3: 1, -4: 0, -5: -1, -6: -1}[timestamp])
					}
				}
			}
			twice := wire.At(kmsg.NewPtrListOffsetsRequest(), v)
			twice.ReplicaID = -1
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = topic.Name
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp = -1
			rt.Partitions = append(rt.Partitions, rp, rp)
			twice.Topics = append(twice.Topics, rt)
			for _, p := range wire.Do[*kmsg.ListOffsetsResponse](t, n.Addr, twice).Topics[0].Partitions {
				wantCode(t, "the same partition twice", p.ErrorCode, kerr.InvalidRequest)
			}
		}
	})
}

func TestTimeLookupOnLogAppendTime(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "lookup-lat", 1, "message.timestamp.type", "LogAppendTime")
		var stamps []int64
		for i := range int64(100) {
			stamps = append(stamps, 1000*i)
		}
		for _, codec := range wire.Codecs {
			got := wire.Produce(t, n.Addr, 9, topic, 0, wire.NewBatch(codec, stamped(stamps...)...).Encode())
			p := wire.ListOffset(t, n.Addr, 8, topic, 0, got.LogAppendTime)
			want(t, codec.String()+": offset", p.Offset, got.BaseOffset)
			want(t, codec.String()+": timestamp", p.Timestamp, got.LogAppendTime)
			newest := wire.ListOffset(t, n.Addr, 8, topic, 0, -3)
			want(t, codec.String()+": time of the newest", newest.Timestamp, got.LogAppendTime)
			between(2_000_000) // the next batch has a later time
		}
	})
}

func TestEndOffsetUnderReadCommitted(t *testing.T) {
	// Without a transaction both ends are the same; transactions are not part of Gregor yet.
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "end-committed", 1)
		produceValues(t, n, topic, 0, "a", "b")
		for v := int16(2); v <= listOffsetsMax; v++ {
			req := wire.At(kmsg.NewPtrListOffsetsRequest(), v)
			req.ReplicaID, req.IsolationLevel = -1, 1
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = topic.Name
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp = -1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := wire.Do[*kmsg.ListOffsetsResponse](t, n.Addr, req).Topics[0].Partitions[0]
			want(t, "end", p.Offset, 2)
		}
	})
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := wire.CreateTopic(t, n, "leader-epoch", 1)
		produceValues(t, n, topic, 0, "a", "b", "c")
		for v := int16(2); v <= 4; v++ {
			for epoch, end := range map[int32]int64{0: 3, 5: -1} {
				req := wire.At(kmsg.NewPtrOffsetForLeaderEpochRequest(), v)
				req.ReplicaID = -2
				rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
				rt.Topic = topic.Name
				rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, epoch
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				p := wire.Do[*kmsg.OffsetForLeaderEpochResponse](t, n.Addr, req).Topics[0].Partitions[0]
				wantCode(t, "OffsetForLeaderEpoch", p.ErrorCode, nil)
				want(t, fmt.Sprintf("v%d end of epoch %d", v, epoch), p.EndOffset, end)
			}
		}
	})
}

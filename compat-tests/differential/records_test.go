package differential

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/wire"
)

// oldMessage is a message set of magic 0 or 1 with one message.
func oldMessage(magic byte, value string) []byte {
	be := binary.BigEndian
	body := []byte{magic, 0}
	if magic == 1 {
		body = be.AppendUint64(body, 1000)
	}
	body = be.AppendUint32(body, 0xffffffff)
	body = be.AppendUint32(body, uint32(len(value)))
	body = append(body, value...)
	out := be.AppendUint64(nil, 0)
	out = be.AppendUint32(out, uint32(len(body)+4))
	out = be.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

func batch(codec wire.Codec, values ...string) *wire.Batch {
	var records []wire.Record
	for i, v := range values {
		records = append(records, wire.Record{Timestamp: int64(1000 + i), Key: []byte("k"), Value: []byte(v)})
	}
	return wire.NewBatch(codec, records...)
}

func edited(b *wire.Batch, f func(*wire.Batch)) []byte {
	f(b)
	return b.Encode()
}

// inputs are records fields, good and bad. Null is not among them: Kafka's handler fails on it and never answers.
func inputs() map[string][]byte {
	good := batch(wire.None, "a", "b").Encode()
	in := map[string][]byte{
		"good":                good,
		"empty":               {},
		"one byte":            {0},
		"no header":           good[:40],
		"cut":                 good[:len(good)-3],
		"cut records":         good[:wire.HeaderBytes+2],
		"trailing bytes":      append(slices.Clone(good), 1, 2, 3),
		"two batches":         append(slices.Clone(good), good...),
		"message of magic 0":  oldMessage(0, "old"),
		"message of magic 1":  oldMessage(1, "old"),
		"magic 3":             edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Magic = 3 }),
		"negative magic":      edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Magic = -1 }),
		"wrong CRC":           edited(batch(wire.None, "a"), func(b *wire.Batch) { b.CRC = new(uint32(7)) }),
		"no records":          batch(wire.None).Encode(),
		"codec 5":             edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Attributes = 5 }),
		"codec 7":             edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Attributes = 7 }),
		"not compressed":      edited(batch(wire.None, "a"), func(b *wire.Batch) {}),
		"unused attributes":   edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Attributes |= 1 << 10 }),
		"delete horizon":      edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Attributes |= 1 << 6 }),
		"control":             edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Attributes |= wire.Control }),
		"LogAppendTime":       edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Attributes |= wire.LogAppendTime }),
		"base offset":         edited(batch(wire.None, "a"), func(b *wire.Batch) { b.BaseOffset = 9 }),
		"leader epoch":        edited(batch(wire.None, "a"), func(b *wire.Batch) { b.LeaderEpoch = 9 }),
		"max timestamp":       edited(batch(wire.None, "a"), func(b *wire.Batch) { b.MaxTimestamp = 77 }),
		"negative time":       edited(batch(wire.None, "a"), func(b *wire.Batch) { b.BaseTimestamp, b.MaxTimestamp, b.Records[0].Timestamp = -1, -1, -1 }),
		"count 0":             edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Count = new(int32(0)) }),
		"count -1":            edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Count = new(int32(-1)) }),
		"count 2 of 1":        edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Count, b.LastOffsetDelta = new(int32(2)), new(int32(1)) }),
		"count 1 of 2":        edited(batch(wire.None, "a", "b"), func(b *wire.Batch) { b.Count, b.LastOffsetDelta = new(int32(1)), new(int32(0)) }),
		"count huge":          edited(batch(wire.None, "a"), func(b *wire.Batch) { b.Count, b.LastOffsetDelta = new(int32(1<<31-1)), new(int32(1<<31-2)) }),
		"last delta":          edited(batch(wire.None, "a"), func(b *wire.Batch) { b.LastOffsetDelta = new(int32(3)) }),
		"sequence -1":         batch(wire.None, "a").From(5, 0, -1).Encode(),
		"huge headers":        batch(wire.None, "a").EncodeWith([]byte{0x14, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f}),
		"record too short":    batch(wire.None, "a").EncodeWith([]byte{0x02, 0}),
		"record too long":     batch(wire.None, "a").EncodeWith([]byte{0x7e, 0, 0, 0, 1, 1, 0}),
		"negative length":     batch(wire.None, "a").EncodeWith([]byte{0x03}),
		"record's bytes left": batch(wire.None, "a").EncodeWith([]byte{0x10, 0, 0, 0, 1, 1, 0, 0, 0}),
		"offset delta 4":      batch(wire.None, "a").EncodeWith([]byte{0x0c, 0, 0, 8, 1, 1, 0}),
	}
	for _, codec := range wire.Codecs {
		in[codec.String()] = batch(codec, "a", "b").Encode()
		if codec != wire.None {
			in["garbage for "+codec.String()] = batch(codec, "a").EncodeWith([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
			in["nothing for "+codec.String()] = batch(codec, "a").EncodeWith(nil)
			in["half of "+codec.String()] = batch(codec, "a").EncodeWith(wire.Compress(codec, []byte{0x0c, 0, 0, 0, 1, 1, 0})[:4])
		}
	}
	return in
}

func TestProduceInputs(t *testing.T) {
	p := newPair(t)
	p.create("pi", 1)
	p.create("pi-lat", 1, "message.timestamp.type", "LogAppendTime")
	p.create("pi-compact", 1, "cleanup.policy", "compact")
	p.create("pi-gzip", 1, "compression.type", "gzip")
	p.create("pi-plain", 1, "compression.type", "uncompressed")
	in := inputs()
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, topic := range []string{"pi", "pi-lat", "pi-compact", "pi-gzip", "pi-plain"} {
			p.same(topic+" "+name, func(s *side) kmsg.Request { return wire.ProduceRequest(12, s.topic(topic), 0, -1, in[name]) })
		}
	}
	for _, topic := range []string{"pi", "pi-lat", "pi-compact", "pi-gzip", "pi-plain"} {
		p.same(topic+" what was stored", func(s *side) kmsg.Request { return wire.FetchRequest(12, s.topic(topic), 0, 0, 0) })
	}
}

func TestProduceVersions(t *testing.T) {
	p := newPair(t)
	p.create("pv", 2)
	for _, v := range versions(0, 13) {
		for _, name := range []string{"good", "empty", "wrong CRC", "zstd", "gzip", "cut", "two batches", "message of magic 0", "message of magic 1", "base offset", "count 0"} {
			p.same(name, func(s *side) kmsg.Request { return wire.ProduceRequest(v, s.topic("pv"), 0, 1, inputs()[name]) })
		}
		good := batch(wire.None, "x").Encode()
		for _, acks := range []int16{-2, -1, 0, 1, 2, 7} {
			p.same(fmt.Sprintf("acks %d", acks), func(s *side) kmsg.Request { return wire.ProduceRequest(v, s.topic("pv"), 1, acks, good) })
		}
		p.same("missing topic", func(s *side) kmsg.Request { return wire.ProduceRequest(v, s.topic("pv-missing"), 0, 1, good) })
		p.same("missing partition", func(s *side) kmsg.Request { return wire.ProduceRequest(v, s.topic("pv"), 5, 1, good) })
		p.same("negative partition", func(s *side) kmsg.Request { return wire.ProduceRequest(v, s.topic("pv"), -1, 1, good) })
		p.same("bad name", func(s *side) kmsg.Request { return wire.ProduceRequest(v, wire.Topic{Name: "a/b"}, 0, 1, good) })
		p.same("both partitions", func(s *side) kmsg.Request {
			req := wire.ProduceRequest(v, s.topic("pv"), 0, -1, good)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, wire.ProduceRequest(v, s.topic("pv"), 1, -1, good).Topics[0].Partitions...)
			return req
		})
		p.same("no partitions", func(s *side) kmsg.Request {
			req := wire.ProduceRequest(v, s.topic("pv"), 0, -1, good)
			req.Topics[0].Partitions = nil
			return req
		})
		p.same("internal topic", func(s *side) kmsg.Request {
			return wire.ProduceRequest(v, wire.Topic{Name: "__cluster_metadata"}, 0, -1, good)
		})
	}
	p.same("what was stored", func(s *side) kmsg.Request { return wire.FetchRequest(12, s.topic("pv"), 0, 0, 0) })
	p.same("what was stored", func(s *side) kmsg.Request { return wire.FetchRequest(12, s.topic("pv"), 1, 0, 0) })
}

func initProducer(v int16, id int64, epoch int16, transactional *string) *kmsg.InitProducerIDRequest {
	req := wire.At(kmsg.NewPtrInitProducerIDRequest(), v)
	req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis, req.TransactionalID = id, epoch, 60000, transactional
	return req
}

func TestIdempotentProducers(t *testing.T) {
	p := newPair(t)
	p.create("ip", 1)
	p.eventually("producer ids", constant(initProducer(4, -1, -1, nil)), func(resp kmsg.Response) bool {
		r, _ := resp.(*kmsg.InitProducerIDResponse)
		return r.ErrorCode == 0
	})
	for _, v := range versions(0, 5) {
		p.same("new", constant(initProducer(v, -1, -1, nil)), func(s *side, resp kmsg.Response) {
			r, _ := resp.(*kmsg.InitProducerIDResponse)
			s.producers["p"] = r.ProducerID
		})
	}
	for _, v := range versions(3, 5) {
		p.same("half given", constant(initProducer(v, 5, -1, nil)))
		p.same("half given", constant(initProducer(v, -1, 5, nil)))
		p.same("empty transactional id", constant(initProducer(v, -1, -1, new(""))))
	}
	send := func(what string, epoch int16, sequence int32, values ...string) {
		p.t.Helper()
		p.same(what, func(s *side) kmsg.Request {
			return wire.ProduceRequest(11, s.topic("ip"), 0, -1, batch(wire.None, values...).From(s.producers["p"], epoch, sequence).Encode())
		})
	}
	send("first not 0", 0, 5, "x")
	send("goes on", 0, 6, "x", "y")
	send("again", 0, 6, "x", "y")
	send("other count", 0, 6, "x")
	send("gap", 0, 20, "x")
	send("before", 0, 2, "x")
	send("goes on", 0, 8, "z")
	send("new epoch not 0", 1, 9, "z")
	send("new epoch", 1, 0, "z")
	send("old epoch", 0, 9, "z")
	for i := range int32(8) {
		send("many", 1, i+1, "m")
	}
	send("one of the last five", 1, 5, "m")
	send("older", 1, 1, "m")
	send("two of them at once", 1, 7, "m", "m")
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "ip", Partitions: []int32{0}}}
	p.same("describe", constant(producers))
	p.same("stored", func(s *side) kmsg.Request { return wire.FetchRequest(12, s.topic("ip"), 0, 0, 0) })
	for _, s := range p.sides() {
		s.producers["p"] += 1_000_000 // a producer that was never handed out
	}
	send("unknown producer", 3, 7, "u")
	send("unknown producer, lower epoch", 2, 0, "u")
}

func TestFetchVersions(t *testing.T) {
	p := newPair(t)
	p.create("fv", 3)
	for _, s := range p.sides() {
		for _, codec := range wire.Codecs {
			wire.MustProduce(t, s.node.Addr, s.topic("fv"), 0, batch(codec, "a", "b", "c"))
		}
		wire.MustProduce(t, s.node.Addr, s.topic("fv"), 1, batch(wire.None, "one"))
	}
	for _, v := range versions(3, 18) {
		for _, offset := range []int64{0, 1, 2, 3, 7, 14, 15, 16, -1, -2, 1 << 40} {
			p.same(fmt.Sprintf("offset %d", offset), func(s *side) kmsg.Request { return wire.FetchRequest(v, s.topic("fv"), 0, offset, 0) })
		}
		shape := func(what string, edit func(*kmsg.FetchRequest)) {
			p.t.Helper()
			p.same(what, func(s *side) kmsg.Request {
				req := wire.FetchRequest(v, s.topic("fv"), 0, 0, 0)
				edit(req)
				return req
			})
		}
		shape("all partitions", func(r *kmsg.FetchRequest) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, wire.FetchPartition(1, 0), wire.FetchPartition(2, 0), wire.FetchPartition(9, 0))
		})
		shape("small partition", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].PartitionMaxBytes = 100 })
		shape("one byte", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].PartitionMaxBytes = 1 })
		shape("no bytes", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].PartitionMaxBytes = 0 })
		shape("small request", func(r *kmsg.FetchRequest) {
			r.MaxBytes = 100
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, wire.FetchPartition(1, 0))
		})
		shape("no request bytes", func(r *kmsg.FetchRequest) { r.MaxBytes = 0 })
		shape("read committed", func(r *kmsg.FetchRequest) { r.IsolationLevel = 1 })
		shape("replica 7", func(r *kmsg.FetchRequest) { r.ReplicaID = 7 })
		shape("debugging replica", func(r *kmsg.FetchRequest) { r.ReplicaID = -2 })
		shape("rack", func(r *kmsg.FetchRequest) { r.Rack = "r1" })
		shape("twice", func(r *kmsg.FetchRequest) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, wire.FetchPartition(0, 3))
		})
		for _, epoch := range []int32{0, 1, 5, -2} {
			shape(fmt.Sprintf("epoch %d", epoch), func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch })
			shape(fmt.Sprintf("last fetched %d", epoch), func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LastFetchedEpoch = epoch })
		}
		p.same("missing topic", func(s *side) kmsg.Request { return wire.FetchRequest(v, s.topic("fv-missing"), 0, 0, 0) })
		p.same("missing beside another", func(s *side) kmsg.Request {
			req := wire.FetchRequest(v, s.topic("fv-missing"), 0, 0, 0)
			req.Topics = append(req.Topics, wire.FetchRequest(v, s.topic("fv"), 0, 0, 0).Topics...)
			return req
		})
		if v >= 7 {
			fetchSession(p, v)
		}
	}
}

// fetchSession opens, uses, changes and closes a session.
func fetchSession(p *pair, v int16) {
	p.t.Helper()
	learnSession := func(s *side, resp kmsg.Response) {
		if r, ok := resp.(*kmsg.FetchResponse); ok && r.SessionID != 0 {
			s.session = r.SessionID
		}
	}
	step := func(what string, epoch int32, edit func(s *side, r *kmsg.FetchRequest)) {
		p.t.Helper()
		p.same("session: "+what, func(s *side) kmsg.Request {
			req := wire.FetchRequest(v, s.topic("fv"), 0, 0, 0)
			req.Topics, req.SessionID, req.SessionEpoch = nil, s.session, epoch
			edit(s, req)
			return req
		}, learnSession)
	}
	add := func(s *side, r *kmsg.FetchRequest, partition int32, offset int64) {
		r.Topics = append(r.Topics, wire.FetchRequest(v, s.topic("fv"), partition, offset, 0).Topics...)
	}
	for _, s := range p.sides() {
		s.session = 0
	}
	step("open", 0, func(s *side, r *kmsg.FetchRequest) {
		add(s, r, 0, 12)
		add(s, r, 1, 0)
		add(s, r, 2, 0)
	})
	step("again", 1, func(*side, *kmsg.FetchRequest) {})
	step("caught up", 2, func(s *side, r *kmsg.FetchRequest) {
		add(s, r, 0, 15)
		add(s, r, 1, 1)
	})
	step("idle", 3, func(*side, *kmsg.FetchRequest) {})
	step("forget", 4, func(s *side, r *kmsg.FetchRequest) {
		forgotten := kmsg.NewFetchRequestForgottenTopic()
		forgotten.Topic, forgotten.TopicID, forgotten.Partitions = "fv", s.topic("fv").ID, []int32{0}
		r.ForgottenTopics = append(r.ForgottenTopics, forgotten)
	})
	step("out of range", 5, func(s *side, r *kmsg.FetchRequest) { add(s, r, 1, 99) })
	step("still out of range", 6, func(*side, *kmsg.FetchRequest) {})
	step("missing partition", 7, func(s *side, r *kmsg.FetchRequest) { add(s, r, 9, 0) })
	step("still missing", 8, func(*side, *kmsg.FetchRequest) {})
	step("missing topic", 9, func(s *side, r *kmsg.FetchRequest) {
		r.Topics = append(r.Topics, wire.FetchRequest(v, s.topic("fv-missing"), 0, 0, 0).Topics...)
	})
	step("wrong epoch", 3, func(*side, *kmsg.FetchRequest) {})
	step("unknown session", 1, func(_ *side, r *kmsg.FetchRequest) { r.SessionID++ })
	step("close", -1, func(*side, *kmsg.FetchRequest) {})
	step("closed", 10, func(*side, *kmsg.FetchRequest) {})
}

func TestListOffsetsVersions(t *testing.T) {
	p := newPair(t)
	p.create("lo", 2)
	for _, s := range p.sides() {
		wire.MustProduce(t, s.node.Addr, s.topic("lo"), 0, batch(wire.None, "a", "b"))
		wire.MustProduce(t, s.node.Addr, s.topic("lo"), 0, batch(wire.Gzip, "c", "d", "e"))
	}
	for _, v := range versions(0, 11) {
		request := func(topic string, partition int32, timestamp int64, edit func(*kmsg.ListOffsetsRequest)) *kmsg.ListOffsetsRequest {
			req := wire.At(kmsg.NewPtrListOffsetsRequest(), v)
			req.ReplicaID, req.TimeoutMillis = -1, 5000
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = topic
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, timestamp, -1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			if edit != nil {
				edit(req)
			}
			return req
		}
		for _, timestamp := range []int64{-1, -2, -3, -4, -5, -6, -7, -99, 0, 999, 1000, 1001, 1002, 1003, 1 << 60} {
			for _, partition := range []int32{0, 1, 9} {
				p.same(fmt.Sprintf("%d of partition %d", timestamp, partition), constant(request("lo", partition, timestamp, nil)))
			}
		}
		p.same("missing", constant(request("lo-missing", 0, -1, nil)))
		p.same("bad name", constant(request("a/b", 0, -1, nil)))
		for _, epoch := range []int32{0, 3, -5} {
			p.same(fmt.Sprintf("epoch %d", epoch), constant(request("lo", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch })))
		}
		for _, replica := range []int32{-2, 1, 7} {
			p.same(fmt.Sprintf("replica %d", replica), constant(request("lo", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.ReplicaID = replica })))
		}
		p.same("read committed", constant(request("lo", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.IsolationLevel = 1 })))
		p.same("nothing", constant(request("lo", 0, -1, func(r *kmsg.ListOffsetsRequest) { r.Topics = nil })))
	}
}

func TestOffsetForLeaderEpochAndDeleteRecords(t *testing.T) {
	p := newPair(t)
	p.create("ole", 2)
	for _, s := range p.sides() {
		wire.MustProduce(t, s.node.Addr, s.topic("ole"), 0, batch(wire.None, "a", "b", "c", "d"))
	}
	for _, v := range versions(2, 4) {
		for _, replica := range []int32{-2, -1, 1, 7} {
			for _, current := range []int32{-1, 0, 4} {
				for _, epoch := range []int32{-1, 0, 1, 9} {
					for topic, partition := range map[string]int32{"ole": 0, "ole-missing": 0} {
						req := wire.At(kmsg.NewPtrOffsetForLeaderEpochRequest(), v)
						req.ReplicaID = replica
						rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
						rt.Topic = topic
						rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
						rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = partition, current, epoch
						rt.Partitions = append(rt.Partitions, rp)
						req.Topics = append(req.Topics, rt)
						p.same(fmt.Sprintf("%s replica %d current %d epoch %d", topic, replica, current, epoch), constant(req))
					}
				}
			}
		}
	}
	for _, v := range versions(0, 2) {
		for _, offset := range []int64{0, 1, 1, 9, -1, -2, 0} {
			for _, partition := range []int32{0, 1, 9} {
				req := wire.At(kmsg.NewPtrDeleteRecordsRequest(), v)
				req.TimeoutMillis = 5000
				req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "ole", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
				p.same(fmt.Sprintf("before %d of %d", offset, partition), constant(req))
			}
		}
		for _, topic := range []string{"ole-missing", "a/b", "__consumer_offsets"} {
			req := wire.At(kmsg.NewPtrDeleteRecordsRequest(), v)
			req.TimeoutMillis = 5000
			req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 0}}}}
			p.same(topic, constant(req))
		}
	}
}

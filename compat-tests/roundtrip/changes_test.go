package roundtrip

import (
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
)

// codecs are those of producers.
var codecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}

// change does what brokers are for: every step adds to the topics of all steps before, makes and deletes topics, alters
// configs, deletes records and moves groups.
func (w *traveler) change() {
	w.t.Helper()
	adm := kadm.NewClient(w.client())
	if w.step == 1 {
		w.create(adm, "always", 3, nil)
		w.create(adm, "small-segments", 1, map[string]*string{"segment.ms": new("5000"), "index.interval.bytes": new("512")})
		w.create(adm, "deleted-from", 1, nil)
		w.create(adm, "compacted", 1, map[string]*string{
			"cleanup.policy": new("compact"), "segment.ms": new("5000"), "min.cleanable.dirty.ratio": new("0.01"), "min.compaction.lag.ms": new("0"),
		})
		w.create(adm, "transactional", 1, nil)
	}
	w.create(adm, fmt.Sprintf("of-step-%d", w.step), 2, map[string]*string{"retention.ms": new("123456789")})
	w.produce()
	w.alter(adm)
	w.moveGroups(adm)
	if w.node.Kind == harness.Kafka {
		w.transact()
	}
	if w.step > 2 {
		gone := fmt.Sprintf("of-step-%d", w.step-2)
		_, err := adm.DeleteTopic(w.context(), gone)
		w.must("delete "+gone, err)
		delete(w.alive, gone)
		w.create(adm, gone, 1, nil) // made again: the old records must not come back
	}
}

func (w *traveler) create(adm *kadm.Client, name string, partitions int32, configs map[string]*string) {
	w.t.Helper()
	r, err := adm.CreateTopic(w.context(), partitions, 1, configs, name)
	w.must("create "+name, err)
	w.must("create "+name, r.Err)
	w.alive[name] = partitions
	w.awaitLeaders()
}

// produce appends with all codecs to all topics.
func (w *traveler) produce() {
	w.t.Helper()
	for i, codec := range codecs {
		cl := w.client(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(0))
		for topic, partitions := range w.alive {
			if topic == "transactional" {
				continue
			}
			var batch []*kgo.Record
			for n := range 60 {
				batch = append(batch, &kgo.Record{
					Topic: topic, Partition: int32(n) % partitions, Key: fmt.Appendf(nil, "key-%d", n%7),
					Value: fmt.Appendf(nil, "step %d, codec %d, record %d %0100d", w.step, i, n, n),
					// A minute from codec to codec: segment.ms then rolls.
					Timestamp: w.began.Add(time.Duration(w.step*len(codecs)+i) * time.Minute).Add(time.Duration(n) * time.Millisecond),
					Headers:   []kgo.RecordHeader{{Key: "step", Value: fmt.Append(nil, w.step)}, {Key: "null"}},
				})
			}
			w.must("produce to "+topic, cl.ProduceSync(w.context(), batch...).FirstErr())
		}
		cl.Close()
	}
}

func (w *traveler) alter(adm *kadm.Client) {
	w.t.Helper()
	changed, err := adm.AlterTopicConfigs(w.context(), []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: new(strconv.Itoa(864000000 + w.step))},
		{Op: kadm.SetConfig, Name: "max.message.bytes", Value: new(strconv.Itoa(2000000 + w.step))},
	}, "always", "small-segments")
	w.must("alter configs", err)
	for _, c := range changed {
		w.must("alter configs of "+c.Name, c.Err)
	}
	grown := w.alive["always"] + 1
	added, err := adm.UpdatePartitions(w.context(), int(grown), "always")
	w.must("add a partition", err)
	w.must("add a partition", added["always"].Err)
	w.alive["always"] = grown
	w.awaitLeaders()
	deletion := kadm.Offsets{}
	deletion.Add(kadm.Offset{Topic: "deleted-from", Partition: 0, At: int64(w.step * 50)})
	deletion.Add(kadm.Offset{Topic: "small-segments", Partition: 0, At: int64(w.step * 120)})
	deleted, err := adm.DeleteRecords(w.context(), deletion)
	w.must("delete records", err)
	deleted.Each(func(d kadm.DeleteRecordsResponse) { w.must("delete records of "+d.Topic, d.Err) })
}

// moveGroups commits offsets of a group of all steps and of one of this step, and deletes that of the step before.
func (w *traveler) moveGroups(adm *kadm.Client) {
	w.t.Helper()
	for _, group := range []string{"always", fmt.Sprintf("of-step-%d", w.step)} {
		offsets := kadm.Offsets{}
		for p := range w.alive["always"] {
			offsets.Add(kadm.Offset{Topic: "always", Partition: p, At: int64(w.step*10) + int64(p), LeaderEpoch: -1, Metadata: fmt.Sprintf("step %d", w.step)})
		}
		committed, err := adm.CommitOffsets(w.context(), group, offsets)
		w.must("commit offsets", err)
		committed.Each(func(o kadm.OffsetResponse) { w.must("commit offsets", o.Err) })
	}
	if w.step > 1 {
		r, err := adm.DeleteGroup(w.context(), fmt.Sprintf("of-step-%d", w.step-1))
		w.must("delete a group", err)
		w.must("delete a group", r.Err)
	}
}

// transact commits one transaction and aborts another, in both partitions' midst.
func (w *traveler) transact() {
	w.t.Helper()
	cl := w.client(kgo.TransactionalID("mover"))
	defer cl.Close()
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		w.must("begin a transaction", cl.BeginTransaction())
		for n := range 20 {
			r := &kgo.Record{Topic: "transactional", Value: fmt.Appendf(nil, "step %d, transaction %d, record %d", w.step, i, n)}
			w.must("produce in a transaction", cl.ProduceSync(w.context(), r).FirstErr())
		}
		w.must("end a transaction", cl.EndTransaction(w.context(), end))
	}
}

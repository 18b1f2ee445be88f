package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
	"gregor/protocol/record"
)

// partitionCodes are the errors that clients get for a partition.
type partitionCodes struct{ produce, fetch, list int16 }

// askHere sends a request to the node, whoever its client thinks is the leader.
func askHere[R kmsg.Response](t *testing.T, cl *kgo.Client, req kmsg.Request) R {
	t.Helper()
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R) //nolint:forcetypeassert // the response of its request
}

// fetchHere fetches the third record of a partition.
func fetchHere(t *testing.T, cl *kgo.Client, id protocol.UUID) kmsg.FetchResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes = 1, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes = 2, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return askHere[*kmsg.FetchResponse](t, cl, req).Topics[0].Partitions[0]
}

// codesOf asks for a partition in three ways.
func codesOf(t *testing.T, n *testNode, id protocol.UUID, topic string) (c partitionCodes) {
	t.Helper()
	cl := n.client()
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 5000
	pt := kmsg.NewProduceRequestTopic()
	pt.Topic, pt.TopicID = topic, id
	pp := kmsg.NewProduceRequestTopicPartition()
	b := record.NewBuilder(record.BuilderOptions{})
	b.Add(time.Now().UnixMilli(), []byte("k"), []byte("probe"), nil)
	pp.Records = b.Bytes()
	pt.Partitions = append(pt.Partitions, pp)
	produce.Topics = append(produce.Topics, pt)
	c.produce = askHere[*kmsg.ProduceResponse](t, cl, produce).Topics[0].Partitions[0].ErrorCode
	c.fetch = fetchHere(t, cl, id).ErrorCode
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = topic
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp = -1
	lt.Partitions = append(lt.Partitions, lp)
	list.Topics = append(list.Topics, lt)
	c.list = askHere[*kmsg.ListOffsetsResponse](t, cl, list).Topics[0].Partitions[0].ErrorCode
	return c
}

// inMetadata is what clients are told of a topic's first partition.
func inMetadata(t *testing.T, n *testNode, topic string) kmsg.MetadataResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.MetadataResponse](t, n.client(), req).Topics[0].Partitions[0]
}

// inLogDirs tells in which directories kafka-log-dirs finds a topic, and which directories are in error.
func inLogDirs(t *testing.T, n *testNode, topic string) (holding, failed []string) {
	t.Helper()
	for _, d := range askHere[*kmsg.DescribeLogDirsResponse](t, n.client(), kmsg.NewPtrDescribeLogDirsRequest()).Dirs {
		if d.ErrorCode == kerr.KafkaStorageError.Code {
			failed = append(failed, d.Dir)
		}
		if slices.ContainsFunc(d.Topics, func(x kmsg.DescribeLogDirsResponseDirTopic) bool { return x.Topic == topic }) {
			holding = append(holding, d.Dir)
		}
	}
	return holding, failed
}

var offlineCodes = partitionCodes{produce: kerr.KafkaStorageError.Code, fetch: kerr.KafkaStorageError.Code, list: kerr.KafkaStorageError.Code}

// mustBeOffline checks all that clients see of a topic whose only replica is offline, and that another is served.
func mustBeOffline(t *testing.T, n *testNode, topic, other string) {
	t.Helper()
	eventually(t, topic+" without a leader", func() bool {
		p := inMetadata(t, n, topic)
		return p.Leader == -1 && p.ErrorCode == kerr.LeaderNotAvailable.Code && slices.Equal(p.OfflineReplicas, []int32{n.config().Node.ID})
	})
	ids := topicIDs(t, n.client())
	if got := codesOf(t, n, ids[topic], topic); got != offlineCodes {
		t.Errorf("%s answers %+v", topic, got)
	}
	if got := codesOf(t, n, ids[other], other); got != (partitionCodes{}) {
		t.Errorf("%s answers %+v", other, got)
	}
	if holding, _ := inLogDirs(t, n, topic); len(holding) > 0 {
		t.Errorf("kafka-log-dirs finds %s in %v", topic, holding)
	}
}

// mustServe checks that a topic has its records.
func mustServe(t *testing.T, n *testNode, topic string, want []string) {
	t.Helper()
	eventually(t, topic+" with a leader", func() bool { p := inMetadata(t, n, topic); return p.Leader >= 0 && len(p.OfflineReplicas) == 0 })
	if got := valuesOf(readBack(t, n, topic)); !slices.Equal(got, want) {
		t.Errorf("%s has %.200q, want %.200q", topic, got, want)
	}
}

func valuesOf(records []*kgo.Record) (values []string) {
	for _, r := range records {
		values = append(values, string(r.Value))
	}
	return values
}

// produceEach sends records in batches of their own.
func produceEach(t *testing.T, n *testNode, topic string, from, to int) {
	t.Helper()
	cl := n.client()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, "value ", i)}
		if err := cl.ProduceSync(timeout(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// flipByte damages a file, and returns how to repair it.
func flipByte(t *testing.T, file string, at int) (repair func()) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	whole := slices.Clone(raw)
	raw[at] ^= 0x40
	write := func(b []byte) {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(b, 0)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(raw)
	return func() { write(whole) }
}

// TestReplicaWithADamagedFileIsOfflineAlone damages the log of one topic in each way that a running broker, or a start,
// can meet. Its clients get KAFKA_STORAGE_ERROR, the metadata show it offline, the other topic goes on; once the file
// is repaired, the next start serves all that was there.
func TestReplicaWithADamagedFileIsOfflineAlone(t *testing.T) {
	const records, inSecondBatch = 30, 1
	for _, c := range []struct {
		name  string
		flip  int // within the batch
		meet  func(t *testing.T, n *testNode)
		start bool // already at the start
	}{
		{"a read meets a false length", 9, func(t *testing.T, n *testNode) {
			eventually(t, "an error", func() bool {
				id := topicIDs(t, n.client())["t"]
				return fetchHere(t, n.client(), id).ErrorCode == kerr.KafkaStorageError.Code
			})
		}, false},
		{"the cleaner meets a false checksum", record.HeaderSizeBytes + 4, func(t *testing.T, n *testNode) {
			_, err := kadm.NewClient(n.client()).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{
				{Name: "cleanup.policy", Value: new("compact")}, {Name: "min.cleanable.dirty.ratio", Value: new("0")},
			}, "t")
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "an error", func() bool { return n.broker.replicas.Lookup("t", 0).Log().Err() != nil })
		}, false},
		{"a start finds an index missing", record.HeaderSizeBytes + 4, func(*testing.T, *testNode) {}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t, "log.cleaner.backoff.ms=20")
			for _, topic := range []string{"t", "other"} {
				n.createTopic(n.client(), topic, 1, nil)
				produceEach(t, n, topic, 0, records)
			}
			l, _ := n.broker.manager.Log("t", 0)
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
			produceEach(t, n, "t", records, records+1)
			want := valuesOf(readBack(t, n, "t"))
			n.stop()
			dir := filepath.Join(n.dir, "data", "t-0")
			file := filepath.Join(dir, "00000000000000000000.log")
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			size := int(info.Size()) / records // more or less: the first ones are not longer than the last ones
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, err := record.EntrySize(raw)
			if err != nil || first > size {
				t.Fatal(first, size, err)
			}
			repair := flipByte(t, file, first*inSecondBatch+c.flip)
			if c.start {
				if err := os.Remove(filepath.Join(dir, "00000000000000000000.index")); err != nil {
					t.Fatal(err)
				}
			}
			n.start()
			c.meet(t, n)
			mustBeOffline(t, n, "t", "other")
			n.stop()
			if _, err := os.Stat(filepath.Join(n.dir, "data", ".kafka_cleanshutdown")); err != nil {
				t.Errorf("the stop was not clean: %v", err)
			}
			repair()
			n.start()
			mustServe(t, n, "t", want)
			produceEach(t, n, "t", records+1, records+2)
		})
	}
}

func TestDamagedReplicaIsDeletedWithItsTopic(t *testing.T) {
	n := newTestNode(t)
	for _, topic := range []string{"t", "other"} {
		n.createTopic(n.client(), topic, 1, nil)
		produceEach(t, n, topic, 0, 3)
	}
	n.stop()
	flipByte(t, filepath.Join(n.dir, "data", "t-0", "00000000000000000000.log"), 9)
	n.start()
	mustBeOffline(t, n, "t", "other")
	if _, err := kadm.NewClient(n.client()).DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	n.createTopic(n.client(), "t", 1, nil)
	produceEach(t, n, "t", 7, 9)
	mustServe(t, n, "t", []string{"value 7", "value 8"})
}

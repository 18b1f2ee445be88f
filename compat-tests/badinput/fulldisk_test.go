package badinput

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// fullDisk is a node on a small disk with ballast on it, and what it has acknowledged.
type fullDisk struct {
	t       *testing.T
	n       *harness.Node
	dir     string
	topic   wire.Topic
	c       *wire.Conn // one connection, all the time
	started int64      // offset of the first record that should be there
	next    int64      // offset of the next one
}

const ballastBytes = 16 << 20

func newFullDisk(t *testing.T) *fullDisk {
	t.Helper()
	d := &fullDisk{t: t, dir: smallDisk(t, "size=64m")}
	d.layBallast()
	d.n = harness.Start(t, harness.Gregor, harness.Options{LogDir: filepath.Join(d.dir, "data"), Properties: harness.Properties{
		"log.initial.task.delay.ms": "1000", "log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000",
		"replica.high.watermark.checkpoint.interval.ms": "500", "log.flush.offset.checkpoint.interval.ms": "500",
		"log.retention.ms": "-1",
	}})
	d.topic = wire.CreateTopic(t, d.n, "full", 1, "segment.bytes", "4194304", "file.delete.delay.ms", "0")
	d.c = wire.Dial(t, d.n.Addr)
	return d
}

func (d *fullDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

func (d *fullDisk) layBallast() {
	d.t.Helper()
	if err := os.WriteFile(d.ballast(), make([]byte, ballastBytes), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// produce sends one record of a size on the connection, by acks=all, and returns the error. The value begins with the offset
// that it should get.
func (d *fullDisk) produce(size int) error {
	d.t.Helper()
	value := binary.BigEndian.AppendUint64(nil, uint64(d.next))
	value = append(value, make([]byte, size)...)
	req := wire.ProduceRequest(12, d.topic, 0, -1, wire.NewBatch(wire.None, wire.Record{Timestamp: 1, Value: value}).Encode())
	p := d.c.Request(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return err
	}
	if p.BaseOffset != d.next {
		d.t.Fatalf("record %d got offset %d", d.next, p.BaseOffset)
	}
	d.next++
	return nil
}

// fill produces until not even a small record fits.
func (d *fullDisk) fill() {
	d.t.Helper()
	before := d.next
	for _, size := range []int{900000, 20000, 1000, 10} {
		for i := 0; ; i++ {
			err := d.produce(size)
			if errors.Is(err, kerr.KafkaStorageError) {
				break
			}
			if err != nil || i > 10000 {
				d.t.Fatalf("record %d of %d bytes: %v", i, size, err)
			}
		}
	}
	if d.next < before+5 {
		d.t.Fatalf("only %d records filled the disk", d.next-before)
	}
	d.stands()
}

// stands checks that the node lives, and serves what it has.
func (d *fullDisk) stands() {
	d.t.Helper()
	if !d.n.Alive() {
		d.t.Fatalf("the process is gone:\n%s", d.n.LogTail(40))
	}
	offset := d.started
	for _, b := range wire.ReadAll(d.t, d.n.Addr, d.topic, 0, d.started) {
		for _, r := range b.Records {
			if got := int64(binary.BigEndian.Uint64(r.Value)); got != offset {
				d.t.Fatalf("record %d is at offset %d", got, offset)
			}
			offset++
		}
	}
	if end := wire.ListOffset(d.t, d.n.Addr, 8, d.topic, 0, -1).Offset; offset != d.next || end != d.next {
		d.t.Fatalf("records up to %d are there, the log ends at %d, %d were acknowledged", offset, end, d.next)
	}
}

// goesOn waits until the same connection can produce again.
func (d *fullDisk) goesOn() {
	d.t.Helper()
	harness.Eventually(d.t, 30*time.Second, "the log takes records again", func() bool { return d.produce(100000) == nil })
	for range 10 {
		if err := d.produce(100000); err != nil {
			d.t.Fatal(err)
		}
	}
	d.stands()
}

// TestFullDiskRefusesAndGoesOnWithoutARestart: Apache Kafka halts instead, as its only log directory is offline.
func TestFullDiskRefusesAndGoesOnWithoutARestart(t *testing.T) {
	d := newFullDisk(t)
	clientTopic := wire.CreateTopic(t, d.n, "client", 1, "segment.bytes", "1048576")
	client, err := kgo.NewClient(kgo.SeedBrokers(d.n.Addr), kgo.DefaultProduceTopic(clientTopic.Name), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var delivered atomic.Int64
	done := make(chan error, 1)
	go func() { // one idempotent producer that knows nothing of all this
		for i := uint64(0); ctx.Err() == nil; i++ {
			r := &kgo.Record{Value: append(binary.BigEndian.AppendUint64(nil, i), make([]byte, 3000)...)}
			if err := client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				done <- err
				return
			}
			delivered.Add(1)
			time.Sleep(time.Millisecond)
		}
		done <- nil
	}()

	d.fill()
	lines := strings.Count(d.n.Log(), "\n")
	time.Sleep(6 * time.Second) // checkpoints, rolls and retention meet the full disk
	stuck := delivered.Load()
	for range 200 {
		if err := d.produce(900000); !errors.Is(err, kerr.KafkaStorageError) {
			t.Fatal(err)
		}
	}
	if more := strings.Count(d.n.Log(), "\n") - lines; more > 20 {
		t.Errorf("%d lines in the log:\n%s", more, d.n.LogTail(30))
	}
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
	d.goesOn()
	harness.Eventually(t, 60*time.Second, "the client delivers again", func() bool { return delivered.Load() > stuck+10 })

	// Full again: deleting records makes room as well.
	d.layBallastAsFarAsItGoes()
	d.fill()
	d.deleteRecords()
	d.goesOn()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the client gave up: %v", err)
	}
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
	topic := wire.CreateTopic(t, d.n, "afterwards", 1)
	wire.MustProduce(t, d.n.Addr, topic, 0, wire.NewBatch(wire.None, wire.Record{Timestamp: 1, Value: []byte("v")}))
	const back = "Log directory has space again"
	harness.Eventually(t, 30*time.Second, back, func() bool {
		wire.MustProduce(t, d.n.Addr, topic, 0, wire.NewBatch(wire.None, wire.Record{Timestamp: 1, Value: []byte("v")}))
		return strings.Contains(d.n.Log(), back)
	})
	if n := strings.Count(d.n.Log(), "Log directory is full"); n < 1 || n > 2 {
		t.Errorf("it is said %d times that the disk is full", n)
	}
	if status := d.n.Stop(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, d.n.LogTail(10))
	}
	d.n.Start(t)
	wire.AwaitLeaders(t, d.n, "full", 1)
	d.stands()
	wire.AwaitLeaders(t, d.n, "client", 1)
	count := uint64(0)
	for _, b := range wire.ReadAll(t, d.n.Addr, clientTopic, 0, 0) {
		for _, r := range b.Records {
			if got := binary.BigEndian.Uint64(r.Value); got != count {
				t.Fatalf("the client's record %d is at offset %d", got, count)
			}
			count++
		}
	}
	if int64(count) != delivered.Load() {
		t.Errorf("%d records of the client are there, %d were delivered", count, delivered.Load())
	}
}

func (d *fullDisk) layBallastAsFarAsItGoes() {
	d.t.Helper()
	err := os.WriteFile(d.ballast(), make([]byte, ballastBytes-2<<20), 0o600)
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
}

// deleteRecords deletes all but the last record.
func (d *fullDisk) deleteRecords() {
	d.t.Helper()
	req := wire.At(kmsg.NewPtrDeleteRecordsRequest(), 2)
	req.TimeoutMillis = 10000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = d.topic.Name
	rt.Partitions = append(rt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Offset: d.next - 1})
	req.Topics = append(req.Topics, rt)
	p := wire.Do[*kmsg.DeleteRecordsResponse](d.t, d.n.Addr, req).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LowWatermark != d.next-1 {
		d.t.Fatalf("%+v", p)
	}
	d.started = d.next - 1
}

// TestKilledOnAFullDiskLosesNothing: what was acknowledged is there once there is space for a start.
func TestKilledOnAFullDiskLosesNothing(t *testing.T) {
	d := newFullDisk(t)
	d.fill()
	d.n.Kill(t)
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
	d.n.Start(t)
	wire.AwaitLeaders(t, d.n, d.topic.Name, 1)
	d.stands()
	d.c = wire.Dial(t, d.n.Addr)
	d.goesOn()
}

// TestTopicCreatedOnAFullDisk: the controller, which is its quorum's only voter, has no space for so many records. It answers
// when it has committed them, or after the request's time, and goes on when there is space.
func TestTopicCreatedOnAFullDisk(t *testing.T) {
	d := newFullDisk(t)
	d.fill()
	client, err := kgo.NewClient(kgo.SeedBrokers(d.n.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 2000
	rt := kmsg.NewCreateTopicsRequestTopic()
	const partitions = 300
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "late", partitions, 1
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if resp, err := req.RequestWith(ctx, client); err == nil && resp.Topics[0].ErrorCode == 0 {
		t.Errorf("%d partitions were committed on a full disk", partitions)
	}
	d.stands()
	if err := d.produce(10); !errors.Is(err, kerr.KafkaStorageError) {
		t.Error(err)
	}
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 60*time.Second, "the topic can be created", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		resp, err := req.RequestWith(ctx, client)
		return err == nil && (resp.Topics[0].ErrorCode == 0 || errors.Is(kerr.ErrorForCode(resp.Topics[0].ErrorCode), kerr.TopicAlreadyExists))
	})
	wire.AwaitLeaders(t, d.n, "late", partitions)
	d.goesOn()
	for what, want := range map[string]bool{"offline": false, "nothing is committed here until there is space": true, "metadata quorum: there is space again": true} {
		if strings.Contains(d.n.Log(), what) != want {
			t.Errorf("%q is in the log: %t:\n%s", what, !want, d.n.LogTail(30))
		}
	}
}

package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/network"
	"gregor/broker/replica"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/vfs"
)

// hotTopic is the topic of a hotNode.
const hotTopic = "hot"

// hotTopicID is its id.
var hotTopicID = protocol.UUID{15: 9}

// hotNode serves Produce and Fetch of one topic, from the socket to the log, without a cluster around it.
type hotNode struct {
	addr     string
	images   image.Cell
	replicas *replica.Manager
	fetch    *fetch
}

// benchLogs opens logs below a directory.
type benchLogs struct {
	fs  vfs.FS
	dir string

	mu   sync.Mutex
	logs map[string]*storage.Log
}

func (l *benchLogs) name(topic string, partition int32) string {
	return fmt.Sprintf("%s-%d", topic, partition)
}

func (l *benchLogs) Log(topic string, partition int32) (*storage.Log, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log, ok := l.logs[l.name(topic, partition)]
	return log, ok
}

func (l *benchLogs) CreateLog(topic string, partition int32, id [16]byte, c storage.LogConfig, _ [16]byte) (*storage.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name(topic, partition)
	log, err := storage.OpenLog(storage.LogOptions{
		FS: l.fs, Dir: filepath.Join(l.dir, name), Topic: topic, Partition: partition, TopicID: id, Config: c, HadCleanShutdown: true,
	})
	if err == nil {
		l.logs[name] = log
	}
	return log, err
}

func (l *benchLogs) DeleteLogs(partitions []storage.TopicPartition) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs error
	for _, p := range partitions {
		name := l.name(p.Topic, p.Partition)
		log := l.logs[name]
		delete(l.logs, name)
		errs = errors.Join(errs, log.Close())
	}
	return errs
}

func (l *benchLogs) DirOf(*storage.Log) storage.DirInfo { return storage.DirInfo{} }

func (l *benchLogs) close() {
	for _, log := range l.logs {
		_ = log.Close()
	}
}

// newHotNode starts a node that leads all partitions of the topic.
func newHotNode(tb testing.TB, fs vfs.FS, dir string, partitions int32) *hotNode {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	logs := &benchLogs{fs: fs, dir: dir, logs: map[string]*storage.Log{}}
	tb.Cleanup(logs.close)
	n := &hotNode{}
	n.replicas = replica.NewManager(replica.Options{
		NodeID: 1, Logs: logs, Logger: log,
		TopicConfig: func(map[string]string) (storage.LogConfig, error) { return storage.DefaultLogConfig(), nil },
	})
	records := []metadata.Record{&metadata.TopicRecord{Name: hotTopic, TopicID: hotTopicID}}
	for p := range partitions {
		r := metadata.NewPartitionRecord()
		r.PartitionID, r.TopicID, r.Replicas, r.ISR, r.Leader = p, hotTopicID, []int32{1}, []int32{1}, 1
		records = append(records, r)
	}
	n.publish(tb, records...)
	n.fetch = newFetch(&n.images, n.replicas, 1000, 55<<20, log)
	table := newTable([]Entry{raw(protocol.KeyProduce, newProduce(&n.images, n.replicas, log).serve), raw(protocol.KeyFetch, n.fetch.serve)})
	server := network.NewServer(network.Options{Handler: NewServer(table, false, log), Logger: log})
	listener, err := server.Listen(network.ListenerOptions{Name: "PLAINTEXT", Address: "127.0.0.1:0"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			tb.Error(err)
		}
	})
	n.addr = listener.Addr().String()
	return n
}

// publish applies records to the image, as the loader does.
func (n *hotNode) publish(tb testing.TB, records ...metadata.Record) {
	tb.Helper()
	d := image.NewDelta(n.images.Image())
	for _, r := range records {
		if err := d.Replay(r); err != nil {
			tb.Fatal(err)
		}
	}
	img := d.Apply(image.Provenance{Offset: n.images.Image().Provenance.Offset + 1})
	n.images.Store(img)
	n.replicas.Publish(d, img, image.Manifest{})
}

// hotClient is a connection to a hotNode.
type hotClient struct {
	net.Conn

	tb     testing.TB
	in     *bufio.Reader
	answer []byte
}

func (n *hotNode) dial(tb testing.TB) *hotClient {
	tb.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return &hotClient{Conn: c, tb: tb, in: bufio.NewReaderSize(c, 64<<10)}
}

func hotFrame(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("hot")).AppendRequest(nil, req, 7)
}

// roundTrip sends a frame and returns the answer without its size and correlation id, valid until the next call.
func (c *hotClient) roundTrip(frame []byte) []byte {
	if _, err := c.Write(frame); err != nil {
		c.tb.Fatal(err)
	}
	return c.receive()
}

func (c *hotClient) receive() []byte {
	var size [4]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		c.tb.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(c.answer) < n {
		c.answer = make([]byte, n)
	}
	c.answer = c.answer[:n]
	if _, err := io.ReadFull(c.in, c.answer); err != nil {
		c.tb.Fatal(err)
	}
	return c.answer[4:]
}

func hotBatch(records, valueBytes int) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	now := time.Now().UnixMilli()
	for range records {
		b.Add(now, nil, make([]byte, valueBytes), nil)
	}
	return append([]byte(nil), b.Bytes()...)
}

func hotProduce(partition int32, acks int16, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 12, acks, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = hotTopic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// hotFetch is a Fetch of version 12 without partitions.
func hotFetch(session, epoch, maxWaitMillis int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 12, maxWaitMillis, 1, 50<<20
	req.SessionID, req.SessionEpoch = session, epoch
	return req
}

// at adds a partition to a Fetch.
func at(req *kmsg.FetchRequest, partition int32, offset int64) *kmsg.FetchRequest {
	if len(req.Topics) == 0 {
		t := kmsg.NewFetchRequestTopic()
		t.Topic = hotTopic
		req.Topics = append(req.Topics, t)
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	return req
}

func (c *hotClient) fetched(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	c.tb.Helper()
	return c.parseFetch(c.roundTrip(hotFrame(req)))
}

func (c *hotClient) parseFetch(answer []byte) *kmsg.FetchResponse {
	c.tb.Helper()
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	if err := resp.ReadFrom(answer[1:]); err != nil {
		c.tb.Fatal(err)
	}
	return resp
}

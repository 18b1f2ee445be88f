//go:build oracle

package record

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRecordKafkasAnswers sends every case to the Apache Kafka broker at $ORACLE_ADDR and writes testdata/produce.tsv.
// Run it with -tags oracle; plain tests only read the file.
func TestRecordKafkasAnswers(t *testing.T) {
	addr := os.Getenv("ORACLE_ADDR")
	if addr == "" {
		t.Skip("ORACLE_ADDR is not set")
	}
	createTopics(t, addr)
	var lines []string
	for _, c := range produceCases() {
		now := time.Now().UnixMilli() - produceDelayMillis
		sent := c.build(now)
		lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%s", c.name, c.topic, c.version, ask(t, addr, c, sent, now)))
	}
	slices.Sort(lines)
	text := strings.ReplaceAll(strings.Join(lines, "\n"), fmt.Sprintf("-%d-0", run), "-0") + "\n"
	text = "# case, topic, Produce version, answer of Apache Kafka 4.4.0; see produceCases and outcome\n" + text
	if err := os.WriteFile("testdata/produce.tsv", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run makes the topics of each run new.
var run = time.Now().UnixMilli()

func topicName(topic string) string { return fmt.Sprintf("%s-%d", topic, run) }

func createTopics(t *testing.T, addr string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 5
	req.TimeoutMillis = 10000
	for name, topic := range produceTopics {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topicName(name), 1, 1
		for _, kv := range strings.FieldsFunc(topic.configs, func(r rune) bool { return r == ',' }) {
			key, value, _ := strings.Cut(kv, "=")
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = key, &value
			rt.Configs = append(rt.Configs, c)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	if err := roundTrip(addr, req, resp); err != nil {
		t.Fatal(err)
	}
	for _, topic := range resp.Topics {
		if topic.ErrorCode != 0 && topic.ErrorCode != 36 {
			t.Fatal(topic.Topic, topic.ErrorCode)
		}
	}
}

func roundTrip(addr string, req kmsg.Request, resp kmsg.Response) error {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(4 * time.Second))
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	body = body[4:]
	if req.IsFlexible() {
		body = body[1:]
	}
	resp.SetVersion(req.GetVersion())
	return resp.ReadFrom(body)
}

func ask(t *testing.T, addr string, c produceCase, sent []byte, now int64) string {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = c.version, -1, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topicName(c.topic)
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = sent
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	var p kmsg.ProduceResponseTopicPartition
	const unknownTopic = 3 // the broker has not heard of it yet
	for p.ErrorCode = unknownTopic; p.ErrorCode == unknownTopic; {
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		if err := roundTrip(addr, req, resp); err != nil {
			if errors.Is(err, io.EOF) {
				return "closed"
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return "no answer"
			}
			t.Fatal(c.name, err)
		}
		p = resp.Topics[0].Partitions[0]
	}
	if p.ErrorCode != 0 {
		var errs []RecordError
		for _, e := range p.ErrorRecords {
			message := ""
			if e.ErrorMessage != nil {
				message = *e.ErrorMessage
			}
			errs = append(errs, RecordError{e.RelativeOffset, message})
		}
		return refusal(p.ErrorCode, p.ErrorMessage, errs)
	}
	stored := fetchOne(t, addr, c, p.BaseOffset)
	if p.LogAppendTime != NoTimestamp && p.LogAppendTime != stored.MaxTimestamp() {
		t.Fatal(c.name, "append time of the answer is not that of the batch")
	}
	return outcome(sent, stored, now, p.LogAppendTime)
}

func fetchOne(t *testing.T, addr string, c produceCase, offset int64) Batch {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 11, -1, 1<<24, 1, 1000
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topicName(c.topic)
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = offset, 1<<24, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	if err := roundTrip(addr, req, resp); err != nil {
		t.Fatal(c.name, err)
	}
	p := resp.Topics[0].Partitions[0]
	b, _, err := Next(p.RecordBatches)
	if err != nil || p.ErrorCode != 0 {
		t.Fatalf("%s: fetch at %d: %v, code %d", c.name, offset, err, p.ErrorCode)
	}
	if !b.CRCValid() {
		t.Fatal(c.name, "Kafka stored a batch with a wrong CRC")
	}
	return b
}

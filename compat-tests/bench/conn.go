package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is a connection that speaks in ready-made frames.
type conn struct {
	net.Conn
	in          *bufio.Reader
	correlation int32
}

// ioTimeout ends a run in which a broker does not answer.
const ioTimeout = 60 * time.Second

func dial(ctx context.Context, addr string) (*conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

func (c *conn) close() { _ = c.Close() }

// frame encodes a request with its size. The correlation id is at correlationAt.
func frame(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 0)
}

// correlationAt is where a frame has its correlation id: after the size, the key and the version.
const correlationAt = 8

// receive reads the next answer, without its size. The bytes are valid until the next call.
func (c *conn) receive(buf []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		return buf, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > 256<<20 {
		return buf, fmt.Errorf("answer of %d bytes", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(c.in, buf)
	return buf, err
}

// request sends a request and decodes the answer.
func (c *conn) request(req kmsg.Request) (kmsg.Response, error) {
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return nil, err
	}
	c.correlation++
	f := frame(req)
	binary.BigEndian.PutUint32(f[correlationAt:], uint32(c.correlation))
	if _, err := c.Write(f); err != nil {
		return nil, err
	}
	answer, err := c.receive(nil)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	body := answer[4:]
	if resp.IsFlexible() && len(body) > 0 {
		body = body[1:] // the empty tag section of the header
	}
	return resp, resp.ReadFrom(body)
}

// ask is request for an answer of a known type.
func ask[R kmsg.Response](c *conn, req kmsg.Request) (answer R, err error) {
	resp, err := c.request(req)
	if err != nil {
		return answer, err
	}
	answer, ok := resp.(R)
	if !ok {
		return answer, fmt.Errorf("a %T was answered with a %T", req, resp)
	}
	return answer, nil
}

// brokers is the number of brokers that a Metadata answer names.
func (c *conn) brokers() (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.Topics = []kmsg.MetadataRequestTopic{}
	m, err := ask[*kmsg.MetadataResponse](c, req)
	if err != nil {
		return 0, err
	}
	return len(m.Brokers), nil
}

// createTopic makes a topic and waits until its partitions are led.
func (c *conn) createTopic(ctx context.Context, name string, partitions int32) ([16]byte, error) {
	return c.createTopicWith(ctx, name, partitions, nil)
}

// createTopicWith is createTopic with configs.
func (c *conn) createTopicWith(ctx context.Context, name string, partitions int32, configs map[string]string) ([16]byte, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 30000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for key, value := range configs {
		x := kmsg.NewCreateTopicsRequestTopicConfig()
		x.Name, x.Value = key, &value
		t.Configs = append(t.Configs, x)
	}
	req.Topics = append(req.Topics, t)
	r, err := ask[*kmsg.CreateTopicsResponse](c, req)
	if err != nil {
		return [16]byte{}, err
	}
	if len(r.Topics) != 1 {
		return [16]byte{}, errors.New("the answer to CreateTopics is empty")
	}
	if err := kerr.ErrorForCode(r.Topics[0].ErrorCode); err != nil {
		return [16]byte{}, err
	}
	return r.Topics[0].TopicID, c.awaitLeaders(ctx, name, partitions)
}

func (c *conn) awaitLeaders(ctx context.Context, name string, partitions int32) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ends, err := c.endOffsets(name, partitions)
		if err == nil && len(ends) == int(partitions) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("partitions of %s are not led: %w", name, errors.Join(ctx.Err(), err))
		}
	}
}

// endOffsets asks for the end of each partition.
func (c *conn) endOffsets(topic string, partitions int32) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range partitions {
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.Timestamp = p, -1
		t.Partitions = append(t.Partitions, q)
	}
	req.Topics = append(req.Topics, t)
	r, err := ask[*kmsg.ListOffsetsResponse](c, req)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			ends[p.Partition] = p.Offset
		}
	}
	return ends, nil
}

// deleteTopic removes a topic.
func (c *conn) deleteTopic(name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 30000
	req.TopicNames = []string{name}
	r, err := ask[*kmsg.DeleteTopicsResponse](c, req)
	if err != nil {
		return err
	}
	if len(r.Topics) != 1 {
		return errors.New("the answer to DeleteTopics is empty")
	}
	return kerr.ErrorForCode(r.Topics[0].ErrorCode)
}

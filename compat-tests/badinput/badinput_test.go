// Package badinput sends a broker what no client should, and checks that it answers rightly, lives on, and keeps what
// it had.
package badinput

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// stillServes checks that a node answers and has what was stored.
func stillServes(t *testing.T, n *harness.Node, topic wire.Topic, records int64) {
	t.Helper()
	if !n.Alive() {
		t.Fatalf("the process is gone:\n%s", n.LogTail(40))
	}
	if end := wire.ListOffset(t, n.Addr, 8, topic, 0, -1).Offset; end != records {
		t.Errorf("the log ends at %d, want %d", end, records)
	}
}

func stored(t *testing.T, n *harness.Node, name string) wire.Topic {
	t.Helper()
	topic := wire.CreateTopic(t, n, name, 1)
	wire.MustProduce(t, n.Addr, topic, 0, wire.NewBatch(wire.None, wire.Record{Timestamp: 1, Value: []byte("kept")}))
	return topic
}

// reaction is what a client sees within a while: an answer, the end of the connection, or nothing.
func reaction(c *wire.Conn) string {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	var b [4]byte
	switch n, err := c.Read(b[:]); {
	case n > 0:
		return "answered"
	case wire.IsClosed(err):
		return "closed"
	default:
		return "silent"
	}
}

// TestGarbageOnThePort: each input gets what Kafka does about it.
func TestGarbageOnThePort(t *testing.T) {
	metadata := wire.Frame(wire.At(kmsg.NewPtrMetadataRequest(), 12), 1)
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := stored(t, n, "garbage")
		for name, c := range map[string]struct {
			input []byte
			want  string
		}{
			"HTTP":           {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "closed"},
			"TLS":            {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, "closed"},
			"2 GiB":          {[]byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 12}, "closed"},
			"negative":       {[]byte{0xff, 0xff, 0xff, 0xff, 0, 3, 0, 12}, "closed"},
			"zero":           {[]byte{0, 0, 0, 0}, "closed"},
			"short header":   {[]byte{0, 0, 0, 2, 0, 3}, "closed"},
			"unknown key":    {[]byte{0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, "closed"},
			"trailing bytes": {edited(metadata, func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0xff}, 40)...) }), "answered"},
			"cut body":       {edited(metadata, func(b []byte) []byte { return b[:len(b)-3] }), "closed"},
			"cut string":     {[]byte{0, 0, 0, 12, 0, 3, 0, 12, 0, 0, 0, 1, 0x7f, 0xff, 'a', 'b'}, "closed"},
			"half a frame":   {metadata[:len(metadata)-1], "silent"},
			"a request":      {metadata, "answered"},
		} {
			t.Run(name, func(t *testing.T) {
				conn := wire.Dial(t, n.Addr)
				conn.SendBytes(c.input)
				if got := reaction(conn); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				stillServes(t, n, topic, 1)
			})
		}
	})
}

func TestRequestsWithBytesTurned(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := stored(t, n, "turned")
		metadata := wire.Frame(wire.At(kmsg.NewPtrMetadataRequest(), 12), 1)
		r := rand.New(rand.NewPCG(1, 2))
		for range 300 { // requests with bytes turned
			frame := bytes.Clone(metadata)
			for range 1 + r.IntN(4) {
				frame[4+r.IntN(len(frame)-4)] = byte(r.IntN(256))
			}
			c := wire.Dial(t, n.Addr)
			c.SendBytes(frame)
			_ = c.Close()
		}
		stillServes(t, n, topic, 1)
	})
}

func edited(frame []byte, f func([]byte) []byte) []byte {
	out := f(bytes.Clone(frame))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// TestFrameThatNeverEnds is not for Kafka: it reserves what the size says, and runs out of memory.
func TestFrameThatNeverEnds(t *testing.T) {
	n := harness.Shared(t, harness.Gregor)
	topic := stored(t, n, "unfinished")
	for range 50 {
		c := wire.Dial(t, n.Addr)
		c.SendBytes([]byte{0x05, 0xf5, 0xe1, 0x00, 0, 0, 0, 9, 0, 0}) // 100 MB announced
	}
	stillServes(t, n, topic, 1)
}

func TestArraysThatLie(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := stored(t, n, "lying-arrays")
		c := wire.Dial(t, n.Addr)
		body := []byte{0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff} // Metadata v1, 2^31-1 topics
		c.SendBytes(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
		c.ExpectClosed()
		stillServes(t, n, topic, 1)
	})
}

func TestCompressedBombs(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := stored(t, n, "bombs")
		limited := wire.CreateTopic(t, n, "bombs-limited", 1, "max.decompressed.message.bytes", "1048576", "compression.type", "gzip")
		zeros := make([]byte, 64<<20)
		for _, codec := range wire.Codecs[1:] {
			bomb := wire.NewBatch(codec, wire.Record{Timestamp: 1, Value: zeros[:30<<20]})
			p := wire.Produce(t, n.Addr, 12, limited, 0, bomb.Encode())
			if p.ErrorCode == 0 {
				t.Errorf("%v: a bomb was stored", codec)
			}
			nested := wire.NewBatch(codec, wire.Record{Timestamp: 1}).EncodeWith(wire.Compress(codec, zeros))
			if p := wire.Produce(t, n.Addr, 12, topic, 0, nested); p.ErrorCode == 0 {
				t.Errorf("%v: zeros for records were stored", codec)
			}
		}
		claim := wire.NewBatch(wire.Snappy, wire.Record{Timestamp: 1}).EncodeWith([]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'x'}) // 4 GiB
		if p := wire.Produce(t, n.Addr, 12, topic, 0, claim); p.ErrorCode == 0 {
			t.Error("a snappy block that claims 4 GiB was stored")
		}
		stillServes(t, n, topic, 1)
	})
}

func TestHundredThousandPartitionsAtOnce(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		topic := stored(t, n, "many-asked")
		req := wire.At(kmsg.NewPtrCreateTopicsRequest(), 7)
		req.TimeoutMillis = 30000
		for i := range 11 { // above the 10,000 that Kafka's controller does in one go
			rt := kmsg.NewCreateTopicsRequestTopic()
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = fmt.Sprintf("many-%d", i), 10000, 1
			req.Topics = append(req.Topics, rt)
		}
		for _, rt := range wire.Do[*kmsg.CreateTopicsResponse](t, n.Addr, req).Topics {
			if rt.ErrorCode != kerr.PolicyViolation.Code || rt.ErrorMessage == nil {
				t.Errorf("%s: error %d, message %v", rt.Topic, rt.ErrorCode, rt.ErrorMessage)
			}
		}
		offsets := wire.At(kmsg.NewPtrListOffsetsRequest(), 7)
		offsets.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic.Name
		for i := range int32(100000) {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = i, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		offsets.Topics = append(offsets.Topics, rt)
		if got := len(wire.Do[*kmsg.ListOffsetsResponse](t, n.Addr, offsets).Topics[0].Partitions); got != 100000 {
			t.Errorf("%d of 100,000 partitions answered", got)
		}
		stillServes(t, n, topic, 1)
	})
}

func TestInvalidConfigsNameFileLineAndKey(t *testing.T) {
	for key, value := range map[string]string{
		"num.partitions": "x", "log.segment.bytes": "1", "log.cleanup.policy": "shred", "node.id": "-3", "process.roles": "leader",
		"listeners": "NONSENSE", "compression.type": "brotli", "authorizer.class.name": "org.example.Authorizer",
	} {
		t.Run(key, func(t *testing.T) {
			n := harness.New(t, harness.Gregor, harness.Options{Properties: harness.Properties{key: value}})
			n.Launch(t)
			if status := n.Wait(t, 20*time.Second); status != 1 {
				t.Errorf("exit status %d", status)
			}
			if !strings.Contains(n.Log(), key) || !strings.Contains(n.Log(), "server.properties") {
				t.Errorf("the message does not name file and key:\n%s", n.LogTail(5))
			}
		})
	}
}

func TestSecondInstanceOnTheSameDirectory(t *testing.T) {
	n := harness.Start(t, harness.Gregor, harness.Options{})
	topic := stored(t, n, "locked")
	second := harness.New(t, harness.Gregor, harness.Options{LogDir: n.LogDir})
	second.Launch(t)
	if status := second.Wait(t, 20*time.Second); status != 1 || !strings.Contains(second.Log(), "lock") {
		t.Errorf("exit status %d:\n%s", status, second.LogTail(5))
	}
	stillServes(t, n, topic, 1)
}

func TestLogDirectoryThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := harness.New(t, harness.Gregor, harness.Options{LogDir: file})
	n.Launch(t)
	if status := n.Wait(t, 20*time.Second); status != 1 || !strings.Contains(n.Log(), file) {
		t.Errorf("exit status %d:\n%s", status, n.LogTail(5))
	}
}

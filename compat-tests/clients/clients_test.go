// Package clients has Go clients of other people produce to Gregor, consume from it and administer it.
package clients

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestFranzGo(t *testing.T) {
	n := harness.Shared(t, harness.Gregor)
	wire.CreateTopic(t, n, "franz", 3)
	ctx := bounded(t)
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.DefaultProduceTopic("franz"), kgo.ProducerBatchCompression(codec))
		if err != nil {
			t.Fatal(err)
		}
		for j := range 20 {
			r := &kgo.Record{Key: fmt.Appendf(nil, "%d-%d", i, j), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		cl.Close()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.ConsumerGroup("franz-group"), kgo.ConsumeTopics("franz"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	seen := map[string]bool{}
	for len(seen) < 100 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Key)] = true })
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(cl)
	lags, err := adm.Lag(ctx, "franz-group")
	if err != nil || lags["franz-group"].Lag.Total() != 0 {
		t.Errorf("lag %+v, %v", lags, err)
	}
	ends, err := adm.ListEndOffsets(ctx, "franz")
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if err != nil || total != 100 {
		t.Errorf("%d records, %v", total, err)
	}
	if _, err := adm.DeleteTopics(ctx, "franz"); err != nil {
		t.Error(err)
	}
}

func TestSarama(t *testing.T) {
	n := harness.Shared(t, harness.Gregor)
	wire.CreateTopic(t, n, "sarama", 1)
	for _, version := range []sarama.KafkaVersion{sarama.V1_0_0_0, sarama.V2_8_0_0, sarama.MaxVersion} {
		c := sarama.NewConfig()
		c.Version, c.Producer.Return.Successes, c.Producer.RequiredAcks, c.Producer.Compression = version, true, sarama.WaitForAll, sarama.CompressionSnappy
		producer, err := sarama.NewSyncProducer([]string{n.Addr}, c)
		if err != nil {
			t.Fatal(err)
		}
		_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "sarama", Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder(version.String())})
		if err != nil {
			t.Fatal(err)
		}
		_ = producer.Close()
		consumer, err := sarama.NewConsumer([]string{n.Addr}, c)
		if err != nil {
			t.Fatal(err)
		}
		pc, err := consumer.ConsumePartition("sarama", 0, offset)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case m := <-pc.Messages():
			if string(m.Value) != version.String() {
				t.Errorf("%v: %q", version, m.Value)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%v: no message", version)
		}
		_, _ = pc.Close(), consumer.Close()
	}
}

func TestSegmentio(t *testing.T) {
	n := harness.Shared(t, harness.Gregor)
	ctx := bounded(t)
	w := &kafka.Writer{Addr: kafka.TCP(n.Addr), Topic: "segmentio", AllowAutoTopicCreation: true, BatchTimeout: 10 * time.Millisecond, Compression: kafka.Zstd, RequiredAcks: kafka.RequireAll}
	defer func() { _ = w.Close() }()
	harness.Eventually(t, 30*time.Second, "the topic is made", func() bool { return w.WriteMessages(ctx, kafka.Message{Key: []byte("k"), Value: []byte("v")}) == nil })
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{n.Addr}, GroupID: "segmentio-group", Topic: "segmentio", StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
	defer func() { _ = r.Close() }()
	m, err := r.ReadMessage(ctx)
	if err != nil || string(m.Value) != "v" || m.Offset != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestTransactionalProducerIsTurnedAwayAtOnce: this broker coordinates no transactions yet. A client must hear that as a
// final error, not retry until its time is up, and a plain idempotent producer beside it goes on.
func TestTransactionalProducerIsTurnedAwayAtOnce(t *testing.T) {
	n := harness.Shared(t, harness.Gregor)
	wire.CreateTopic(t, n, "no-transactions", 1)
	ctx := bounded(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.DefaultProduceTopic("no-transactions"), kgo.TransactionalID("mover"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	began := time.Now()
	if err = cl.BeginTransaction(); err == nil {
		err = cl.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr()
	}
	if err == nil || ctx.Err() != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
	plain, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.DefaultProduceTopic("no-transactions"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	r, err := plain.ProduceSync(ctx, kgo.StringRecord("v")).First()
	if err != nil || r.Offset != 0 {
		t.Errorf("offset %d, %v", r.Offset, err)
	}
}

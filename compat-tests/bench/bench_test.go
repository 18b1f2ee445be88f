package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSummaryIsTheMedianWithTheExtremes(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want string
	}{
		{nil, "-"},
		{[]float64{5}, "5.00 (5.00 - 5.00)"},
		{[]float64{30, 10, 2000}, "30.0 (10.0 - 2000)"},
		{[]float64{4, 1, 2, 3}, "2.50 (1.00 - 4.00)"},
	} {
		if got := summarize(c.in).String(); got != c.want {
			t.Errorf("%v is summed up as %q, want %q", c.in, got, c.want)
		}
	}
}

func TestRatioAboveOneIsInGregorsFavourWhateverTheUnit(t *testing.T) {
	r := row{gregor: summarize([]float64{10}), kafka: summarize([]float64{5})}
	if got := r.ratio(); got != 2 {
		t.Errorf("twice the rate is %v", got)
	}
	r.metric.better = lower
	if got := r.ratio(); got != 0.5 {
		t.Errorf("twice the latency is %v", got)
	}
	r.kafka = summary{}
	if got := r.ratio(); got != 0 {
		t.Errorf("without Kafka the ratio is %v", got)
	}
}

func TestTableNamesAWorkloadOnceAndTellsTheGoals(t *testing.T) {
	w := workload{name: "w", metrics: []metric{{name: "a", unit: "1/s", goal: 3}, {name: "b", unit: "ms", better: lower, limit: 40}}}
	rows := rowsOf(w, map[kind][]sample{gregor: {{"a": 8, "b": 41}}, kafka: {{"a": 2, "b": 4000}}})
	want := "| w | a | 1/s | 8.00 (8.00 - 8.00) | 2.00 (2.00 - 2.00) | 4.00 | 3.00x: met |\n" +
		"|  | b | ms | 41.0 (41.0 - 41.0) | 4000 (4000 - 4000) | 97.6 | at most 40.0 ms: not met |\n"
	if got := markdown(rows, true); !strings.HasSuffix(got, want) {
		t.Errorf("table is\n%s\nwant at its end\n%s", got, want)
	}
}

func TestOrderIsABBA(t *testing.T) {
	var order []kind
	for i := range 4 {
		order = append(order, alternate([]kind{gregor, kafka}, i)...)
	}
	want := []kind{gregor, kafka, kafka, gregor, gregor, kafka, kafka, gregor}
	if !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestUsageIsReadWhateverTheNameOfTheProcess(t *testing.T) {
	stat := "77 (a) b (c) S 1 77 77 0 -1 4194560 100 0 0 0 123 45 0 0 20 0 9 0 100 1000 200"
	status := "Name:\tx\nVmPeak:\t  9999 kB\nVmRSS:\t   2048 kB\n"
	u, err := parseUsage([]byte(stat), []byte(status))
	if err != nil || u.cpu != 1680*time.Millisecond || u.rssBytes != 2<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if _, err := parseUsage([]byte("77 (a) S 1"), nil); err == nil {
		t.Error("a short line was taken")
	}
	self, err := usageOf(os.Getpid())
	if err != nil || self.rssBytes == 0 {
		t.Errorf("usage of this process: %+v, %v", self, err)
	}
}

func TestOutputOfTheToolsIsRead(t *testing.T) {
	s, err := parseProducerPerf("50 records sent, 9.9 records/sec (0.00 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n" +
		"1000 records sent, 2500.5 records/sec (0.24 MB/sec), 3.25 ms avg latency, 12.00 ms max latency, 3 ms 50th, 7 ms 95th, 12 ms 99th, 12 ms 99.9th.\n")
	if err != nil || s[records] != 2500.5 || s[latencyMean] != 3.25 {
		t.Errorf("producer: %v, %v", s, err)
	}
	s, err = parseConsumerPerf("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n" +
		"2026-01-01 00:00:00:000, 2026-01-01 00:00:01:000, 95.36, 95.4, 1000000, 1000.0, 10, 990, 96.3, 1010101.25\n")
	if err != nil || s[records] != 1010101.25 {
		t.Errorf("consumer: %v, %v", s, err)
	}
	s, err = parseEndToEnd("0\t5.1\nAvg latency: 1.1700 ms\nPercentiles: 50th = 1, 99th = 4, 99.9th = 19\n")
	if err != nil || s[latencyMean] != 1.17 || s[latency50] != 1 || s[latency99] != 4 || s[latency999] != 19 {
		t.Errorf("end to end: %v, %v", s, err)
	}
	for name, parse := range map[string]func(string) (sample, error){"producer": parseProducerPerf, "consumer": parseConsumerPerf, "e2e": parseEndToEnd} {
		if s, err := parse("Exception in thread main"); err == nil {
			t.Errorf("%s: a failure is read as %v", name, s)
		}
	}
}

// answer encodes a response as a broker sends it, without its size, with the correlation id of the request.
func answer(resp kmsg.Response, correlation uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, correlation)
	if resp.IsFlexible() {
		b = append(b, 0)
	}
	return resp.AppendTo(b)
}

func produceAnswer(code int16) kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition, p.ErrorCode = 3, code
	resp.Topics = []kmsg.ProduceResponseTopic{{Topic: "bench-12", Partitions: []kmsg.ProduceResponseTopicPartition{p}}}
	return resp
}

func TestErrorsOfAnswersAreFound(t *testing.T) {
	if err := checkProduced(answer(produceAnswer(0), 1)); err != nil {
		t.Errorf("a good answer: %v", err)
	}
	if err := checkProduced(answer(produceAnswer(kerr.NotLeaderForPartition.Code), 1)); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("NOT_LEADER_OR_FOLLOWER is read as %v", err)
	}
	fetched := kmsg.NewPtrFetchResponse()
	fetched.Version = fetchVersion
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = batchOf(1, 1<<10)
	fetched.Topics = []kmsg.FetchResponseTopic{{Topic: "bench-1", Partitions: []kmsg.FetchResponseTopicPartition{p}}}
	if err := checkFetched(answer(fetched, 1)); err != nil {
		t.Errorf("an answer with a record: %v", err)
	}
	if n := recordsIn(answer(fetched, 1)); n != 1 {
		t.Errorf("%d records in an answer with one", n)
	}
	fetched.Topics = nil
	if err := checkFetched(answer(fetched, 1)); err == nil {
		t.Error("an answer without records was taken")
	}
	if n := recordsIn(answer(fetched, 1)); n != 0 {
		t.Errorf("%d records in an answer with none", n)
	}
	fetched.ErrorCode = kerr.UnknownServerError.Code
	if err := checkFetched(answer(fetched, 1)); !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("UNKNOWN_SERVER_ERROR is read as %v", err)
	}
}

func TestFetchOffsetIsWhereTheFrameIsChanged(t *testing.T) {
	f := frame(fetchRequest("bench-1", 0, 0x0102030405060708, 1<<20))
	if got := binary.BigEndian.Uint64(f[len(f)-fetchOffsetFromEnd:]); got != 0x0102030405060708 {
		t.Errorf("there is %x", got)
	}
}

// serveProduce answers Produce frames until the connection ends.
func serveProduce(c net.Conn, code func(n int) int16) error {
	in := bufio.NewReader(c)
	for n := 0; ; n++ {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return nil //nolint:nilerr // the client is done
		}
		f := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(in, f); err != nil {
			return err
		}
		out := answer(produceAnswer(code(n)), binary.BigEndian.Uint32(f[4:]))
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(out))), out...)); err != nil {
			return nil //nolint:nilerr // the client gave up
		}
	}
}

func listen(t *testing.T, code func(n int) int16) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if err := serveProduce(c, code); err != nil {
					t.Error(err)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestLoadCountsEachAnswerAndStopsAtItsBytes(t *testing.T) {
	l := produceLoad(listen(t, func(int) int16 { return 0 }), "bench-12", produceShape{connections: 3, inFlight: 5, acks: 1, recordBytes: 100, records: 1, partitions: 2})
	l.maxBytes = int64(60 * len(l.frame(0)))
	r, err := l.run(context.Background(), os.Getpid(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.requests < 60 || r.requests > 60+3*5 {
		t.Errorf("%d requests", r.requests)
	}
	if len(r.latencies) != r.requests || !slices.IsSorted(r.latencies) || r.percentile(1) != r.latencies[len(r.latencies)-1] {
		t.Errorf("%d latencies of %d requests, the longest %v", len(r.latencies), r.requests, r.percentile(1))
	}
}

func TestLoadFailsOnAnErrorInAnAnswer(t *testing.T) {
	addr := listen(t, func(n int) int16 {
		if n == 7 {
			return kerr.KafkaStorageError.Code
		}
		return 0
	})
	l := produceLoad(addr, "bench-12", produceShape{connections: 1, inFlight: 1, acks: 1, recordBytes: 100, records: 1, partitions: 1})
	if _, err := l.run(context.Background(), os.Getpid(), time.Minute); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("the load ends with %v", err)
	}
}

func TestOptionsChooseRepeats(t *testing.T) {
	for _, c := range []struct {
		args []string
		runs int
		load time.Duration
	}{{nil, 3, 2 * time.Second}, {[]string{"-full"}, 5, 5 * time.Second}, {[]string{"-full", "-runs", "9", "-load", "1s"}, 9, time.Second}} {
		o, err := parseOptions(c.args, io.Discard)
		if err != nil || o.runs != c.runs || o.load != c.load {
			t.Errorf("%v: %d repeats of %v, %v", c.args, o.runs, o.load, err)
		}
	}
	for _, args := range [][]string{{"-only", "("}, {"extra"}, {"-unknown"}} {
		if _, err := parseOptions(args, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestNamesOfWorkloadsAreTheirOwn(t *testing.T) {
	for _, args := range [][]string{nil, {"-full"}, {"-only", "."}} {
		o, err := parseOptions(args, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, w := range workloads(o) {
			if seen[w.name] {
				t.Errorf("two workloads are called %q", w.name)
			}
			seen[w.name] = true
		}
	}
}

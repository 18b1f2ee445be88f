package image

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// loggedRecord is a record in a log or checkpoint that Kafka wrote.
type loggedRecord struct {
	offset int64
	value  []byte
}

// readLog returns the data records of a file of uncompressed batches (magic 2). It is a reader of its own, so that these
// tests depend on nothing but the codec of the records.
func readLog(t testing.TB, path string) []loggedRecord {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []loggedRecord
	for len(b) > 0 {
		base := int64(binary.BigEndian.Uint64(b))
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		batch := b[:size]
		b = b[size:]
		if batch[16] != 2 || batch[22]&7 != 0 {
			t.Fatalf("%s: batch at offset %d is compressed or of an old format", path, base)
		}
		if batch[22]&0x20 != 0 {
			continue // control batch
		}
		rest := batch[61:]
		varint := func() int64 {
			v, n := binary.Varint(rest)
			rest = rest[n:]
			return v
		}
		for range binary.BigEndian.Uint32(batch[57:]) {
			varint() // length
			rest = rest[1:]
			varint() // timestamp delta
			offset := base + varint()
			if n := varint(); n > 0 {
				rest = rest[n:]
			}
			n := varint()
			out = append(out, loggedRecord{offset: offset, value: rest[:n]})
			rest = rest[n:]
			varint() // headers
		}
	}
	return out
}

func decode(t testing.TB, r loggedRecord) metadata.Record {
	t.Helper()
	rec, err := metadata.Decode(r.value)
	if err != nil {
		t.Fatalf("offset %d: %v", r.offset, err)
	}
	return rec
}

// load returns the image of the records with offsets below end.
func load(t testing.TB, records []loggedRecord, end int64) *Image {
	t.Helper()
	return extend(t, Empty(), records, 0, end)
}

// extend returns img with the records from start to end.
func extend(t testing.TB, img *Image, records []loggedRecord, start, end int64) *Image {
	t.Helper()
	d := NewDelta(img)
	for _, r := range records {
		if r.offset < start || r.offset >= end {
			continue
		}
		if err := d.Replay(decode(t, r)); err != nil {
			t.Fatalf("offset %d: %v", r.offset, err)
		}
	}
	return d.Apply(Provenance{Offset: end - 1})
}

// describe prints an image as the records that make it up.
func describe(img *Image) string {
	var s strings.Builder
	level := img.MetadataVersion()
	for rec := range img.Records(RecordsOptions{MetadataVersion: level}) {
		fmt.Fprintf(&s, "%s %s\n", rec.MessageName(), rec.AppendJSON(nil, metadata.RecordVersion(rec, level)))
	}
	return s.String()
}

func requireEqual(t testing.TB, got, want *Image, what string) {
	t.Helper()
	if got.Equal(want) {
		return
	}
	t.Errorf("%s: images differ:\n got %s\nwant %s", what, describe(got), describe(want))
}

// goldens are directories of __cluster_metadata-0 under testdata, with the metadata.version they were written at.
// Kafka 4.0 wrote no snapshots but the one with which a new cluster begins.
var goldens = map[string]metadata.MetadataVersion{"combined": 33, "quorum3": 33, "kafka40": 25}

const logName = "00000000000000000000.log"

func TestRecordsOfKafkaAreReadAsKafkaPrintsThemAndWrittenBack(t *testing.T) {
	for dir, level := range goldens {
		text, err := os.ReadFile(filepath.Join("testdata", dir, "records.tsv"))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{} // file and offset to type, version and JSON
		for line := range strings.Lines(string(text)) {
			col := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if !strings.HasPrefix(line, "#") {
				want[col[0]+" "+col[1]] = strings.Join(col[2:], " ")
			}
		}
		files, _ := filepath.Glob(filepath.Join("testdata", dir, "0*"))
		for _, file := range files {
			for _, r := range readLog(t, file) {
				rec, version, err := metadata.DecodeVersion(r.value)
				if err != nil {
					t.Fatalf("%s offset %d: %v", file, r.offset, err)
				}
				if again, err := metadata.Append(nil, rec, version); err != nil || !slices.Equal(again, r.value) {
					t.Errorf("%s offset %d: %v\n got %x\nwant %x", file, r.offset, err, again, r.value)
				}
				if _, noOp := rec.(*metadata.NoOpRecord); noOp {
					continue
				}
				if level == 25 && strings.HasSuffix(file, ".checkpoint") {
					continue // not in the dump
				}
				key := filepath.Base(file) + " " + strconv.FormatInt(r.offset, 10)
				got := fmt.Sprintf("%s %d %s", kafkaType(rec.MessageName()), version, rec.AppendJSON(nil, version))
				if got != want[key] {
					t.Errorf("%s:\n got %s\nwant %s", key, got, want[key])
				}
				delete(want, key)
				if v := metadata.RecordVersion(rec, level); v != version {
					t.Errorf("%s: %s would be written in version %d, Kafka wrote %d", key, rec.MessageName(), v, version)
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: records that were not found: %v", dir, slices.Sorted(maps.Keys(want)))
		}
	}
}

// kafkaType turns "NoOpRecord" into "NO_OP_RECORD".
func kafkaType(name string) string {
	var s []byte
	for i := range len(name) {
		if i > 0 && name[i] >= 'A' && name[i] <= 'Z' {
			s = append(s, '_')
		}
		s = append(s, name[i])
	}
	return strings.ToUpper(string(s))
}

// Kafka's own snapshots, the log replayed up to the same offset, the rest of the log on top of a snapshot, and our own
// snapshot of the result must all agree.
func TestLogAndSnapshotsOfKafkaGiveEqualImages(t *testing.T) {
	for dir, level := range goldens {
		log := readLog(t, filepath.Join("testdata", dir, logName))
		end := log[len(log)-1].offset + 1
		full := load(t, log, end)
		checkpoints, _ := filepath.Glob(filepath.Join("testdata", dir, "*.checkpoint"))
		if len(checkpoints) < 3 && level > 25 || full.MetadataVersion() != level {
			t.Fatalf("%s: checkpoints %v", dir, checkpoints)
		}
		for _, path := range checkpoints {
			at, err := strconv.ParseInt(filepath.Base(path)[:20], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if at == 0 {
				continue // what format wrote: the first leader wrote it to the log again
			}
			snapshot := load(t, readLog(t, path), 1<<62)
			requireEqual(t, load(t, log, at), snapshot, path+" and the log before it")
			requireEqual(t, extend(t, snapshot, log, at, end), full, path+" with the log after it")
			requireEqual(t, rewritten(t, snapshot), snapshot, path+" written again")
		}
		requireEqual(t, rewritten(t, full), full, dir+" written as a snapshot")
		if Empty().Equal(full) || full.Equal(Empty()) {
			t.Errorf("%s: equal to the empty image", dir)
		}
	}
}

// rewritten returns the image of the records that img is written as, through their bytes.
func rewritten(t testing.TB, img *Image) *Image {
	t.Helper()
	d := NewDelta(Empty())
	level := img.MetadataVersion()
	lost := func(what string) { t.Errorf("lost %s", what) }
	for rec := range img.Records(RecordsOptions{MetadataVersion: level, OnLoss: lost}) {
		frame, err := metadata.Append(nil, rec, metadata.RecordVersion(rec, level))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Replay(decode(t, loggedRecord{value: frame})); err != nil {
			t.Fatal(err)
		}
	}
	return d.Apply(img.Provenance)
}

// The snapshot that Kafka wrote last has the same records as ours, but for the order within maps.
func TestSnapshotHasTheRecordsOfKafkasSnapshot(t *testing.T) {
	for dir, name := range map[string]string{
		"combined": "00000000000000000243-0000000001.checkpoint", "quorum3": "00000000000000000388-0000000005.checkpoint",
	} {
		kafka := readLog(t, filepath.Join("testdata", dir, name))
		img := load(t, kafka, 1<<62)
		var got, want []string
		for rec := range img.Records(RecordsOptions{MetadataVersion: img.MetadataVersion()}) {
			got = append(got, sortedJSON(rec))
		}
		for _, r := range kafka {
			want = append(want, sortedJSON(decode(t, r)))
		}
		if kinds := func(s string) string { k, _, _ := strings.Cut(s, " "); return k }; !slices.EqualFunc(
			slices.CompactFunc(slices.Clone(got), func(a, b string) bool { return kinds(a) == kinds(b) }),
			slices.CompactFunc(slices.Clone(want), func(a, b string) bool { return kinds(a) == kinds(b) }),
			func(a, b string) bool { return kinds(a) == kinds(b) }) {
			t.Errorf("%s: the order of record types differs", dir)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", dir, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// sortedJSON prints a record with the lists sorted that come from a map in Kafka.
func sortedJSON(rec metadata.Record) string {
	switch r := rec.(type) {
	case *metadata.RegisterBrokerRecord:
		slices.SortFunc(r.EndPoints, func(a, b metadata.BrokerEndpoint) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(r.Features, func(a, b metadata.BrokerFeature) int { return strings.Compare(a.Name, b.Name) })
	case *metadata.RegisterControllerRecord:
		slices.SortFunc(r.EndPoints, func(a, b metadata.ControllerEndpoint) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(r.Features, func(a, b metadata.ControllerFeature) int { return strings.Compare(a.Name, b.Name) })
	case *metadata.ClientQuotaRecord:
		slices.SortFunc(r.Entity, func(a, b metadata.ClientQuotaEntityData) int { return strings.Compare(a.EntityType, b.EntityType) })
	}
	_, highest := rec.Versions()
	return kafkaType(rec.MessageName()) + " " + string(rec.AppendJSON(nil, highest))
}

// reportedOffset is the high watermark when the broker reported its state for golden/metadata.
const reportedOffset = 206

func TestImageHoldsWhatKafkaReported(t *testing.T) {
	img := load(t, readLog(t, filepath.Join("testdata", "combined", logName)), reportedOffset)
	quotas := map[string]map[string]float64{}
	for e, q := range img.ClientQuotas.All() {
		quotas[e.String()] = q
	}
	wantQuotas := map[string]map[string]float64{
		"user=alice":                          {"producer_byte_rate": 1024},
		"ip=<default>":                        {"connection_creation_rate": 50},
		"client-id=app, user=alice":           {"consumer_byte_rate": 2048},
		"client-id=app":                       {"request_percentage": 12.5},
		"user=<default>":                      {"controller_mutation_rate": 10},
		"ip=10.0.0.1":                         {"connection_creation_rate": 5},
		"client-id=<default>, user=<default>": {"producer_byte_rate": 1000000},
	}
	if !maps.EqualFunc(quotas, wantQuotas, equalQuotas) {
		t.Errorf("quotas %v", quotas)
	}
	var scram []string
	for u, c := range img.Scram.All() {
		scram = append(scram, fmt.Sprintf("%s %d %d", u.Name, u.Mechanism, c.Iterations))
	}
	if !slices.Equal(scram, []string{"admin 1 4096", "alice 1 4096", "alice 2 8192"}) {
		t.Errorf("scram %v", scram)
	}
	tok := img.DelegationTokens.Get("EUReJTM0TG6O29yofYPygQ")
	// One of the two that were reported has been expired since, and this one was renewed.
	if img.DelegationTokens.Len() != 1 || tok == nil || tok.Owner != "User:admin" || tok.MaxMillis != 1795985152801 ||
		!slices.Equal(tok.Renewers, []string{"User:alice", "User:bob"}) {
		t.Errorf("tokens: %d, %+v", img.DelegationTokens.Len(), tok)
	}
	checkConfigs(t, img.Configs)
	checkTopics(t, img)
	if img.ACLs.Len() != 7 {
		t.Errorf("%d ACLs", img.ACLs.Len())
	}
	levels := maps.Collect(img.Features.All())
	if want := map[string]int16{
		"eligible.leader.replicas.version": 1, "group.version": 1, "metadata.version": 33, "share.version": 2,
		"streams.version": 1, "transaction.version": 2,
	}; !maps.Equal(levels, want) || !img.Features.ELREnabled() {
		t.Errorf("features %v", levels)
	}
}

func checkConfigs(t *testing.T, c *Configs) {
	t.Helper()
	for _, x := range []struct {
		name      string
		got, want map[string]string
	}{
		{"t1", c.Topic("t1"), map[string]string{"cleanup.policy": "delete", "retention.ms": "86400000"}},
		{"t2", c.Topic("t2"), map[string]string{"leader.replication.throttled.replicas": "0:1,1:1"}},
		{"bulk-1", c.Topic("bulk-1"), map[string]string{"retention.ms": "7"}},
		{"after-snapshot", c.Topic("after-snapshot"), nil},
		{"broker 1", c.Broker(1), map[string]string{"log.cleaner.threads": "1", "leader.replication.throttled.rate": "1000000"}},
		{"brokers", c.BrokerDefault(), map[string]string{"message.max.bytes": "2000000", "min.insync.replicas": "1"}},
		{"g1", c.Group("g1"), map[string]string{"consumer.session.timeout.ms": "50000"}},
		{"sub1", c.ClientMetrics("sub1"), map[string]string{"interval.ms": "60000", "match": "client_id=x.*", "metrics": "org.apache.kafka.producer."}},
	} {
		if !maps.Equal(x.got, x.want) {
			t.Errorf("configs of %s: %v, want %v", x.name, x.got, x.want)
		}
	}
	if brokers := maps.Collect(c.OfType(ResourceBroker)); len(brokers) != 2 {
		t.Errorf("configs of brokers: %v", brokers)
	}
}

func checkTopics(t *testing.T, img *Image) {
	t.Helper()
	var names []string
	for topic := range img.Topics.All() {
		names = append(names, fmt.Sprintf("%s/%d", topic.Name, topic.NumPartitions()))
		for id, p := range topic.Partitions() {
			if p.Leader != 1 || !slices.Equal(p.ISR, []int32{1}) || !p.HasPreferredLeader() {
				t.Errorf("%s-%d: %+v", topic.Name, id, p)
			}
		}
	}
	want := "after-snapshot/1 assigned/2 bulk-1/5 bulk-2/5 bulk-3/5 bulk-4/5 bulk-5/5 t1/3 t2/4"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("topics %s\n  want %s", got, want)
	}
	if c := img.Topics.Counts(); c != (TopicCounts{Topics: 9, Partitions: 35}) {
		t.Errorf("counts %+v", c)
	}
	e, ok := img.Cluster.AliveEndpoint(1, "SASL")
	if !ok || e != (Endpoint{Listener: "SASL", Host: "localhost", Port: 39494, SecurityProtocol: 2}) || !img.Cluster.Alive(1) {
		t.Errorf("endpoint %+v", e)
	}
}

// After the SIGTERM nobody leads, and the replicas are eligible leaders (KIP-966).
func TestControlledShutdownOfTheLastReplicaLeavesEligibleLeaders(t *testing.T) {
	log := readLog(t, filepath.Join("testdata", "combined", logName))
	img := load(t, log, 1<<62)
	if b := img.Cluster.Broker(1); !b.Fenced || !b.InControlledShutdown || img.Cluster.Alive(1) {
		t.Errorf("%+v", b)
	}
	p := img.Topics.Partition("t1", 0)
	if p.Leader != NoLeader || p.ISR != nil || !slices.Equal(p.ELR, []int32{1}) || p.LeaderEpoch != 1 {
		t.Errorf("%+v", p)
	}
	if c := img.Topics.Counts(); c.Offline != 35 || c.NotPreferred != 35 {
		t.Errorf("%+v", c)
	}
	if registered, fenced := img.Cluster.NumBrokers(); registered != 1 || fenced != 1 {
		t.Errorf("%d brokers, %d fenced", registered, fenced)
	}
}

// Each change of the 3-node quorum's log: what a broker is told to do must lead to what the image says.
func TestLocalChangesKeepABrokerInStep(t *testing.T) {
	log := readLog(t, filepath.Join("testdata", "quorum3", logName))
	for broker := int32(1); broker <= 3; broker++ {
		local := map[TopicPartition]*Partition{}
		ids := map[TopicPartition]protocol.UUID{}
		img := Empty()
		for _, r := range log {
			d := NewDelta(img)
			if err := d.Replay(decode(t, r)); err != nil {
				t.Fatalf("offset %d: %v", r.offset, err)
			}
			img = d.Apply(Provenance{Offset: r.offset})
			if d.Topics() == nil {
				continue
			}
			changes := d.Topics().LocalChanges(broker)
			for _, del := range changes.Deletes {
				delete(local, del.TopicPartition)
			}
			for _, l := range slices.Concat(changes.Leaders, changes.Followers) {
				if old := local[l.TopicPartition]; l.NewLeaderEpoch != (old == nil || old.LeaderEpoch != l.State.LeaderEpoch) {
					t.Fatalf("offset %d %v: NewLeaderEpoch %t", r.offset, l.TopicPartition, l.NewLeaderEpoch)
				}
				local[l.TopicPartition], ids[l.TopicPartition] = l.State, l.TopicID
			}
		}
		want := map[TopicPartition]*Partition{}
		for topic := range img.Topics.All() {
			for id, p := range topic.Partitions() {
				if tp := (TopicPartition{topic.Name, id}); p.HasReplica(broker) {
					want[tp] = p
					if ids[tp] != topic.ID {
						t.Errorf("broker %d: %v has id %s", broker, tp, ids[tp])
					}
				}
			}
		}
		if !maps.Equal(local, want) || len(want) == 0 {
			t.Errorf("broker %d has %v, want %v", broker, local, want)
		}
	}
}

package consumer

import (
	"testing"

	"gregor/protocol"
)

func TestXXH3IsThatOfKafkasLibrary(t *testing.T) {
	// hash4j 0.22.0, which Kafka 4.4.0 uses, over bytes i*7+3.
	for n, want := range map[int]int64{
		0: 3244421341483603138, 1: 1433843135270481901, 2: 2058273368586827884, 3: -6266602912829716452, 4: 7895465118229274323,
		5: -7384178388048917705, 8: 6941064856527638883, 9: -72226354546400344, 15: -7007203045674962495, 16: -5131753158909839995,
		17: 8163341949877205007, 32: 1873302701886544469, 33: 4486878507168070088, 64: 2917965298538373825, 65: -9038134159117547962,
		96: -1115511928276236477, 97: 2137665177113230204, 128: 7440608504995537343, 129: -4150982730466284604, 200: 8389308914288017243,
		240: 7229805477010515663, 241: -8364630114420064745, 256: 4339360625268998362, 512: -756038794506822371, 1000: 7804479483783519874,
		1024: -7241394453710343503, 1025: -9192937061388044938, 2048: -6060151295482384687, 2049: 6174105427284153526, 5000: 8762507191635236893,
	} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*7 + 3)
		}
		if got := int64(xxh3(b)); got != want {
			t.Errorf("%d bytes: %d, want %d", n, got, want)
		}
	}
}

// fakeTopics is a cluster.
type fakeTopics struct {
	byName  map[string]Topic
	version int64
}

func (f fakeTopics) ByName(name string) (Topic, bool) {
	t, ok := f.byName[name]
	return t, ok
}

func (f fakeTopics) ByID(id protocol.UUID) (Topic, bool) {
	for _, t := range f.byName {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}

func (f fakeTopics) Each(visit func(Topic) bool) {
	for _, name := range sortedKeys(f.byName) {
		if !visit(f.byName[name]) {
			return
		}
	}
}

func (f fakeTopics) Version() int64 { return f.version }

func uuid(t *testing.T, text string) protocol.UUID {
	t.Helper()
	id, err := protocol.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestMetadataHashIsKafkas(t *testing.T) {
	// The topics and hashes of a recorded Kafka 4.4.0.
	topics := fakeTopics{byName: map[string]Topic{
		"in":    {ID: uuid(t, "h9ZIvFcHRreQqKcJcf4FGw"), Name: "in", Partitions: 4},
		"other": {ID: uuid(t, "o9ityzz4RwmQajcXZLt6PA"), Name: "other", Partitions: 2},
	}}
	set := func(names ...string) map[string]struct{} {
		out := map[string]struct{}{}
		for _, n := range names {
			out[n] = struct{}{}
		}
		return out
	}
	for want, names := range map[int64]map[string]struct{}{
		7835855090009901845:  set("other", "missing"),
		-5247784870810775426: set("other", "in"),
		0:                    set("missing"),
	} {
		if got := new(topicHashes).metadata(names, topics); got != want {
			t.Errorf("%v: %d, want %d", names, got, want)
		}
	}
}

func TestMetadataHashSeesWhatAssignmentsDependOn(t *testing.T) {
	base := Topic{ID: protocol.UUID{1}, Name: "a", Partitions: 2}
	hash := func(change func(*Topic)) int64 {
		topic := base
		change(&topic)
		return new(topicHashes).metadata(map[string]struct{}{"a": {}}, fakeTopics{byName: map[string]Topic{"a": topic}})
	}
	same := hash(func(*Topic) {})
	rack := func(racks ...string) func(*Topic) {
		return func(topic *Topic) { topic.Racks = func(int32) []string { return append([]string(nil), racks...) } }
	}
	for name, other := range map[string]int64{
		"id":         hash(func(topic *Topic) { topic.ID[0] = 2 }),
		"partitions": hash(func(topic *Topic) { topic.Partitions = 3 }),
		"racks":      hash(rack("r1", "r2")),
	} {
		if other == same {
			t.Errorf("the hash does not see the %s", name)
		}
	}
	var kept topicHashes
	one := fakeTopics{byName: map[string]Topic{"a": base}, version: 1}
	two := fakeTopics{byName: map[string]Topic{"a": {ID: base.ID, Name: "a", Partitions: 3}}, version: 2}
	for _, topics := range []fakeTopics{one, one, two, one} {
		if got, want := kept.metadata(map[string]struct{}{"a": {}}, topics), new(topicHashes).metadata(map[string]struct{}{"a": {}}, topics); got != want {
			t.Errorf("version %d: hash %d with what is remembered, %d without", topics.version, got, want)
		}
	}
	if hash(rack("r1", "r2")) != hash(rack("r2", "r1")) {
		t.Error("the order of racks matters")
	}
}

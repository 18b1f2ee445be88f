package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

func apply(t testing.TB, img *Image, records ...metadata.Record) *Image {
	t.Helper()
	d := NewDelta(img)
	for _, rec := range records {
		if err := d.Replay(rec); err != nil {
			t.Fatal(err)
		}
	}
	return d.Apply(Provenance{})
}

func topicID(n int) protocol.UUID { return protocol.UUID{0: 1, 14: byte(n >> 8), 15: byte(n)} }

// manyTopics returns an image with topics "topic-00000" and so on, each with some partitions on brokers 1, 2 and 3.
func manyTopics(t testing.TB, topics, partitions int) *Image {
	t.Helper()
	records := []metadata.Record{
		&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: 33},
		&metadata.RegisterBrokerRecord{BrokerID: 1, EndPoints: []metadata.BrokerEndpoint{{Name: "PLAINTEXT", Host: "h", Port: 1}}},
	}
	for i := range topics {
		records = append(records, &metadata.TopicRecord{Name: fmt.Sprintf("topic-%05d", i), TopicID: topicID(i)})
		for p := range partitions {
			records = append(records, &metadata.PartitionRecord{
				PartitionID: int32(p), TopicID: topicID(i), Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}, Leader: 1,
			})
		}
		value := "1"
		records = append(records, &metadata.ConfigRecord{ResourceType: 2, ResourceName: fmt.Sprintf("topic-%05d", i), Name: "retention.ms", Value: &value})
	}
	return apply(t, Empty(), records...)
}

func TestLookupsDoNotAllocate(t *testing.T) {
	img := manyTopics(t, 2000, 3)
	id := topicID(1234)
	var cell Cell
	cell.Store(img)
	alice := NewQuotaEntity(QuotaPart{Type: QuotaUser, Name: "alice"})
	allocs := testing.AllocsPerRun(100, func() {
		img := cell.Image()
		topic := img.Topics.ByName("topic-01234")
		if topic != img.Topics.ByID(id) || topic.Partition(2) == nil || img.Topics.Partition("topic-01234", 1) == nil ||
			topic.NumPartitions() != 3 || img.Topics.ByName("nosuch") != nil {
			t.Fatal("topic")
		}
		if _, ok := img.Cluster.AliveEndpoint(1, "PLAINTEXT"); !ok || img.Cluster.Broker(2) != nil || !img.Cluster.Alive(1) {
			t.Fatal("broker")
		}
		if img.Configs.Topic("topic-01234")["retention.ms"] != "1" || img.Features.Level(metadata.FeatureMetadataVersion) != 33 ||
			img.Features.Level(metadata.FeatureGroup) != 0 || img.ClientQuotas.Get(alice) != nil ||
			img.Scram.Get(ScramSHA256, "alice") != nil || img.DelegationTokens.Get("x") != nil || img.ACLs.Get(id) != nil {
			t.Fatal("rest")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestChangeOfOnePartitionCostsTheSameInALargeCluster(t *testing.T) {
	cost := func(img *Image) float64 {
		change := metadata.NewPartitionChangeRecord()
		change.TopicID, change.PartitionID, change.Leader = topicID(7), 1, 2
		return testing.AllocsPerRun(50, func() { apply(t, img, change) })
	}
	few, many := cost(manyTopics(t, 10, 3)), cost(manyTopics(t, 5000, 3))
	if many > 2*few+20 {
		t.Errorf("%v allocations with 5000 topics, %v with 10", many, few)
	}
}

func TestTopicsAreListedInOrderFromAnyName(t *testing.T) {
	img := manyTopics(t, 100, 3)
	var names []string
	for topic := range img.Topics.From("topic-000965") { // between two names
		names = append(names, topic.Name)
	}
	if !slices.Equal(names, []string{"topic-00097", "topic-00098", "topic-00099"}) {
		t.Errorf("%v", names)
	}
	var ids []int32
	for id := range img.Topics.ByName("topic-00005").PartitionsFrom(1) {
		ids = append(ids, id)
	}
	if !slices.Equal(ids, []int32{1, 2}) {
		t.Errorf("%v", ids)
	}
	for topic := range img.Topics.From("") {
		if topic.Name != "topic-00000" {
			t.Error(topic.Name)
		}
		break
	}
	a, b, c := TopicPartition{"a", 2}, TopicPartition{"a", 10}, TopicPartition{"b", 0}
	if a.Compare(b) >= 0 || b.Compare(c) >= 0 || c.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("order of partitions")
	}
}

// What a lower metadata.version cannot hold is left out of a snapshot, and said.
func TestSnapshotForAnOlderMetadataVersionLeavesOutWhatItCannotHold(t *testing.T) {
	dirs := []protocol.UUID{{1}}
	img := apply(
		t, Empty(),
		&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: 33},
		&metadata.FeatureLevelRecord{Name: metadata.FeatureELR, FeatureLevel: 1},
		&metadata.RegisterBrokerRecord{BrokerID: 1, IsMigratingZkBroker: true, LogDirs: dirs, CordonedLogDirs: dirs},
		&metadata.RegisterControllerRecord{ControllerID: 1},
		&metadata.TopicRecord{Name: "t", TopicID: topicID(1)},
		&metadata.PartitionRecord{TopicID: topicID(1), Replicas: []int32{1}, Directories: dirs, EligibleLeaderReplicas: []int32{1}},
		&metadata.UserScramCredentialRecord{Name: "a", Mechanism: 1},
		&metadata.DelegationTokenRecord{TokenID: "x"},
	)
	for level, want := range map[metadata.MetadataVersion]string{
		33: "",
		29: "the cordoned log directories of brokers",
		22: "the cordoned log directories of brokers, the eligible leader replicas of partitions",
		16: "the cordoned log directories of brokers, the directory assignment of replicas, the eligible leader replicas of partitions, " +
			"the online log directories of brokers",
		7: "SCRAM credentials, controller registrations, delegation tokens, the cordoned log directories of brokers, " +
			"the directory assignment of replicas, the eligible leader replicas of partitions, the migration state of brokers, " +
			"the online log directories of brokers",
	} {
		var lost []string
		d := NewDelta(Empty())
		for rec := range img.Records(RecordsOptions{MetadataVersion: level, OnLoss: func(what string) { lost = append(lost, what) }}) {
			frame, err := metadata.Append(nil, rec, metadata.RecordVersion(rec, level))
			if err != nil {
				t.Fatalf("level %d: %v", level, err)
			}
			if err := d.Replay(decode(t, loggedRecord{value: frame})); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(lost)
		if got := strings.Join(lost, ", "); got != want {
			t.Errorf("level %d lost %s\nwant %s", level, got, want)
		}
		if got := d.Apply(Provenance{}); got.MetadataVersion() != level || got.Equal(img) != (level == 33) {
			t.Errorf("level %d gives %s", level, describe(got))
		}
	}
}

func TestRecordsStopWhenTheConsumerDoes(t *testing.T) {
	img := manyTopics(t, 3, 2)
	all := len(slices.Collect(img.Records(RecordsOptions{MetadataVersion: 33})))
	for stop := 1; stop <= all; stop++ {
		n := 0
		for range img.Records(RecordsOptions{MetadataVersion: 33}) {
			if n++; n == stop {
				break
			}
		}
		if n != stop {
			t.Errorf("stopped at %d of %d", n, stop)
		}
	}
	for range Empty().Records(RecordsOptions{}) {
		t.Error("the empty image has a record")
	}
}

func TestElectionsOfAnEligibleOrUncleanLeaderAreCounted(t *testing.T) {
	img := apply(
		t, Empty(), &metadata.TopicRecord{Name: "t", TopicID: topicID(1)},
		&metadata.PartitionRecord{TopicID: topicID(1), Replicas: []int32{1, 2}, Leader: -1, EligibleLeaderReplicas: []int32{2}},
	)
	d := NewDelta(img)
	elect := metadata.NewPartitionChangeRecord()
	elect.PartitionID, elect.TopicID, elect.Leader = 0, topicID(1), 2
	unclean := *elect
	unclean.Leader, unclean.LeaderRecoveryState = 1, LeaderRecovering
	for _, rec := range []*metadata.PartitionChangeRecord{elect, &unclean} {
		if err := d.Replay(rec); err != nil {
			t.Fatal(err)
		}
	}
	if s := d.Topics().Elections(); s != (ElectionStats{Unclean: 1, FromELR: 1}) {
		t.Errorf("%+v", s)
	}
}

func TestAnImageOfADeltaStaysAsItIsWhenTheDeltaGoesOn(t *testing.T) {
	d := NewDelta(manyTopics(t, 3, 2))
	change := metadata.NewPartitionChangeRecord()
	change.PartitionID, change.TopicID, change.Leader = 0, topicID(1), 2
	step := func() *Image {
		if err := d.Replay(change); err != nil {
			t.Fatal(err)
		}
		return d.Apply(Provenance{})
	}
	first := step()
	second := step()
	for want, img := range []*Image{d.Base(), first, second} {
		if got := img.Topics.Partition("topic-00001", 0).LeaderEpoch; got != int32(want) {
			t.Errorf("leader epoch %d, want %d", got, want)
		}
	}
	if d.Empty() || !NewDelta(first).Empty() {
		t.Error("Empty")
	}
	if got := len(d.Topics().Changed()); got != 1 {
		t.Errorf("%d topics changed", got)
	}
}

func TestCellGivesTheNewestImageToManyReaders(t *testing.T) {
	var cell Cell
	if cell.Image() != Empty() {
		t.Error("the zero cell is not empty")
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			var last int64 = -1
			for last < 200 {
				img := cell.Image()
				if img.Provenance.Offset < last {
					t.Errorf("offset %d after %d", img.Provenance.Offset, last)
					return
				}
				last = img.Provenance.Offset
				for b := range img.Cluster.Brokers() {
					if b.Epoch != last {
						t.Errorf("broker epoch %d in the image of offset %d", b.Epoch, last)
						return
					}
				}
			}
		})
	}
	img := Empty()
	for i := range int64(201) {
		d := NewDelta(img)
		if err := d.Replay(&metadata.RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: i}); err != nil {
			t.Error(err)
		}
		img = d.Apply(Provenance{Offset: i})
		cell.Store(img)
	}
	readers.Wait()
}

func TestQuotaEntityIsTheSameInAnyOrderAndGivesItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []QuotaPart
		for _, partType := range rapid.SliceOfDistinct(rapid.String(), rapid.ID[string]).Draw(t, "types") {
			p := QuotaPart{Type: partType, Default: rapid.Bool().Draw(t, "default")}
			if !p.Default {
				p.Name = strings.Repeat("n", rapid.IntRange(0, 300).Draw(t, "length")) + rapid.String().Draw(t, "name")
			}
			parts = append(parts, p)
		}
		e := NewQuotaEntity(parts...)
		slices.Reverse(parts)
		if NewQuotaEntity(parts...) != e {
			t.Fatal("the order matters")
		}
		got := slices.Collect(e.Parts())
		slices.SortFunc(parts, func(a, b QuotaPart) int { return strings.Compare(a.Type, b.Type) })
		if !slices.Equal(got, parts) {
			t.Fatalf("got %v, want %v", got, parts)
		}
		for _, p := range parts {
			if found, ok := e.Part(p.Type); !ok || found != p {
				t.Fatalf("part %q: %v", p.Type, found)
			}
		}
	})
	user, anyUser, noName := NewQuotaEntity(QuotaPart{Type: QuotaUser, Name: "u"}), NewQuotaEntity(QuotaPart{Type: QuotaUser, Default: true}), NewQuotaEntity(QuotaPart{Type: QuotaUser})
	if user == anyUser || anyUser == noName || anyUser.String() != "user=<default>" || noName.String() != "user=" {
		t.Error("a default is not an empty name")
	}
	if _, ok := user.Part(QuotaIP); ok {
		t.Error("a part that is not there")
	}
}

func TestReplicaIsOnlineInADirectoryAsItsBrokerTold(t *testing.T) {
	told := &Broker{Directories: []protocol.UUID{{1}, {2}}}
	silent := &Broker{}
	for dir, want := range map[protocol.UUID][2]bool{
		{1}: {true, true}, {3}: {false, true}, protocol.DirectoryUnassigned: {true, true},
		protocol.DirectoryMigrating: {true, true}, protocol.DirectoryLost: {false, false},
	} {
		if got := [2]bool{told.HasOnlineDirectory(dir), silent.HasOnlineDirectory(dir)}; got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
}

func TestDirectoriesAreSortedAsKafkaSortsUuids(t *testing.T) {
	got := sortedDirectories([]protocol.UUID{{1}, {0x80}, {8: 0x80}, {8: 1}, {}, {7: 1}})
	want := []protocol.UUID{{0x80}, {8: 0x80}, {}, {8: 1}, {7: 1}, {1}}
	if !slices.Equal(got, want) {
		t.Errorf("%x", got)
	}
}

func TestRegistrationsAreFoundByListenerAndFeature(t *testing.T) {
	img := apply(
		t, Empty(),
		&metadata.RegisterBrokerRecord{
			BrokerID: 1, Fenced: true, EndPoints: []metadata.BrokerEndpoint{{Name: "A", Port: 1}},
			Features: []metadata.BrokerFeature{{Name: "f", MaxSupportedVersion: 3}},
		},
		&metadata.RegisterControllerRecord{
			ControllerID: 2, EndPoints: []metadata.ControllerEndpoint{{Name: "C", Port: 9}},
			Features: []metadata.ControllerFeature{{Name: "g", MinSupportedVersion: 1, MaxSupportedVersion: 2}},
		},
	)
	b, c := img.Cluster.Broker(1), img.Cluster.Controller(2)
	if e, ok := b.Endpoint("A"); !ok || e.Port != 1 {
		t.Errorf("%+v", e)
	}
	if _, ok := b.Endpoint("B"); ok {
		t.Error("a listener that the broker lacks")
	}
	if _, ok := img.Cluster.AliveEndpoint(1, "A"); ok {
		t.Error("the address of a fenced broker is shown")
	}
	if f, ok := b.Feature("f"); !ok || f.Max != 3 {
		t.Errorf("%+v", f)
	}
	if e, ok := c.Endpoint("C"); !ok || e.Port != 9 {
		t.Errorf("%+v", e)
	}
	if f, ok := c.Feature("g"); !ok || f.Min != 1 {
		t.Errorf("%+v", f)
	}
	if _, ok := c.Feature("f"); ok || img.Cluster.Controller(1) != nil || img.Cluster.NumControllers() != 1 {
		t.Error("controllers")
	}
	if got := slices.Collect(img.Cluster.Controllers()); len(got) != 1 || got[0] != c {
		t.Errorf("%v", got)
	}
}

func TestPartitionKnowsItsReplicas(t *testing.T) {
	p := &Partition{Replicas: []int32{3, 1}, ISR: []int32{1}, Directories: []protocol.UUID{{1}, {2}}, Leader: 1}
	if !p.HasReplica(3) || p.HasReplica(2) || p.InISR(3) || !p.InISR(1) || p.PreferredLeader() != 3 || p.HasPreferredLeader() || p.Reassigning() {
		t.Errorf("%+v", p)
	}
	if dir, ok := p.Directory(1); !ok || dir != (protocol.UUID{2}) {
		t.Errorf("%s", dir)
	}
	if _, ok := p.Directory(2); ok {
		t.Error("the directory of no replica")
	}
	p.AddingReplicas = []int32{1}
	if !p.Reassigning() || (&Partition{}).PreferredLeader() != NoLeader {
		t.Error("reassigning")
	}
}

func TestConfigsAreSharedNotChanged(t *testing.T) {
	one, two := "1", "2"
	before := apply(t, Empty(), &metadata.ConfigRecord{ResourceType: 2, ResourceName: "t", Name: "a", Value: &one})
	held := before.Configs.Topic("t")
	after := apply(
		t, before, &metadata.ConfigRecord{ResourceType: 2, ResourceName: "t", Name: "a", Value: &two},
		&metadata.ConfigRecord{ResourceType: 2, ResourceName: "t", Name: "b", Value: &two},
	)
	if !maps.Equal(held, map[string]string{"a": "1"}) || !maps.Equal(after.Configs.Topic("t"), map[string]string{"a": "2", "b": "2"}) {
		t.Errorf("%v, then %v", held, after.Configs.Topic("t"))
	}
}

func BenchmarkTopicLookup(b *testing.B) {
	img := manyTopics(b, 10_000, 1)
	for b.Loop() {
		if img.Topics.Partition("topic-01234", 0) == nil {
			b.Fatal("missing")
		}
	}
}

func BenchmarkApplyOfOnePartitionChange(b *testing.B) {
	img := manyTopics(b, 10_000, 1)
	change := metadata.NewPartitionChangeRecord()
	change.TopicID, change.PartitionID, change.Leader = topicID(7), 0, 2
	for b.Loop() {
		img = apply(b, img, change)
	}
}

package image

import (
	"iter"
	"maps"
	"slices"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// RecordsOptions says how to write an image as records.
type RecordsOptions struct {
	// MetadataVersion to write, usually the image's own. What a lower one cannot hold is left out.
	MetadataVersion metadata.MetadataVersion
	// OnLoss is told once per kind of state that is left out; it may be nil.
	OnLoss func(what string)
}

// Records iterates over the records that make up the image, in the order of Kafka's snapshots: features first, so that
// metadata.version is known. Replayed on the empty image they give an equal image. The records are new but share slices
// with the image. Write each in the version that metadata.RecordVersion names.
func (i *Image) Records(o RecordsOptions) iter.Seq[metadata.Record] {
	return func(yield func(metadata.Record) bool) {
		w := &recordWriter{RecordsOptions: o, elr: i.Features.ELREnabled(), yield: yield}
		steps := []func(*Image){
			w.features, w.cluster, w.topics, w.configs, w.clientQuotas, w.producerIDs, w.acls, w.scram, w.tokens,
		}
		for _, step := range steps {
			if step(i); w.stopped {
				return
			}
		}
	}
}

// recordWriter yields records until the consumer stops.
type recordWriter struct {
	RecordsOptions
	elr     bool // write eligible leader replicas
	yield   func(metadata.Record) bool
	stopped bool
	lost    map[string]bool
}

// put yields a record and reports whether to go on.
func (w *recordWriter) put(rec metadata.Record) bool {
	if !w.stopped && !w.yield(rec) {
		w.stopped = true
	}
	return !w.stopped
}

// loss notes that something of the image is left out.
func (w *recordWriter) loss(what string) {
	if w.OnLoss == nil || w.lost[what] {
		return
	}
	if w.lost == nil {
		w.lost = map[string]bool{}
	}
	w.lost[what] = true
	w.OnLoss(what)
}

func (w *recordWriter) features(i *Image) {
	if w.MetadataVersion != 0 && !w.put(&metadata.FeatureLevelRecord{
		Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(w.MetadataVersion),
	}) {
		return
	}
	for name, level := range i.Features.levels.all() {
		if !w.put(&metadata.FeatureLevelRecord{Name: name, FeatureLevel: level}) {
			return
		}
	}
}

func (w *recordWriter) cluster(i *Image) {
	for b := range i.Cluster.Brokers() {
		if !w.put(w.broker(b)) {
			return
		}
	}
	if i.Cluster.NumControllers() > 0 && !w.MetadataVersion.SupportsControllerRegistration() {
		w.loss("controller registrations")
		return
	}
	for c := range i.Cluster.Controllers() {
		r := &metadata.RegisterControllerRecord{
			ControllerID: c.ID, IncarnationID: c.Incarnation, ZkMigrationReady: c.ZkMigrationReady,
		}
		for _, e := range c.Endpoints {
			r.EndPoints = append(r.EndPoints, metadata.ControllerEndpoint{
				Name: e.Listener, Host: e.Host, Port: e.Port, SecurityProtocol: e.SecurityProtocol,
			})
		}
		for _, f := range c.SupportedFeatures {
			r.Features = append(r.Features,
				metadata.ControllerFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
		}
		if !w.put(r) {
			return
		}
	}
}

func (w *recordWriter) broker(b *Broker) *metadata.RegisterBrokerRecord {
	r := &metadata.RegisterBrokerRecord{
		BrokerID: b.ID, IncarnationID: b.Incarnation, BrokerEpoch: b.Epoch, Rack: b.Rack, Fenced: b.Fenced,
		InControlledShutdown: b.InControlledShutdown,
	}
	for _, e := range b.Endpoints {
		r.EndPoints = append(r.EndPoints, metadata.BrokerEndpoint{
			Name: e.Listener, Host: e.Host, Port: e.Port, SecurityProtocol: e.SecurityProtocol,
		})
	}
	for _, f := range b.Features {
		r.Features = append(r.Features,
			metadata.BrokerFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	if b.MigratingZkBroker {
		if r.IsMigratingZkBroker = w.MetadataVersion.SupportsMigration(); !r.IsMigratingZkBroker {
			w.loss("the migration state of brokers")
		}
	}
	if len(b.Directories) > 0 {
		if w.MetadataVersion.SupportsDirectories() {
			r.LogDirs = b.Directories
		} else {
			w.loss("the online log directories of brokers")
		}
	}
	if b.CordonedDirectories != nil {
		if w.MetadataVersion.SupportsCordonedLogDirs() {
			r.CordonedLogDirs = b.CordonedDirectories
		} else {
			w.loss("the cordoned log directories of brokers")
		}
	}
	return r
}

// topics writes the topics by id, each followed by its partitions.
func (w *recordWriter) topics(i *Image) {
	for _, t := range i.Topics.byID.all() {
		if !w.put(&metadata.TopicRecord{Name: t.Name, TopicID: t.ID}) {
			return
		}
		for id, p := range t.Partitions() {
			if !w.put(w.partition(t.ID, id, p)) {
				return
			}
		}
	}
}

func (w *recordWriter) partition(topic protocol.UUID, id int32, p *Partition) *metadata.PartitionRecord {
	r := &metadata.PartitionRecord{
		PartitionID: id, TopicID: topic, Replicas: p.Replicas, ISR: p.ISR, RemovingReplicas: p.RemovingReplicas,
		AddingReplicas: p.AddingReplicas, Leader: p.Leader, LeaderRecoveryState: p.LeaderRecoveryState,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
	}
	switch {
	case w.elr && w.MetadataVersion.SupportsELR():
		r.EligibleLeaderReplicas, r.LastKnownELR = orNil(p.ELR), orNil(p.LastKnownELR)
	case len(p.ELR) > 0 || len(p.LastKnownELR) > 0:
		w.loss("the eligible leader replicas of partitions")
	}
	switch {
	case w.MetadataVersion.SupportsDirectories():
		r.Directories = p.Directories
	case slices.ContainsFunc(p.Directories, knownDirectory):
		w.loss("the directory assignment of replicas")
	}
	return r
}

func (w *recordWriter) configs(i *Image) {
	for resource, configs := range i.Configs.All() {
		for _, name := range slices.Sorted(maps.Keys(configs)) {
			value := configs[name]
			if !w.put(&metadata.ConfigRecord{
				ResourceType: int8(resource.Type), ResourceName: resource.Name, Name: name, Value: &value,
			}) {
				return
			}
		}
	}
}

func (w *recordWriter) clientQuotas(i *Image) {
	for entity, quotas := range i.ClientQuotas.All() {
		var parts []metadata.ClientQuotaEntityData
		for p := range entity.Parts() {
			part := metadata.ClientQuotaEntityData{EntityType: p.Type}
			if !p.Default {
				part.EntityName = &p.Name
			}
			parts = append(parts, part)
		}
		for _, key := range slices.Sorted(maps.Keys(quotas)) {
			if !w.put(&metadata.ClientQuotaRecord{Entity: parts, Key: key, Value: quotas[key]}) {
				return
			}
		}
	}
}

func (w *recordWriter) producerIDs(i *Image) {
	if i.ProducerIDs.Allocated {
		w.put(&metadata.ProducerIdsRecord{BrokerID: -1, BrokerEpoch: -1, NextProducerID: i.ProducerIDs.Next})
	}
}

func (w *recordWriter) acls(i *Image) {
	for a := range i.ACLs.All() {
		if !w.put(&metadata.AccessControlEntryRecord{
			ID: a.ID, ResourceType: a.ResourceType, ResourceName: a.ResourceName, PatternType: a.PatternType,
			Principal: a.Principal, Host: a.Host, Operation: a.Operation, PermissionType: a.PermissionType,
		}) {
			return
		}
	}
}

func (w *recordWriter) scram(i *Image) {
	if i.Scram.Len() > 0 && !w.MetadataVersion.SupportsScram() {
		w.loss("SCRAM credentials")
		return
	}
	for user, c := range i.Scram.All() {
		if !w.put(&metadata.UserScramCredentialRecord{
			Name: user.Name, Mechanism: int8(user.Mechanism), Salt: c.Salt, StoredKey: c.StoredKey,
			ServerKey: c.ServerKey, Iterations: c.Iterations,
		}) {
			return
		}
	}
}

func (w *recordWriter) tokens(i *Image) {
	if i.DelegationTokens.Len() > 0 && !w.MetadataVersion.SupportsDelegationTokens() {
		w.loss("delegation tokens")
		return
	}
	for t := range i.DelegationTokens.All() {
		if !w.put(&metadata.DelegationTokenRecord{
			Owner: t.Owner, Requester: t.Requester, Renewers: t.Renewers, IssueTimestamp: t.IssueMillis,
			MaxTimestamp: t.MaxMillis, ExpirationTimestamp: t.ExpirationMillis, TokenID: t.ID,
		}) {
			return
		}
	}
}

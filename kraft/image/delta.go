package image

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// ErrInconsistent says that a record does not fit the state that it is replayed on: the log is corrupt, or the
// controller that wrote it has a bug.
var ErrInconsistent = errors.New("metadata record does not fit the image")

// Delta is an image in the making: records replayed on top of a base image. It belongs to one goroutine until it is
// handed to publishers, which only read it.
type Delta struct {
	base *Image
	next Image
	edit *edit // of the trees of next
	own  sections

	features    map[string]struct{}
	brokers     map[int32]struct{}
	controllers map[int32]struct{}
	topics      *TopicsDelta
	configs     map[ConfigResource]struct{}
	quotas      map[QuotaEntity]struct{}
	producerIDs bool
	acls        map[protocol.UUID]struct{}
	scram       map[ScramUser]struct{}
	tokens      map[string]struct{}
}

// sections says which sections of Delta.next are its own copies.
type sections struct{ features, cluster, topics, configs, quotas, acls, scram, tokens bool }

// NewDelta returns a delta without changes.
func NewDelta(base *Image) *Delta { return &Delta{base: base, next: *base, edit: new(edit)} }

// Base returns the image that the delta starts from.
func (d *Delta) Base() *Image { return d.base }

// Apply returns the image with all records replayed so far. The delta stays usable: more records may be replayed, and
// a later Apply contains them too.
func (d *Delta) Apply(provenance Provenance) *Image {
	d.next.Provenance = provenance
	d.edit = new(edit) // freezes what the image shares with the delta
	d.own = sections{}
	img := d.next
	if d.topics != nil {
		d.topics.topics = img.Topics
	}
	return &img
}

// Empty reports whether nothing has changed.
func (d *Delta) Empty() bool {
	return d.features == nil && d.brokers == nil && d.controllers == nil && d.topics == nil && d.configs == nil &&
		d.quotas == nil && !d.producerIDs && d.acls == nil && d.scram == nil && d.tokens == nil
}

// Replay applies a record. A record that does not fit is an error that wraps ErrInconsistent, and changes nothing.
// BeginTransaction, EndTransaction and AbortTransaction have no effect here: whoever reads the log holds back the
// records of an open transaction.
func (d *Delta) Replay(rec metadata.Record) error {
	if err := d.replay(rec); err != nil {
		return fmt.Errorf("%s: %w", rec.MessageName(), err)
	}
	return nil
}

func (d *Delta) replay(rec metadata.Record) error {
	switch r := rec.(type) {
	case *metadata.TopicRecord, *metadata.PartitionRecord, *metadata.PartitionChangeRecord,
		*metadata.RemoveTopicRecord, *metadata.ClearElrRecord:
		return d.replayTopics(rec)
	case *metadata.RegisterBrokerRecord, *metadata.UnregisterBrokerRecord, *metadata.FenceBrokerRecord,
		*metadata.UnfenceBrokerRecord, *metadata.BrokerRegistrationChangeRecord, *metadata.RegisterControllerRecord,
		*metadata.UnregisterControllerRecord:
		return d.replayCluster(rec)
	case *metadata.FeatureLevelRecord:
		return d.replayFeatureLevel(r)
	case *metadata.ConfigRecord:
		d.replayConfig(r)
		return nil
	case *metadata.ClientQuotaRecord:
		return d.replayClientQuota(r)
	case *metadata.ProducerIdsRecord:
		d.next.ProducerIDs = ProducerIDs{Next: r.NextProducerID, Allocated: true}
		d.producerIDs = true
		return nil
	case *metadata.NoOpRecord, *metadata.ZkMigrationStateRecord, *metadata.BeginTransactionRecord,
		*metadata.EndTransactionRecord, *metadata.AbortTransactionRecord:
		return nil
	default:
		return d.replaySecurity(rec)
	}
}

// mark adds a key to a set of changed keys.
func mark[K comparable](set *map[K]struct{}, k K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[k] = struct{}{}
}

// Topics returns the changes of topics and partitions, nil if there are none.
func (d *Delta) Topics() *TopicsDelta { return d.topics }

// ChangedFeatures returns the names of features whose level was set, in order.
func (d *Delta) ChangedFeatures() []string { return slices.Sorted(maps.Keys(d.features)) }

// ChangedBrokers returns the ids of brokers whose registration changed, came or went, in order.
func (d *Delta) ChangedBrokers() []int32 { return slices.Sorted(maps.Keys(d.brokers)) }

// ChangedControllers returns the ids of controllers whose registration changed, came or went, in order.
func (d *Delta) ChangedControllers() []int32 { return slices.Sorted(maps.Keys(d.controllers)) }

// ChangedConfigs returns the resources whose configs changed, in order; those of removed topics too.
func (d *Delta) ChangedConfigs() []ConfigResource {
	return slices.SortedFunc(maps.Keys(d.configs), ConfigResource.Compare)
}

// ChangedQuotas returns the entities whose quotas changed, in order.
func (d *Delta) ChangedQuotas() []QuotaEntity {
	return slices.SortedFunc(maps.Keys(d.quotas), compareEntities)
}

// ProducerIDsChanged reports whether producer ids were handed out.
func (d *Delta) ProducerIDsChanged() bool { return d.producerIDs }

// ChangedACLs returns the ids of access control entries that came or went, in order.
func (d *Delta) ChangedACLs() []protocol.UUID {
	return slices.SortedFunc(maps.Keys(d.acls), compareIDs)
}

// ChangedScram returns the SCRAM credentials that changed, came or went, in order.
func (d *Delta) ChangedScram() []ScramUser {
	return slices.SortedFunc(maps.Keys(d.scram), ScramUser.Compare)
}

// ChangedDelegationTokens returns the ids of tokens that changed, came or went, in order.
func (d *Delta) ChangedDelegationTokens() []string { return slices.Sorted(maps.Keys(d.tokens)) }

// Between returns the delta from base to img, for a state that was loaded from a snapshot. Its Apply returns img's
// state.
func Between(base, img *Image) *Delta {
	d := NewDelta(base)
	d.next = *img
	differences(&base.Features.levels, &img.Features.levels, func(a, b int16) bool { return a == b },
		func(k string) { mark(&d.features, k) })
	if base.Features.version != img.Features.version {
		mark(&d.features, metadata.FeatureMetadataVersion)
	}
	differences(&base.Cluster.brokers, &img.Cluster.brokers, (*Broker).equal, func(k int32) { mark(&d.brokers, k) })
	differences(&base.Cluster.controllers, &img.Cluster.controllers, (*Controller).equal,
		func(k int32) { mark(&d.controllers, k) })
	d.betweenTopics()
	differences(&base.Configs.resources, &img.Configs.resources, maps.Equal[map[string]string],
		func(k ConfigResource) { mark(&d.configs, k) })
	differences(&base.ClientQuotas.entities, &img.ClientQuotas.entities, equalQuotas,
		func(k QuotaEntity) { mark(&d.quotas, k) })
	d.producerIDs = base.ProducerIDs != img.ProducerIDs
	differences(&base.ACLs.entries, &img.ACLs.entries, equalACLs, func(k protocol.UUID) { mark(&d.acls, k) })
	differences(&base.Scram.credentials, &img.Scram.credentials, (*ScramCredential).equal,
		func(k ScramUser) { mark(&d.scram, k) })
	differences(&base.DelegationTokens.tokens, &img.DelegationTokens.tokens, (*DelegationToken).equal,
		func(k string) { mark(&d.tokens, k) })
	return d
}

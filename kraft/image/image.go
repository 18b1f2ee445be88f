package image

import (
	"sync/atomic"

	"gregor/kraft/metadata"
)

// Provenance says up to where the metadata log is contained in an image.
type Provenance struct {
	// Offset is that of the last record contained, -1 for none.
	Offset int64
	// Epoch is the leader epoch of that record, -1 for none.
	Epoch int32
	// TimestampMillis is the append time of that record.
	TimestampMillis int64
}

// Image is the state of the cluster at one offset of the metadata log. It is immutable.
type Image struct {
	Provenance       Provenance
	Features         *Features
	Cluster          *Cluster
	Topics           *Topics
	Configs          *Configs
	ClientQuotas     *ClientQuotas
	ProducerIDs      ProducerIDs
	ACLs             *ACLs
	Scram            *Scram
	DelegationTokens *DelegationTokens
}

// ProducerIDs says which producer ids are taken.
type ProducerIDs struct {
	// Next is the first producer id that is not handed out to any broker; 0 if none was.
	Next int64
	// Allocated says that at least one block was handed out.
	Allocated bool
}

var empty = &Image{
	Provenance:       Provenance{Offset: -1, Epoch: -1},
	Features:         emptyFeatures(),
	Cluster:          emptyCluster(),
	Topics:           emptyTopics(),
	Configs:          emptyConfigs(),
	ClientQuotas:     emptyClientQuotas(),
	ACLs:             emptyACLs(),
	Scram:            emptyScram(),
	DelegationTokens: emptyDelegationTokens(),
}

// Empty returns the image before the first record.
func Empty() *Image { return empty }

// MetadataVersion returns the finalized metadata.version, 0 if there is none.
func (i *Image) MetadataVersion() metadata.MetadataVersion { return i.Features.MetadataVersion() }

// Equal reports whether both images hold the same state; their provenance does not matter.
func (i *Image) Equal(o *Image) bool {
	return i.Features.equal(o.Features) && i.Cluster.equal(o.Cluster) && i.Topics.equal(o.Topics) &&
		i.Configs.equal(o.Configs) && i.ClientQuotas.equal(o.ClientQuotas) && i.ProducerIDs == o.ProducerIDs &&
		i.ACLs.equal(o.ACLs) && i.Scram.equal(o.Scram) && i.DelegationTokens.equal(o.DelegationTokens)
}

// Source gives the newest image.
type Source interface {
	Image() *Image
}

// Cell holds the newest image for any number of readers. The zero Cell holds the empty image.
type Cell struct{ p atomic.Pointer[Image] }

// Image returns the newest image. A request loads it once, so that it sees one state of the cluster.
func (c *Cell) Image() *Image {
	if i := c.p.Load(); i != nil {
		return i
	}
	return empty
}

// Store makes i the newest image.
func (c *Cell) Store(i *Image) { c.p.Store(i) }

// ManifestKind says what a delta was made from.
type ManifestKind int8

// The kinds of manifests.
const (
	ManifestLog      ManifestKind = iota // committed batches of the log
	ManifestSnapshot                     // a snapshot that replaced the state
)

// Manifest describes how a delta came about.
type Manifest struct {
	Kind       ManifestKind
	Provenance Provenance
	// LeaderID and LeaderEpoch are those of the quorum, -1 if unknown.
	LeaderID    int32
	LeaderEpoch int32
	// Batches and Bytes were read for this delta.
	Batches int
	Bytes   int64
}

// Publisher is told of every new image, in order, by one goroutine. Delta's base is the image of the call before, or
// the empty one; img is the delta applied. Both may be kept.
type Publisher interface {
	Name() string
	Publish(delta *Delta, img *Image, manifest Manifest)
}

package broker

import (
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/broker/api"
	"gregor/kraft/image"
	"gregor/protocol"
	"gregor/storage"
)

// kraftPublisher is image.Publisher, by which the loader tells the parts of the broker of new images.
type kraftPublisher = image.Publisher

// logLoading loads the logs when the first image is there, since only the image tells which of them are strays. It comes
// before the replicas, which find their logs loaded.
type logLoading struct {
	manager *storage.Manager
	nodeID  int32
	fail    func(error)
	done    chan struct{} // closed when the logs are loaded

	img atomic.Pointer[image.Image] // the first one
}

// configWhileLoading is the config of a topic when its logs are opened: the cleaner and retention start before the
// replicas do, and must not delete by a default of the file what a dynamic one keeps.
func (b *Broker) configWhileLoading(topic string) storage.LogConfig {
	cfg, overrides := b.cfg, map[string]string(nil)
	if b.loaded != nil {
		if img := b.loaded.img.Load(); img != nil {
			cfg, overrides = b.dynamic.Config(), img.Configs.Topic(topic)
		}
	}
	c, err := topicConfig(cfg, overrides)
	if err != nil {
		b.log.Error("topic has a config that its logs cannot act on", "topic", topic, "error", err)
		// Nothing is deleted or compacted by a config that is not understood.
		c = storage.DefaultLogConfig()
		c.CleanupDelete, c.CleanupCompact = false, false
	}
	return c
}

// Name implements image.Publisher.
func (l *logLoading) Name() string { return "log loading" }

// Publish implements image.Publisher.
func (l *logLoading) Publish(_ *image.Delta, img *image.Image, _ image.Manifest) {
	select {
	case <-l.done:
		return
	default:
	}
	l.img.Store(img)
	err := l.manager.Load(storage.LoadOptions{IsStray: func(p storage.TopicPartition, id [16]byte) bool {
		return l.stray(img, p, id)
	}})
	if err != nil {
		l.fail(err)
		return
	}
	close(l.done)
}

// stray tells whether the cluster does not know a log as a replica of this broker.
func (l *logLoading) stray(img *image.Image, p storage.TopicPartition, id [16]byte) bool {
	topic := img.Topics.ByName(p.Topic)
	if !protocol.UUID(id).IsZero() {
		topic = img.Topics.ByID(id)
	}
	if topic == nil {
		return true
	}
	reg := topic.Partition(p.Partition)
	return reg == nil || !reg.HasReplica(l.nodeID)
}

// wakeOnImage lets the lifecycle see at once that its metadata has caught up: once for each registration, since a
// heartbeat may itself lead to a new image.
type wakeOnImage struct {
	lifecycle *lifecycle
	told      int64 // the epoch that the lifecycle was woken for
}

// Name implements image.Publisher.
func (w *wakeOnImage) Name() string { return "lifecycle" }

// Publish implements image.Publisher.
func (w *wakeOnImage) Publish(_ *image.Delta, img *image.Image, _ image.Manifest) {
	epoch := w.lifecycle.Epoch()
	if epoch < 0 || epoch == w.told || img.Provenance.Offset < epoch {
		return
	}
	w.told = epoch
	w.lifecycle.wake()
}

// dirFailed is told when a log directory goes offline: the controller learns of it with the next heartbeat, and
// moves leadership away. Without any directory left the broker stops.
func (b *Broker) dirFailed(d storage.DirInfo) {
	if b.lifecycle != nil {
		b.lifecycle.wake()
	}
	if b.manager == nil {
		return
	}
	for _, x := range b.manager.Dirs() {
		if x.Metadata && x.Err != nil {
			b.fail(x.Err)
			return
		}
		if x.HoldsLogs && x.Err == nil {
			return
		}
	}
	b.fail(d.Err)
}

// replicaDamaged is told when a file of a replica turns out to be damaged. The controller learns of failed directories
// only; that a single replica is lost is said by the directory that it is in: none (DirectoryLost, KIP-858). The replica
// leaves the in-sync set then and is no leader, until a start finds it whole.
func (b *Broker) replicaDamaged(r storage.DamagedReplica) {
	id := protocol.UUID(r.TopicID)
	if b.placement == nil {
		return
	}
	if id.IsZero() {
		topic := b.node.Image().Topics.ByName(r.Topic)
		if topic == nil {
			return
		}
		id = topic.ID
	}
	b.placed(id, image.TopicPartition{Topic: r.Topic, Partition: r.Partition}, protocol.DirectoryLost)
}

// placed has the controller told where a replica is, unless the cluster's metadata.version knows no directories.
func (b *Broker) placed(topic protocol.UUID, p image.TopicPartition, directory protocol.UUID) {
	if b.node.Image().MetadataVersion().SupportsDirectories() {
		b.placement.placed(topic, p, directory)
	}
}

// ready tells whether this node has taken over its replicas, and the controller knows where they are: only then can it
// be asked for. A replica whose directory was lost, and is found again, could not be elected at the unfencing otherwise.
func (b *Broker) ready() bool {
	img, _ := b.settled.load()
	return img.Provenance.Offset >= b.lifecycle.Epoch() && b.placement.idle()
}

// offlineDirs are the ids of directories that failed.
func (b *Broker) offlineDirs() []protocol.UUID {
	var out []protocol.UUID
	for _, d := range b.manager.Dirs() {
		if d.HoldsLogs && d.Err != nil && !protocol.UUID(d.ID).IsZero() {
			out = append(out, d.ID)
		}
	}
	return out
}

// logDirs describes the disks for DescribeLogDirs.
type logDirs struct{ manager *storage.Manager }

// DescribeDirs implements api.LogDirs.
func (l logDirs) DescribeDirs() []api.LogDir {
	var out []api.LogDir
	for _, d := range l.manager.Describe() {
		if d.Err != nil {
			d.Err = errors.Join(kerr.KafkaStorageError, d.Err)
		}
		out = append(out, api.LogDir{Path: d.Path, Err: d.Err, TotalBytes: d.TotalBytes, UsableBytes: d.UsableBytes, Cordoned: d.Cordoned, Logs: d.Logs, FutureLogs: d.FutureLogs})
	}
	return out
}

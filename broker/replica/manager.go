package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/kraft/image"
	"gregor/protocol"
	"gregor/storage"
)

// Logs creates, finds and deletes the logs of partitions. It is what the manager needs of storage.Manager.
type Logs interface {
	// Log returns the log of a partition if it is on one of the disks.
	Log(topic string, partition int32) (*storage.Log, bool)
	// CreateLog returns the log of a partition and creates it when it is not there, in the directory with that id
	// (the zero id: whichever is best). Several goroutines call it, for different partitions.
	CreateLog(topic string, partition int32, topicID [16]byte, c storage.LogConfig, directory [16]byte) (*storage.Log, error)
	// DeleteLogs renames the logs' directories away and deletes them later.
	DeleteLogs(partitions []storage.TopicPartition) error
	// DirOf tells which directory a log is in.
	DirOf(l *storage.Log) storage.DirInfo
}

// Options configure a Manager.
type Options struct {
	// NodeID is this broker.
	NodeID int32
	Logs   Logs
	// TopicConfig resolves the config of a topic: its overrides on the broker's defaults.
	TopicConfig func(overrides map[string]string) (storage.LogConfig, error)
	// Placed is told when a replica is in another log directory than the cluster knows; nil on a broker whose
	// directories the cluster assigns by itself. Several goroutines call it.
	Placed func(topic protocol.UUID, p image.TopicPartition, directory protocol.UUID)
	Logger *slog.Logger
}

// Manager holds the replicas of this broker. Lookups take no lock; changes come from one goroutine at a time: that of the
// image's loader, or Run's.
type Manager struct {
	o          Options
	partitions sync.Map // image.TopicPartition -> *Partition
	offline    sync.Map // image.TopicPartition -> error: replicas that could not be opened because of their storage

	changing sync.Mutex
	newest   *image.Image  // that was published; guarded by changing
	wanting  sync.Map      // image.TopicPartition -> struct{}: replicas that there was no space for
	want     chan struct{} // there is one
}

// NewManager returns a manager without replicas.
func NewManager(o Options) *Manager { return &Manager{o: o, want: make(chan struct{}, 1)} }

// Name names the publisher in logs.
func (m *Manager) Name() string { return "replica manager" }

// Lookup returns the replica of a partition on this broker, or nil.
func (m *Manager) Lookup(topic string, partition int32) *Partition {
	p, ok := m.partitions.Load(image.TopicPartition{Topic: topic, Partition: partition})
	if !ok {
		return nil
	}
	found, _ := p.(*Partition)
	return found
}

// Missing is the error for a partition of the cluster whose replica Lookup does not find: KAFKA_STORAGE_ERROR when it is
// on this broker and its disk or its files are at fault, else NOT_LEADER_OR_FOLLOWER.
func (m *Manager) Missing(topic string, partition int32) error {
	if err, ok := m.offline.Load(image.TopicPartition{Topic: topic, Partition: partition}); ok {
		return err.(error) //nolint:forcetypeassert // nothing else is stored
	}
	return kerr.NotLeaderForPartition
}

// All returns the replicas of this broker, in no order.
func (m *Manager) All() []*Partition {
	var out []*Partition
	m.partitions.Range(func(_, p any) bool {
		if found, ok := p.(*Partition); ok {
			out = append(out, found)
		}
		return true
	})
	return out
}

// Publish implements image.Publisher: replicas are deleted, created and given their roles. A replica whose log
// cannot be opened is logged and left out: requests for it are answered as Missing says, and the others of the change
// go on.
func (m *Manager) Publish(delta *image.Delta, img *image.Image, _ image.Manifest) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.newest = img
	if topics := delta.Topics(); topics != nil {
		local := topics.LocalChanges(m.o.NodeID)
		m.remove(local.Deletes)
		m.applyRoles(img, local.Leaders)
		m.applyRoles(img, local.Followers)
	}
	m.applyConfigs(delta, img)
}

// remove takes replicas away; with their topic gone, or moved elsewhere, their logs are deleted.
func (m *Manager) remove(deletes []image.LocalDelete) {
	var gone []storage.TopicPartition
	for _, d := range deletes {
		p := m.Lookup(d.Topic, d.Partition)
		if p != nil && p.TopicID() != d.TopicID {
			continue // a newer topic of that name
		}
		key := image.TopicPartition{Topic: d.Topic, Partition: d.Partition}
		m.partitions.Delete(key)
		m.offline.Delete(key)
		m.wanting.Delete(key)
		if p != nil {
			p.stop()
		}
		gone = append(gone, storage.TopicPartition{Topic: d.Topic, Partition: d.Partition})
	}
	if len(gone) == 0 {
		return
	}
	if err := m.o.Logs.DeleteLogs(gone); err != nil {
		m.o.Logger.Error("cannot delete the logs of partitions", "partitions", len(gone), "error", err)
	}
}

// rolesAtOnce is how many replicas get their roles at the same time: to create a log is system calls that wait for each
// other's directories.
const rolesAtOnce = 4

// applyRoles gives replicas, each of another partition, their roles. A directory that is offline takes thousands of them
// with it, and each change of the metadata meets them again: that is one line in the log, the first time.
func (m *Manager) applyRoles(img *image.Image, roles []image.LocalReplica) {
	var next atomic.Int64
	var lost lostReplicas
	var wg sync.WaitGroup
	for range min(rolesAtOnce, len(roles)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(roles); i = int(next.Add(1)) - 1 {
				m.applyRole(img, roles[i], &lost)
			}
		})
	}
	wg.Wait()
	for cause, n := range lost.byCause {
		m.o.Logger.Error("replicas are offline", "replicas", n, "error", cause)
	}
}

// lostReplicas counts replicas whose storage fails.
type lostReplicas struct {
	mu      sync.Mutex
	byCause map[string]int
}

func (l *lostReplicas) add(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byCause == nil {
		l.byCause = map[string]int{}
	}
	l.byCause[cause.Error()]++
}

func (m *Manager) applyRole(img *image.Image, r image.LocalReplica, lost *lostReplicas) {
	key := image.TopicPartition{Topic: r.Topic, Partition: r.Partition}
	err := m.tryRole(img, r)
	full := errors.Is(err, storage.ErrNoSpace)
	m.wants(key, full)
	if full || errors.Is(err, storage.ErrStorage) {
		cause := err
		if full {
			cause = storage.ErrNoSpace // the directory has said where
		}
		if _, known := m.offline.Swap(key, mapped(err)); !known {
			lost.add(cause)
		}
		return
	}
	m.offline.Delete(key)
	if err != nil {
		m.o.Logger.Error("cannot bring a replica up", "topic", r.Topic, "partition", r.Partition, "error", err)
	}
}

func (m *Manager) tryRole(img *image.Image, r image.LocalReplica) error {
	p := m.Lookup(r.Topic, r.Partition)
	if p == nil {
		log, err := m.open(img, r)
		if err != nil {
			return err
		}
		p = newPartition(m.o.NodeID, log)
		log.SetObserver(p.watch.moved)
		defer m.partitions.Store(image.TopicPartition{Topic: r.Topic, Partition: r.Partition}, p)
	}
	reg := r.State
	return p.apply(Assignment{
		Leader: reg.Leader, LeaderEpoch: reg.LeaderEpoch, PartitionEpoch: reg.PartitionEpoch, Replicas: reg.Replicas, ISR: reg.ISR,
	})
}

// ErrTopicID says that a log on disk belongs to another topic of the same name.
var ErrTopicID = errors.New("log belongs to another topic of that name")

func (m *Manager) open(img *image.Image, r image.LocalReplica) (*storage.Log, error) {
	c, err := m.o.TopicConfig(img.Configs.Topic(r.Topic))
	if err != nil {
		return nil, err
	}
	dir, _ := r.State.Directory(m.o.NodeID)
	if dir.IsReservedDirectory() {
		dir = protocol.ZeroUUID
	}
	log, err := m.o.Logs.CreateLog(r.Topic, r.Partition, r.TopicID, c, dir)
	if err != nil {
		return nil, err
	}
	if id := protocol.UUID(log.TopicID()); !id.IsZero() && id != r.TopicID {
		return nil, fmt.Errorf("%w: %s-%d has id %s on disk, the cluster says %s", ErrTopicID, r.Topic, r.Partition, id, r.TopicID)
	}
	log.UpdateConfig(c)
	assigned, _ := r.State.Directory(m.o.NodeID)
	if actual := protocol.UUID(m.o.Logs.DirOf(log).ID); m.o.Placed != nil && actual != assigned && !actual.IsZero() {
		m.o.Placed(r.TopicID, r.TopicPartition, actual)
	}
	return log, nil
}

// applyConfigs gives replicas the changed config of their topics; a change of the broker's own defaults comes
// through RefreshConfigs.
func (m *Manager) applyConfigs(delta *image.Delta, img *image.Image) {
	for _, r := range delta.ChangedConfigs() {
		if r.Type == image.ResourceTopic {
			m.refreshTopic(img, img.Topics.ByName(r.Name))
		}
	}
}

// RefreshConfigs resolves the configs of all topics anew: the broker's defaults have changed.
func (m *Manager) RefreshConfigs(img *image.Image) {
	for t := range img.Topics.All() {
		m.refreshTopic(img, t)
	}
}

func (m *Manager) refreshTopic(img *image.Image, t *image.Topic) {
	if t == nil {
		return
	}
	c, err := m.o.TopicConfig(img.Configs.Topic(t.Name))
	if err != nil {
		m.o.Logger.Error("topic config is not valid; the one before stays in force", "topic", t.Name, "error", err)
		return
	}
	for id := range t.Partitions() {
		if p := m.Lookup(t.Name, id); p != nil {
			p.setConfig(c)
		}
	}
}

// stop wakes everybody who waits for the replica and refuses what comes later.
func (p *Partition) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.role.Load()
	gone := &role{Assignment: old.Assignment}
	gone.Leader = -1
	p.role.Store(gone)
	p.watch.turned()
}

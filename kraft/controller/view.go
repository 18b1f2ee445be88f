package controller

import (
	"iter"
	"slices"
	"strconv"

	"gregor/internal/configdef"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
)

// features answers what the finalized features allow.
type features struct {
	metadata.MetadataVersion

	levels *image.Features
}

func featuresOf(img *image.Image) features {
	return features{MetadataVersion: img.Features.MetadataVersion(), levels: img.Features}
}

func (f features) elr() bool                        { return f.levels.ELREnabled() }
func (f features) directoryAssignment() bool        { return f.SupportsDirectories() }
func (f features) cordonedLogDirs() bool            { return f.SupportsCordonedLogDirs() }
func (f features) leaderEpochBumpOnISRShrink() bool { return f.BumpsLeaderEpochOnISRShrink() }

// isActive says whether a broker serves clients: registered, unfenced, not in controlled shutdown.
func (d *Decider) isActive(broker int32) bool {
	b := d.Image.Cluster.Broker(broker)
	return b != nil && !b.Fenced && !b.InControlledShutdown
}

// hasOnlineDir says whether a replica in this directory of a broker can be served.
func (d *Decider) hasOnlineDir(broker int32, dir protocol.UUID) bool {
	b := d.Image.Cluster.Broker(broker)
	return b != nil && b.HasOnlineDirectory(dir)
}

// defaultDir is the directory of a new replica on a broker: known when the broker has but one.
func (d *Decider) defaultDir(broker int32) protocol.UUID {
	b := d.Image.Cluster.Broker(broker)
	switch {
	case !d.features.directoryAssignment():
		return protocol.DirectoryMigrating
	case b == nil:
		return protocol.DirectoryUnassigned
	case len(b.Directories) == 0:
		return protocol.DirectoryMigrating
	case len(b.Directories) == 1:
		return b.Directories[0]
	}
	return protocol.DirectoryUnassigned
}

// hasUncordonedDir says whether a broker can get new replicas.
func hasUncordonedDir(b *image.Broker) bool {
	if len(b.Directories) == 0 || b.CordonedDirectories == nil {
		return true
	}
	return slices.ContainsFunc(b.Directories, func(dir protocol.UUID) bool {
		return !slices.Contains(b.CordonedDirectories, dir)
	})
}

// sameDirs compares sets of directories; nil, which is "never told", equals none.
func sameDirs(known, told []protocol.UUID) bool {
	if known == nil {
		return false
	}
	for _, dir := range told {
		if !slices.Contains(known, dir) {
			return false
		}
	}
	for _, dir := range known {
		if !slices.Contains(told, dir) {
			return false
		}
	}
	return true
}

// usableBrokers are those that may get new replicas.
func (d *Decider) usableBrokers() []usableBroker {
	var out []usableBroker
	for b := range d.Image.Cluster.Brokers() {
		if !d.Sessions.shuttingDown(b.ID) && hasUncordonedDir(b) {
			out = append(out, usableBroker{id: b.ID, rack: b.Rack, fenced: b.Fenced})
		}
	}
	return out
}

// partition is a partition with what names it.
type partition struct {
	*image.Partition

	topic *image.Topic
	index int32
}

// partitions yields all partitions in order of topic and index.
func (d *Decider) partitions() iter.Seq[partition] {
	return func(yield func(partition) bool) {
		for t := range d.Image.Topics.All() {
			for i, p := range t.Partitions() {
				if !yield(partition{p, t, i}) {
					return
				}
			}
		}
	}
}

func (d *Decider) hasLeaderships(broker int32) bool {
	for p := range d.partitions() {
		if p.Leader == broker {
			return true
		}
	}
	return false
}

// A partitionFilter chooses the partitions that a change of a broker touches.
type partitionFilter func(partition) bool

func inISR(broker int32) partitionFilter {
	return func(p partition) bool { return p.InISR(broker) }
}

func inELR(broker int32) partitionFilter {
	return func(p partition) bool { return slices.Contains(p.ELR, broker) }
}

func leaderless(p partition) bool { return p.Leader == noLeader }

// inDirectories chooses the partitions with a replica of this broker in one of its directories.
func inDirectories(broker int32, dirs []protocol.UUID) partitionFilter {
	return func(p partition) bool {
		dir, ok := p.Directory(broker)
		return ok && slices.Contains(dirs, dir)
	}
}

// topicConfig resolves a topic config as a broker would: the topic's own value, else the controller node's dynamic
// one, the cluster's dynamic default, the controller's server.properties, the built-in default (KIP-226).
func (d *Decider) topicConfig(topic, key string) string {
	if v, ok := d.Image.Configs.Topic(topic)[key]; ok {
		return v
	}
	entry := d.inheritedTopicConfig(configdef.Topic().Lookup(key))
	if entry.value == nil {
		return ""
	}
	return *entry.value
}

// effectiveMinISR is min.insync.replicas of a topic, but not more than it has replicas.
func (d *Decider) effectiveMinISR(t *image.Topic) int {
	n, err := strconv.Atoi(d.topicConfig(t.Name, "min.insync.replicas"))
	if err != nil {
		n = 1
	}
	if first := t.Partition(0); first != nil {
		n = min(n, len(first.Replicas))
	}
	return n
}

func (d *Decider) uncleanElectionEnabled(topic string) bool {
	return d.topicConfig(topic, "unclean.leader.election.enable") == "true"
}

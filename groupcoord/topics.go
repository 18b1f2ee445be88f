package groupcoord

import (
	"strconv"
	"time"

	"gregor/groupcoord/consumer"
	"gregor/kraft/image"
	"gregor/protocol"
)

// clusterTopics shows an image to the consumer groups.
type clusterTopics struct{ img *image.Image }

func topicsOf(img *image.Image) consumer.Topics { return clusterTopics{img} }

// ByName implements consumer.Topics.
func (t clusterTopics) ByName(name string) (consumer.Topic, bool) {
	return t.topic(t.img.Topics.ByName(name))
}

// ByID implements consumer.Topics.
func (t clusterTopics) ByID(id protocol.UUID) (consumer.Topic, bool) {
	return t.topic(t.img.Topics.ByID(id))
}

// Each implements consumer.Topics.
func (t clusterTopics) Each(visit func(consumer.Topic) bool) {
	for topic := range t.img.Topics.All() {
		if shown, _ := t.topic(topic); !visit(shown) {
			return
		}
	}
}

// Version implements consumer.Topics.
func (t clusterTopics) Version() int64 { return t.img.Provenance.Offset }

func (t clusterTopics) topic(topic *image.Topic) (consumer.Topic, bool) {
	if topic == nil {
		return consumer.Topic{}, false
	}
	return consumer.Topic{
		ID: topic.ID, Name: topic.Name, Partitions: int32(topic.NumPartitions()),
		Racks: func(partition int32) (racks []string) {
			p := topic.Partition(partition)
			if p == nil {
				return nil
			}
			for _, id := range p.Replicas {
				if b := t.img.Cluster.Broker(id); b != nil && b.Rack != nil {
					racks = append(racks, *b.Rack)
				}
			}
			return racks
		},
	}, true
}

// groupConfig returns a group's own config. Values out of bounds are possible
// when the bounds were changed since; they are moved inside, as in Kafka.
func (o *Options) groupConfig(groupID string, defaults consumer.GroupConfig) consumer.GroupConfig {
	own := o.Image().Configs.Group(groupID)
	if len(own) == 0 {
		return defaults
	}
	bounds := o.Config.ConsumerBounds
	read := func(key string, def, low, high time.Duration) time.Duration {
		n, err := strconv.ParseInt(own[key], 10, 32)
		if err != nil {
			return def
		}
		return max(low, min(high, time.Duration(n)*time.Millisecond))
	}
	return consumer.GroupConfig{
		SessionTimeout:     read("consumer.session.timeout.ms", defaults.SessionTimeout, bounds.Min.SessionTimeout, bounds.Max.SessionTimeout),
		HeartbeatInterval:  read("consumer.heartbeat.interval.ms", defaults.HeartbeatInterval, bounds.Min.HeartbeatInterval, bounds.Max.HeartbeatInterval),
		AssignmentInterval: read("consumer.assignment.interval.ms", defaults.AssignmentInterval, bounds.Min.AssignmentInterval, bounds.Max.AssignmentInterval),
	}
}

package replica

import (
	"context"
	"time"

	"gregor/kraft/image"
)

// wantingPause is how long a replica that there was no space for waits for the next try.
const wantingPause = 5 * time.Second

// wants notes whether there is no space for a replica.
func (m *Manager) wants(key image.TopicPartition, wanting bool) {
	if !wanting {
		m.wanting.Delete(key)
		return
	}
	m.wanting.Store(key, struct{}{})
	select {
	case m.want <- struct{}{}:
	default:
	}
}

// Run brings up the replicas that there was no space for when the image gave them their roles, once there is. It returns
// when ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.want:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wantingPause):
		}
		m.retry()
	}
}

// retry gives the replicas that wait for space their roles of the newest image.
func (m *Manager) retry() {
	m.changing.Lock()
	defer m.changing.Unlock()
	var roles []image.LocalReplica
	m.wanting.Range(func(k, _ any) bool {
		key, _ := k.(image.TopicPartition)
		topic := m.newest.Topics.ByName(key.Topic)
		state := m.newest.Topics.Partition(key.Topic, key.Partition)
		if topic == nil || state == nil || !state.HasReplica(m.o.NodeID) {
			m.wanting.Delete(key)
			return true
		}
		roles = append(roles, image.LocalReplica{TopicPartition: key, TopicID: topic.ID, State: state, NewLeaderEpoch: true})
		return true
	})
	m.applyRoles(m.newest, roles)
	up := 0
	for _, r := range roles {
		if m.Lookup(r.Topic, r.Partition) != nil {
			up++
		}
	}
	if up > 0 {
		m.o.Logger.Info("replicas that waited for space are up", "replicas", up, "waiting", len(roles)-up)
	}
}

package groupcoord

import (
	"context"

	"gregor/internal/coordinator"
	"gregor/kraft/image"
)

// Name implements image.Publisher.
func (c *Coordinator) Name() string { return "group coordinator" }

// Publish takes note of a new cluster image, which Options.Image returns
// already. Elections are not read from it: the replica layer calls Elect and
// Resign once its partitions have changed.
func (c *Coordinator) Publish(delta *image.Delta, _ *image.Image, _ image.Manifest) {
	topics := delta.Topics()
	if topics == nil {
		return
	}
	var deleted []DeletedTopic
	var changed []string
	for _, t := range topics.Deleted() {
		deleted = append(deleted, DeletedTopic{ID: t.ID, Name: t.Name})
		changed = append(changed, t.Name)
	}
	created := false
	for _, t := range topics.Changed() {
		created = created || t.Old == nil
		if assignable(t) {
			changed = append(changed, t.New.Name)
		}
	}
	if len(changed) > 0 {
		c.topicsChanged(changed, created)
	}
	c.TopicsDeleted(deleted)
}

// assignable reports whether a change of a topic matters to assignments: its
// partitions or where their replicas are, not who leads them.
func assignable(t image.TopicDelta) bool {
	for p := range t.Partitions() {
		if p.Old == nil || p.New == nil || len(p.Old.Replicas) != len(p.New.Replicas) {
			return true
		}
		for i, id := range p.Old.Replicas {
			if p.New.Replicas[i] != id {
				return true
			}
		}
	}
	return t.Old == nil
}

// topicsChanged tells all shards, without waiting. One that is being loaded looks
// at all topics anyway.
func (c *Coordinator) topicsChanged(names []string, created bool) {
	if c.ctx.Err() != nil {
		return
	}
	for _, p := range c.rt.Partitions() {
		c.background.Go(func() {
			_, err := coordinator.Write(c.ctx, c.rt, p, func(s *shard) (struct{}, effect, error) { return s.topicsChanged(names, created) })
			if err != nil && context.Cause(c.ctx) == nil {
				c.opts.Logger.Debug("partition does not need to know of changed topics", "partition", p, "cause", err)
			}
		})
	}
}

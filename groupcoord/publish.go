package groupcoord

import "gregor/kraft/image"

// Name implements image.Publisher.
func (c *Coordinator) Name() string { return "group coordinator" }

// Publish takes note of a new cluster image. Elections are not read from it:
// the replica layer calls Elect and Resign once its partitions have changed.
func (c *Coordinator) Publish(delta *image.Delta, _ *image.Image, _ image.Manifest) {
	topics := delta.Topics()
	if topics == nil {
		return
	}
	var deleted []DeletedTopic
	for _, t := range topics.Deleted() {
		deleted = append(deleted, DeletedTopic{ID: t.ID, Name: t.Name})
	}
	c.TopicsDeleted(deleted)
}

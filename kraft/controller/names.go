package controller

import "strings"

// MetadataTopic is the name of the metadata log's topic.
const MetadataTopic = "__cluster_metadata"

// hasCollisionChars says whether another name could collide with this one in metric names, where '.' and '_' are
// the same.
func hasCollisionChars(name string) bool {
	return strings.ContainsAny(name, "._")
}

// unifyCollisionChars gives the form of a name that collides with another exactly when they collide in metrics.
func unifyCollisionChars(name string) string {
	return strings.ReplaceAll(name, ".", "_")
}

// maxCollisionVariants bounds how many spellings of a name are looked up before all topics are scanned instead.
const maxCollisionVariants = 1 << 8

// collisionVariants yields all spellings of a name that collide with it, or false when there are too many.
func collisionVariants(name string) ([]string, bool) {
	var at []int
	for i := range len(name) {
		if name[i] == '.' || name[i] == '_' {
			at = append(at, i)
		}
	}
	if len(at) > 8 {
		return nil, false
	}
	out := make([]string, 0, 1<<len(at))
	b := []byte(name)
	for mask := range 1 << len(at) {
		for bit, pos := range at {
			b[pos] = '_'
			if mask&(1<<bit) != 0 {
				b[pos] = '.'
			}
		}
		out = append(out, string(b))
	}
	return out, len(out) <= maxCollisionVariants
}

package consumer

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"

	"gregor/protocol"
)

// Topic is a topic of the cluster. It is not changed.
type Topic struct {
	ID         protocol.UUID
	Name       string
	Partitions int32
	// Racks returns the racks of a partition's replicas.
	Racks func(partition int32) []string
}

// Topics is the cluster as one image shows it.
type Topics interface {
	ByName(name string) (Topic, bool)
	ByID(id protocol.UUID) (Topic, bool)
	// Each visits all topics until it returns false.
	Each(visit func(Topic) bool)
	// Version of the image: its offset in the metadata log.
	Version() int64
}

// topicHashVersion is the first byte of what is hashed for a topic.
const topicHashVersion = 0

// topicHash is the hash of what an assignment depends on: the topic's identity,
// its partitions and their racks. Integers are little endian, strings UTF-16
// with their length behind them.
func topicHash(t Topic) uint64 {
	b := append(make([]byte, 0, 64), topicHashVersion)
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[:8]))
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[8:]))
	b = appendJavaString(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Partitions))
	for p := range t.Partitions {
		b = binary.LittleEndian.AppendUint32(b, uint32(p))
		if t.Racks == nil {
			continue
		}
		for _, rack := range slices.Sorted(slices.Values(t.Racks(p))) {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(utf16.Encode([]rune(rack)))))
			b = appendJavaString(b, rack)
		}
	}
	return xxh3(b)
}

func appendJavaString(b []byte, s string) []byte {
	units := utf16.Encode([]rune(s))
	for _, unit := range units {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(len(units)))
}

// topicHashes remembers the hashes of the topics of one image: every member that
// joins asks for them, and that of a topic costs as much as it has partitions.
type topicHashes struct {
	version int64
	byName  map[string]uint64
}

// of returns the hash of a topic.
func (h *topicHashes) of(t Topic, version int64) uint64 {
	if h.byName == nil || h.version != version {
		h.version, h.byName = version, make(map[string]uint64)
	}
	hash, ok := h.byName[t.Name]
	if !ok {
		hash = topicHash(t)
		h.byName[t.Name] = hash
	}
	return hash
}

// metadata is the hash of the subscribed topics that exist, 0 without any.
// It changes when the group needs a new assignment.
func (h *topicHashes) metadata(names map[string]struct{}, topics Topics) int64 {
	var b []byte
	for _, name := range sortedKeys(names) {
		if t, ok := topics.ByName(name); ok {
			b = binary.LittleEndian.AppendUint64(b, h.of(t, topics.Version()))
		}
	}
	if len(b) == 0 {
		return 0
	}
	return int64(xxh3(b))
}

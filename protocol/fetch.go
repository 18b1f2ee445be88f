package protocol

import (
	"math"
	"unsafe"
)

// FetchRequest is a Fetch request in versions 4 to 18. Decode aliases the
// frame: names are valid as long as the frame is held.
//
// 5 log start offset of followers, 7 sessions (KIP-227), 9 current leader epoch
// (KIP-320), 11 rack (KIP-392), 12 last fetched epoch (KIP-595), 13 topic ids
// (KIP-516), 15 replica epoch (KIP-903), 16 node endpoints (KIP-951), 17
// directory id (KIP-853), 18 high watermark of the follower (KIP-1166).
type FetchRequest struct {
	Version   int16
	ClusterID *string // since 12
	// ReplicaID is the follower's node id, or -1 for a client.
	ReplicaID int32
	// ReplicaEpoch is the follower's broker epoch, or -1. Since 15.
	ReplicaEpoch  int64
	MaxWaitMillis int32
	MinBytes      int32
	MaxBytes      int32
	// IsolationLevel is 0 for read_uncommitted, 1 for read_committed.
	IsolationLevel int8
	SessionID      int32
	SessionEpoch   int32
	Topics         []FetchTopic
	// Forgotten are the partitions that leave the session. Since 7.
	Forgotten []FetchForgottenTopic
	RackID    string // since 11

	clusterID string // what ClusterID points to after Decode
}

// FetchTopic is what is fetched of one topic.
type FetchTopic struct {
	Name       string // up to version 12
	ID         UUID   // since version 13
	Partitions []FetchPartition
}

// FetchPartition is what is fetched of one partition.
type FetchPartition struct {
	Index int32
	// CurrentLeaderEpoch is what the client takes for the leader's epoch, or -1.
	CurrentLeaderEpoch int32
	FetchOffset        int64
	// LastFetchedEpoch is the epoch of the last record the follower has, or -1.
	LastFetchedEpoch int32
	// LogStartOffset is the follower's, or -1.
	LogStartOffset int64
	MaxBytes       int32
	// ReplicaDirectoryID is a voter's directory. Since 17.
	ReplicaDirectoryID UUID
	// HighWatermark is what the follower knows; math.MaxInt64 when it does not
	// say. Since 18.
	HighWatermark int64
}

// FetchForgottenTopic names partitions that leave a fetch session.
type FetchForgottenTopic struct {
	Name       string // up to version 12
	ID         UUID   // since version 13
	Partitions []int32
}

// Reset makes the request that of a client which states nothing: the defaults of
// the schema.
func (f *FetchRequest) Reset(version int16) {
	*f = FetchRequest{
		Version: version, ReplicaID: -1, ReplicaEpoch: -1, MaxBytes: math.MaxInt32, SessionEpoch: -1,
		Topics: f.Topics[:0], Forgotten: f.Forgotten[:0],
	}
}

// Decode reads a body and reuses the memory of an earlier one.
func (f *FetchRequest) Decode(version int16, body []byte) error {
	r := reader{buf: body, flex: version >= 12}
	left := newBudget(len(body))
	f.Reset(version)
	if version <= 14 {
		f.ReplicaID = r.int32()
	}
	f.MaxWaitMillis, f.MinBytes, f.MaxBytes, f.IsolationLevel = r.int32(), r.int32(), r.int32(), r.int8()
	if version >= 7 {
		f.SessionID, f.SessionEpoch = r.int32(), r.int32()
	}
	f.decodeTopics(&r, &left)
	if version >= 7 {
		f.decodeForgotten(&r, &left)
	}
	if version >= 11 {
		f.RackID = r.string("RackId")
	}
	r.tags(f.decodeTag)
	return r.err
}

func (f *FetchRequest) decodeTag(tag uint32, payload *reader) bool {
	switch tag {
	case 0:
		if n := payload.length(false); n >= 0 {
			f.clusterID = aliasString(payload.take(n))
			f.ClusterID = &f.clusterID
		} else {
			f.ClusterID = nil
		}
	case 1:
		if payload.validFrom(15, f.Version) {
			f.ReplicaID, f.ReplicaEpoch = payload.int32(), payload.int64()
			payload.tags(nil)
		}
	default:
		return false
	}
	return true
}

func (f *FetchRequest) decodeTopics(r *reader, left *budget) {
	topics := r.arrayLength("Topics", 3)
	left.charge(r, topics, int(unsafe.Sizeof(FetchTopic{})))
	for range topics {
		t := nextElement(&f.Topics)
		t.Name, t.ID, t.Partitions = "", UUID{}, t.Partitions[:0]
		if f.Version >= 13 {
			t.ID = r.uuid()
		} else {
			t.Name = r.string("Topic")
		}
		partitions := r.arrayLength("Partitions", 16)
		left.charge(r, partitions, int(unsafe.Sizeof(FetchPartition{})))
		for range partitions {
			nextElement(&t.Partitions).decode(r, f.Version)
			if r.err != nil {
				return
			}
		}
		r.tags(nil)
		if r.err != nil {
			return
		}
	}
}

// fixedBytes is what a partition takes on the wire before its tag section.
func (p *FetchPartition) fixedBytes(version int16) int {
	n := 16
	if version >= 5 {
		n += 8
	}
	if version >= 9 {
		n += 4
	}
	if version >= 12 {
		n += 4
	}
	return n
}

// decode is the hot loop of a fetch of many partitions: the fixed part is
// checked once.
func (p *FetchPartition) decode(r *reader, version int16) {
	b := r.take(p.fixedBytes(version))
	if b == nil {
		return
	}
	*p = FetchPartition{Index: fixed32(&b), CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: math.MaxInt64}
	if version >= 9 {
		p.CurrentLeaderEpoch = fixed32(&b)
	}
	p.FetchOffset = fixed64(&b)
	if version >= 12 {
		p.LastFetchedEpoch = fixed32(&b)
	}
	if version >= 5 {
		p.LogStartOffset = fixed64(&b)
	}
	p.MaxBytes = fixed32(&b)
	if !r.flex {
		return
	}
	if len(r.buf) > 0 && r.buf[0] == 0 { // no tags: spares the closure
		r.buf = r.buf[1:]
		return
	}
	r.tags(func(tag uint32, payload *reader) bool {
		switch tag {
		case 0:
			if payload.validFrom(17, version) {
				p.ReplicaDirectoryID = payload.uuid()
			}
		case 1:
			if payload.validFrom(18, version) {
				p.HighWatermark = payload.int64()
			}
		default:
			return false
		}
		return true
	})
}

func (f *FetchRequest) decodeForgotten(r *reader, left *budget) {
	topics := r.arrayLength("ForgottenTopicsData", 3)
	left.charge(r, topics, int(unsafe.Sizeof(FetchForgottenTopic{})))
	for range topics {
		t := nextElement(&f.Forgotten)
		t.Name, t.ID, t.Partitions = "", UUID{}, t.Partitions[:0]
		if f.Version >= 13 {
			t.ID = r.uuid()
		} else {
			t.Name = r.string("Topic")
		}
		partitions := r.arrayLength("Partitions", 4)
		left.charge(r, partitions, 4)
		for range partitions {
			*nextElement(&t.Partitions) = r.int32()
		}
		r.tags(nil)
		if r.err != nil {
			return
		}
	}
}

// AppendTo appends the body.
func (f *FetchRequest) AppendTo(dst []byte) []byte {
	v := f.Version
	w := writer{buf: dst, flex: v >= 12}
	if v <= 14 {
		w.int32(f.ReplicaID)
	}
	w.int32(f.MaxWaitMillis)
	w.int32(f.MinBytes)
	w.int32(f.MaxBytes)
	w.buf = append(w.buf, byte(f.IsolationLevel))
	if v >= 7 {
		w.int32(f.SessionID)
		w.int32(f.SessionEpoch)
	}
	w.length(len(f.Topics), true)
	for i := range f.Topics {
		t := &f.Topics[i]
		w.topic(v >= 13, t.Name, &t.ID)
		w.length(len(t.Partitions), true)
		for j := range t.Partitions {
			t.Partitions[j].appendTo(&w, v)
		}
		w.tagCount(0)
	}
	if v >= 7 {
		w.length(len(f.Forgotten), true)
		for i := range f.Forgotten {
			t := &f.Forgotten[i]
			w.topic(v >= 13, t.Name, &t.ID)
			w.length(len(t.Partitions), true)
			for _, p := range t.Partitions {
				w.int32(p)
			}
			w.tagCount(0)
		}
	}
	if v >= 11 {
		w.string(f.RackID)
	}
	if w.flex {
		f.appendTags(&w)
	}
	return w.buf
}

func (w *writer) topic(byID bool, name string, id *UUID) {
	if byID {
		w.buf = append(w.buf, id[:]...)
	} else {
		w.string(name)
	}
}

func (f *FetchRequest) appendTags(w *writer) {
	replica := f.Version >= 15 && (f.ReplicaID != -1 || f.ReplicaEpoch != -1)
	w.tagCount(count(f.ClusterID != nil, replica))
	if f.ClusterID != nil {
		w.tag(0, sizeOfString(*f.ClusterID))
		w.string(*f.ClusterID)
	}
	if replica {
		w.tag(1, 13)
		w.int32(f.ReplicaID)
		w.int64(f.ReplicaEpoch)
		w.tagCount(0)
	}
}

func (p *FetchPartition) appendTo(w *writer, v int16) {
	w.int32(p.Index)
	if v >= 9 {
		w.int32(p.CurrentLeaderEpoch)
	}
	w.int64(p.FetchOffset)
	if v >= 12 {
		w.int32(p.LastFetchedEpoch)
	}
	if v >= 5 {
		w.int64(p.LogStartOffset)
	}
	w.int32(p.MaxBytes)
	directory := v >= 17 && !p.ReplicaDirectoryID.IsZero()
	highWatermark := v >= 18 && p.HighWatermark != math.MaxInt64
	w.tagCount(count(directory, highWatermark))
	if directory {
		w.tag(0, 16)
		w.buf = append(w.buf, p.ReplicaDirectoryID[:]...)
	}
	if highWatermark {
		w.tag(1, 8)
		w.int64(p.HighWatermark)
	}
}

// count returns how many of the conditions hold.
func count(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

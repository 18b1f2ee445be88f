package protocol

import "encoding/binary"

// FetchResponse is a Fetch response in versions 4 to 18.
type FetchResponse struct {
	ThrottleMillis int32
	ErrorCode      int16 // since 7
	SessionID      int32 // since 7
	Topics         []FetchTopicResponse
	// NodeEndpoints are the addresses of the leaders named in CurrentLeader,
	// since version 16 (KIP-951).
	NodeEndpoints []NodeEndpoint
}

// FetchTopicResponse is what one topic gives.
type FetchTopicResponse struct {
	Name       string // up to version 12
	ID         UUID   // since version 13
	Partitions []FetchPartitionResponse
}

// FetchPartitionResponse is what one partition gives.
type FetchPartitionResponse struct {
	Index            int32
	ErrorCode        int16
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64 // since 5
	// DivergingEpoch, if set, tells a follower where its log left the leader's.
	// Since 12, as CurrentLeader and SnapshotID.
	DivergingEpoch *EpochEndOffset
	// CurrentLeader, if set, is where to go instead.
	CurrentLeader *LeaderIDAndEpoch
	// SnapshotID, if set, is the snapshot to fetch first (metadata log only).
	SnapshotID *FetchSnapshotID
	// AbortedTransactions is null (nil) for read_uncommitted.
	AbortedTransactions []AbortedTransaction
	// PreferredReadReplica is where to read from, or -1. Since 11.
	PreferredReadReplica int32
	// Records are written in place unless SplicedBytes is set; nil is written as
	// length 0, because clients take null for a broken answer, unless
	// RecordsNull asks for null.
	Records     []byte
	RecordsNull bool
	// SplicedBytes is the length of records that the caller sends itself, from
	// a file, where the encoder leaves the gap.
	SplicedBytes int
}

// EpochEndOffset is the end of a leader epoch.
type EpochEndOffset struct {
	Epoch     int32
	EndOffset int64
}

// FetchSnapshotID names a snapshot of the metadata log.
type FetchSnapshotID struct {
	EndOffset int64
	Epoch     int32
}

// AbortedTransaction is a transaction whose records a read_committed client
// drops.
type AbortedTransaction struct{ ProducerID, FirstOffset int64 }

// Splice is a gap in an encoded response: after byte At of the buffer the caller
// sends Len bytes of records for that partition.
type Splice struct {
	At, Len          int
	Topic, Partition int // indices into the response
}

// AppendFetchResponse appends the whole answer to hdr, with size prefix and
// header, and appends to splices the gaps for partitions with SplicedBytes, in
// order. The size prefix counts them. A Splice's At counts from the beginning of
// the returned buffer.
func AppendFetchResponse(dst []byte, hdr *RequestHeader, f *FetchResponse, splices []Splice) ([]byte, []Splice) {
	start, first := len(dst), len(splices)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, hdr)
	dst, splices = f.AppendTo(dst, hdr.Version, splices)
	size := len(dst) - start - 4
	for _, s := range splices[first:] {
		size += s.Len
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(size))
	return dst, splices
}

// AppendTo appends the body, without the records to be spliced.
func (f *FetchResponse) AppendTo(dst []byte, version int16, splices []Splice) ([]byte, []Splice) {
	w := writer{buf: dst, flex: version >= 12}
	w.int32(f.ThrottleMillis)
	if version >= 7 {
		w.int16(f.ErrorCode)
		w.int32(f.SessionID)
	}
	w.length(len(f.Topics), true)
	for i := range f.Topics {
		t := &f.Topics[i]
		w.topic(version >= 13, t.Name, &t.ID)
		w.length(len(t.Partitions), true)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			p.appendTo(&w, version)
			if p.SplicedBytes > 0 {
				splices = append(splices, Splice{At: len(w.buf), Len: p.SplicedBytes, Topic: i, Partition: j})
			}
			p.appendTags(&w)
		}
		w.tagCount(0)
	}
	if version >= 16 && len(f.NodeEndpoints) > 0 {
		w.tagCount(1)
		w.nodeEndpointsTag(0, f.NodeEndpoints)
	} else {
		w.tagCount(0)
	}
	return w.buf, splices
}

func (p *FetchPartitionResponse) appendTo(w *writer, version int16) {
	w.int32(p.Index)
	w.int16(p.ErrorCode)
	w.int64(p.HighWatermark)
	w.int64(p.LastStableOffset)
	if version >= 5 {
		w.int64(p.LogStartOffset)
	}
	if p.AbortedTransactions == nil {
		w.length(-1, true)
	} else {
		w.length(len(p.AbortedTransactions), true)
		for _, a := range p.AbortedTransactions {
			w.int64(a.ProducerID)
			w.int64(a.FirstOffset)
			w.tagCount(0)
		}
	}
	if version >= 11 {
		w.int32(p.PreferredReadReplica)
	}
	switch {
	case p.SplicedBytes > 0:
		w.length(p.SplicedBytes, true)
	case p.Records == nil && p.RecordsNull:
		w.length(-1, true)
	default:
		w.length(len(p.Records), true)
		w.buf = append(w.buf, p.Records...)
	}
}

func (p *FetchPartitionResponse) appendTags(w *writer) {
	if !w.flex {
		return
	}
	w.tagCount(count(p.DivergingEpoch != nil, p.CurrentLeader != nil, p.SnapshotID != nil))
	if d := p.DivergingEpoch; d != nil {
		w.tag(0, 13)
		w.int32(d.Epoch)
		w.int64(d.EndOffset)
		w.tagCount(0)
	}
	if p.CurrentLeader != nil {
		w.tag(1, 9)
		w.leader(p.CurrentLeader)
	}
	if s := p.SnapshotID; s != nil {
		w.tag(2, 13)
		w.int64(s.EndOffset)
		w.int32(s.Epoch)
		w.tagCount(0)
	}
}

// Decode reads a body; text and records alias it. Memory of an earlier one is
// reused.
func (f *FetchResponse) Decode(version int16, body []byte) error {
	r := reader{buf: body, flex: version >= 12}
	*f = FetchResponse{Topics: f.Topics[:0], ThrottleMillis: r.int32()}
	if version >= 7 {
		f.ErrorCode, f.SessionID = r.int16(), r.int32()
	}
	for range r.arrayLength("Responses", 3) {
		t := nextElement(&f.Topics)
		t.Name, t.ID, t.Partitions = "", UUID{}, t.Partitions[:0]
		if version >= 13 {
			t.ID = r.uuid()
		} else {
			t.Name = r.string("Topic")
		}
		for range r.arrayLength("Partitions", 24) {
			nextElement(&t.Partitions).decode(&r, version)
			if r.err != nil {
				return r.err
			}
		}
		r.tags(nil)
	}
	r.tags(func(tag uint32, payload *reader) bool {
		if tag == 0 && payload.validFrom(16, version) {
			f.NodeEndpoints = payload.nodeEndpoints()
		}
		return tag == 0
	})
	return r.err
}

func (p *FetchPartitionResponse) decode(r *reader, version int16) {
	*p = FetchPartitionResponse{
		Index: r.int32(), ErrorCode: r.int16(), HighWatermark: r.int64(), LastStableOffset: r.int64(),
		LogStartOffset: -1, PreferredReadReplica: -1, AbortedTransactions: p.AbortedTransactions[:0],
	}
	if version >= 5 {
		p.LogStartOffset = r.int64()
	}
	aborted := r.nullableArrayLength("AbortedTransactions", 16)
	switch {
	case aborted < 0:
		p.AbortedTransactions = nil
	case p.AbortedTransactions == nil:
		p.AbortedTransactions = make([]AbortedTransaction, 0, aborted)
	}
	for range aborted {
		*nextElement(&p.AbortedTransactions) = AbortedTransaction{ProducerID: r.int64(), FirstOffset: r.int64()}
		r.tags(nil)
	}
	if version >= 11 {
		p.PreferredReadReplica = r.int32()
	}
	p.Records = r.nullableBytes()
	p.RecordsNull = p.Records == nil
	if !r.flex {
		return
	}
	if len(r.buf) > 0 && r.buf[0] == 0 { // no tags: spares the closure
		r.buf = r.buf[1:]
		return
	}
	r.tags(p.decodeTag)
}

func (p *FetchPartitionResponse) decodeTag(tag uint32, payload *reader) bool {
	switch tag {
	case 0:
		p.DivergingEpoch = &EpochEndOffset{Epoch: payload.int32(), EndOffset: payload.int64()}
		payload.tags(nil)
	case 1:
		p.CurrentLeader = payload.leader()
	case 2:
		p.SnapshotID = &FetchSnapshotID{EndOffset: payload.int64(), Epoch: payload.int32()}
		payload.tags(nil)
	default:
		return false
	}
	return true
}

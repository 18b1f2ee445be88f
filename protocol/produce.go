package protocol

import "unsafe"

// ProduceRequest is a Produce request in versions 3 to 13. Decode aliases the
// frame: names and records are valid as long as the frame is held.
//
// Since version 13 topics have an id instead of a name (KIP-516).
type ProduceRequest struct {
	Version         int16
	TransactionalID *string
	// Acks is 0, 1 or -1 (all); anything else is answered with
	// INVALID_REQUIRED_ACKS.
	Acks          int16
	TimeoutMillis int32
	Topics        []ProduceTopic

	transactionalID string // what TransactionalID points to after Decode
}

// ProduceTopic is the records for one topic.
type ProduceTopic struct {
	Name       string // up to version 12
	ID         UUID   // since version 13
	Partitions []ProducePartition
}

// ProducePartition is the records for one partition; nil records are null.
type ProducePartition struct {
	Index   int32
	Records []byte
}

// Decode reads a body and reuses the memory of an earlier one. It allocates
// only when there are more topics or partitions than ever before.
func (p *ProduceRequest) Decode(version int16, body []byte) error {
	r := reader{buf: body, flex: version >= 9}
	left := newBudget(len(body))
	p.Version, p.TransactionalID, p.Topics = version, nil, p.Topics[:0]
	if n := r.length(false); n >= 0 {
		p.transactionalID = aliasString(r.take(n))
		p.TransactionalID = &p.transactionalID
	}
	p.Acks, p.TimeoutMillis = r.int16(), r.int32()
	topics := r.arrayLength("TopicData", 3)
	left.charge(&r, topics, int(unsafe.Sizeof(ProduceTopic{})))
	for range topics {
		t := nextElement(&p.Topics)
		t.Name, t.ID = "", UUID{}
		if version >= 13 {
			t.ID = r.uuid()
		} else {
			t.Name = r.string("Name")
		}
		t.decodePartitions(&r, &left)
		r.tags(nil)
		if r.err != nil {
			return r.err
		}
	}
	r.tags(nil)
	return r.err
}

func (t *ProduceTopic) decodePartitions(r *reader, left *budget) {
	partitions := r.arrayLength("PartitionData", 5)
	left.charge(r, partitions, int(unsafe.Sizeof(ProducePartition{})))
	t.Partitions = t.Partitions[:0]
	for range partitions {
		part := nextElement(&t.Partitions)
		part.Index = r.int32()
		part.Records = r.nullableBytes()
		r.tags(nil)
		if r.err != nil {
			return
		}
	}
}

// nextElement lengthens a slice by one without zeroing what is reused.
func nextElement[T any](s *[]T) *T {
	if n := len(*s); n < cap(*s) {
		*s = (*s)[:n+1]
	} else {
		var zero T
		*s = append(*s, zero)
	}
	return &(*s)[len(*s)-1]
}

// AppendTo appends the body.
func (p *ProduceRequest) AppendTo(dst []byte) []byte {
	w := writer{buf: dst, flex: p.Version >= 9}
	w.nullableString(p.TransactionalID)
	w.int16(p.Acks)
	w.int32(p.TimeoutMillis)
	w.length(len(p.Topics), true)
	for i := range p.Topics {
		t := &p.Topics[i]
		if p.Version >= 13 {
			w.buf = append(w.buf, t.ID[:]...)
		} else {
			w.string(t.Name)
		}
		w.length(len(t.Partitions), true)
		for j := range t.Partitions {
			w.int32(t.Partitions[j].Index)
			w.nullableBytes(t.Partitions[j].Records)
			w.tagCount(0)
		}
		w.tagCount(0)
	}
	w.tagCount(0)
	return w.buf
}

// ProduceResponse is a Produce response in versions 3 to 13.
type ProduceResponse struct {
	Topics         []ProduceTopicResponse
	ThrottleMillis int32
	// NodeEndpoints are the addresses of the leaders named in CurrentLeader,
	// since version 10 (KIP-951).
	NodeEndpoints []NodeEndpoint
}

// ProduceTopicResponse is the outcome for one topic.
type ProduceTopicResponse struct {
	Name       string // up to version 12
	ID         UUID   // since version 13
	Partitions []ProducePartitionResponse
}

// ProducePartitionResponse is the outcome for one partition.
type ProducePartitionResponse struct {
	Index     int32
	ErrorCode int16
	// BaseOffset is the offset of the first record, or -1.
	BaseOffset int64
	// LogAppendTimeMillis is -1 unless the topic stamps records itself.
	LogAppendTimeMillis int64
	// LogStartOffset is the first offset of the log, or -1. Since version 5.
	LogStartOffset int64
	// RecordErrors name the records that made a batch fail. Since version 8.
	RecordErrors []ProduceRecordError
	// ErrorMessage is for a human. Since version 8.
	ErrorMessage *string
	// CurrentLeader, if set, is where to go instead. Since version 10.
	CurrentLeader *LeaderIDAndEpoch
}

// ProduceRecordError is why one record of a batch is refused.
type ProduceRecordError struct {
	BatchIndex int32
	Message    *string
}

// LeaderIDAndEpoch is the leader that a broker knows of a partition.
type LeaderIDAndEpoch struct{ LeaderID, LeaderEpoch int32 }

// NodeEndpoint is the address of a broker (KIP-951).
type NodeEndpoint struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   *string
}

// AppendTo appends the body in a version.
func (p *ProduceResponse) AppendTo(dst []byte, version int16) []byte {
	w := writer{buf: dst, flex: version >= 9}
	w.length(len(p.Topics), true)
	for i := range p.Topics {
		t := &p.Topics[i]
		if version >= 13 {
			w.buf = append(w.buf, t.ID[:]...)
		} else {
			w.string(t.Name)
		}
		w.length(len(t.Partitions), true)
		for j := range t.Partitions {
			t.Partitions[j].appendTo(&w, version)
		}
		w.tagCount(0)
	}
	w.int32(p.ThrottleMillis)
	if version >= 10 && len(p.NodeEndpoints) > 0 {
		w.tagCount(1)
		w.nodeEndpointsTag(0, p.NodeEndpoints)
	} else {
		w.tagCount(0)
	}
	return w.buf
}

func (p *ProducePartitionResponse) appendTo(w *writer, version int16) {
	w.int32(p.Index)
	w.int16(p.ErrorCode)
	w.int64(p.BaseOffset)
	w.int64(p.LogAppendTimeMillis)
	if version >= 5 {
		w.int64(p.LogStartOffset)
	}
	if version >= 8 {
		w.length(len(p.RecordErrors), true)
		for i := range p.RecordErrors {
			w.int32(p.RecordErrors[i].BatchIndex)
			w.nullableString(p.RecordErrors[i].Message)
			w.tagCount(0)
		}
		w.nullableString(p.ErrorMessage)
	}
	if version >= 10 && p.CurrentLeader != nil {
		w.tagCount(1)
		w.tag(0, 9)
		w.leader(p.CurrentLeader)
	} else {
		w.tagCount(0)
	}
}

func (w *writer) leader(l *LeaderIDAndEpoch) {
	w.int32(l.LeaderID)
	w.int32(l.LeaderEpoch)
	w.tagCount(0)
}

// Decode reads a body; text aliases it. Memory of an earlier one is reused.
func (p *ProduceResponse) Decode(version int16, body []byte) error {
	r := reader{buf: body, flex: version >= 9}
	p.Topics, p.NodeEndpoints = p.Topics[:0], nil
	for range r.arrayLength("Responses", 3) {
		t := nextElement(&p.Topics)
		t.Name, t.ID, t.Partitions = "", UUID{}, t.Partitions[:0]
		if version >= 13 {
			t.ID = r.uuid()
		} else {
			t.Name = r.string("Name")
		}
		for range r.arrayLength("PartitionResponses", 22) {
			part := nextElement(&t.Partitions)
			part.decode(&r, version)
			if r.err != nil {
				return r.err
			}
		}
		r.tags(nil)
	}
	p.ThrottleMillis = r.int32()
	r.tags(func(tag uint32, payload *reader) bool {
		if tag == 0 && payload.validFrom(10, version) {
			p.NodeEndpoints = payload.nodeEndpoints()
		}
		return tag == 0
	})
	return r.err
}

func (p *ProducePartitionResponse) decode(r *reader, version int16) {
	*p = ProducePartitionResponse{Index: r.int32(), ErrorCode: r.int16(), BaseOffset: r.int64(), LogAppendTimeMillis: r.int64(), LogStartOffset: -1}
	if version >= 5 {
		p.LogStartOffset = r.int64()
	}
	if version >= 8 {
		if n := r.arrayLength("RecordErrors", 5); n > 0 {
			p.RecordErrors = make([]ProduceRecordError, n)
		}
		for i := range p.RecordErrors {
			p.RecordErrors[i] = ProduceRecordError{BatchIndex: r.int32(), Message: r.nullableString()}
			r.tags(nil)
		}
		p.ErrorMessage = r.nullableString()
	}
	r.tags(func(tag uint32, payload *reader) bool {
		if tag == 0 && payload.validFrom(10, version) {
			p.CurrentLeader = payload.leader()
		}
		return tag == 0
	})
}

func (r *reader) leader() *LeaderIDAndEpoch {
	l := &LeaderIDAndEpoch{LeaderID: r.int32(), LeaderEpoch: r.int32()}
	r.tags(nil)
	return l
}

func (r *reader) nodeEndpoints() []NodeEndpoint {
	nodes := make([]NodeEndpoint, r.arrayLength("NodeEndpoints", 11))
	for i := range nodes {
		nodes[i] = NodeEndpoint{NodeID: r.int32(), Host: r.string("Host"), Port: r.int32(), Rack: r.nullableString()}
		r.tags(nil)
	}
	return nodes
}

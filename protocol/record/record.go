package record

import "iter"

// Header is one header of a record. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record of a batch. Key and Value are nil when null and empty but not nil when empty.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds; NoTimestamp in format 0
	Key       []byte
	Value     []byte
	Headers   []Header
	Sequence  int32 // NoSequence without an idempotent producer
}

// Records iterates over the records of the batch, decompressing it when needed within lim. Keys, values and header
// values alias the batch or, if it is compressed, a buffer that belongs to this iteration: they stay valid as long as
// the caller keeps them. The iteration ends with an error if the records do not fill the batch exactly.
func (b Batch) Records(lim Limits) iter.Seq2[Record, error] {
	return new(Decoder).Records(b, lim)
}

// Decoder iterates over the records of one batch after the other, and uses its memory again. The zero value is ready.
type Decoder struct {
	// WithoutHeaders leaves Record.Headers out. They are checked all the same.
	WithoutHeaders bool

	plain []byte
}

// maxKeptBytes is the largest buffer that a Decoder keeps.
const maxKeptBytes = maxPooledBytes

// Records is Batch.Records, but for the memory: what the records alias is valid until the next call.
func (d *Decoder) Records(b Batch, lim Limits) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { // written out here, so that it is inlined
		if b.legacy() {
			b.legacyRecords(lim, yield)
			return
		}
		if count := b.Count(); count <= 0 {
			if count < 0 {
				yield(Record{}, corruptf("record count %d", count))
			}
			return
		}
		payload, err := d.payload(b, lim)
		if err != nil {
			yield(Record{}, err)
			return
		}
		c := newCursor(payload, b.Count(), lim)
		var raw rawRecord
		for c.more() {
			if err := c.next(&raw); err != nil {
				yield(Record{}, err)
				return
			}
			rec := b.record(&raw)
			if raw.headerCount > 0 && !d.WithoutHeaders {
				rec.Headers, err = parseHeaders(raw.headers, raw.headerCount)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
		if err := c.end(); err != nil {
			yield(Record{}, err)
		}
	}
}

// payload returns the plain records.
func (d *Decoder) payload(b Batch, lim Limits) ([]byte, error) {
	codec := b.Codec()
	if codec == CodecNone {
		return b.Payload(), nil
	}
	plain, err := Decompress(d.plain, codec, b.Payload(), lim)
	d.plain = nil
	if err == nil && cap(plain) <= maxKeptBytes {
		d.plain = plain
	}
	return plain, err
}

// record is a record without its headers.
func (b Batch) record(raw *rawRecord) Record {
	rec := Record{
		Offset:    b.BaseOffset() + int64(raw.offsetDelta),
		Timestamp: b.BaseTimestamp() + raw.timestampDelta,
		Key:       raw.key,
		Value:     raw.value,
		Sequence:  NoSequence,
	}
	if b.TimestampType() == LogAppendTime {
		rec.Timestamp = b.MaxTimestamp()
	}
	if base := b.BaseSequence(); base >= 0 {
		rec.Sequence = AddSequence(base, raw.offsetDelta)
	}
	return rec
}

// rawRecord is a record as it is stored; its slices alias the uncompressed payload.
type rawRecord struct {
	attributes     int8
	offsetDelta    int32
	timestampDelta int64
	key, value     []byte
	headers        []byte // after the header count, checked
	headerCount    int32
	sizeBytes      int // with the length in front
}

// cursor walks the records of an uncompressed payload.
type cursor struct {
	payload  []byte
	pos      int
	count    int32 // records that the batch header claims
	read     int32
	maxBytes int // of one record
}

func newCursor(payload []byte, count int32, lim Limits) cursor {
	return cursor{payload: payload, count: count, maxBytes: lim.maxRecordBytes()}
}

func (c *cursor) more() bool { return c.read < c.count }

// end returns an error if bytes are left after the last record.
func (c *cursor) end() error {
	if c.pos != len(c.payload) {
		return corruptf("%d bytes remain after the %d records of the batch", len(c.payload)-c.pos, c.count)
	}
	return nil
}

// next reads and checks the record at the cursor. It does not allocate.
func (c *cursor) next(r *rawRecord) error {
	length, pos := c.length()
	if pos < 0 {
		return corruptf("premature end of the batch at record %d of %d", c.read, c.count)
	}
	if int(length) > c.maxBytes {
		return limitf("record %d has %d bytes, at most %d are allowed", c.read, length, c.maxBytes)
	}
	if length < 0 || int(length) > len(c.payload)-pos {
		return corruptf("record %d claims %d bytes, %d remain", c.read, length, len(c.payload)-pos)
	}
	end := pos + int(length)
	if body := c.payload[pos:end:end]; !r.parseShort(body) && !r.parse(body) {
		return corruptf("invalid structure of record %d", c.read)
	}
	r.sizeBytes = end - c.pos
	c.pos = end
	c.read++
	return nil
}

// length reads the length of the record at the cursor.
func (c *cursor) length() (int32, int) {
	if len(c.payload)-c.pos >= 2 {
		if v, pos := shortUvarint(c.payload, c.pos); pos <= len(c.payload) {
			return unzigzag(v), pos
		}
	}
	return readVarint(c.payload, c.pos)
}

// parseShort does what parse does for the usual record: no headers, key and value below 8 KiB, small deltas. It
// returns false for all others, valid or not.
func (r *rawRecord) parseShort(body []byte) bool {
	if len(body) < 6 {
		return false
	}
	timestampDelta, pos := shortUvarint(body, 1)
	if pos+2 > len(body) {
		return false
	}
	offsetDelta, pos := shortUvarint(body, pos)
	if pos+2 > len(body) {
		return false
	}
	keyBytes, pos := shortUvarint(body, pos)
	keyEnd := pos + int(keyBytes>>1)
	if keyBytes&1 != 0 {
		keyEnd = pos
	}
	if keyEnd+2 > len(body) {
		return false
	}
	valueBytes, valuePos := shortUvarint(body, keyEnd)
	valueEnd := valuePos + int(valueBytes>>1)
	if valueBytes&1 != 0 {
		valueEnd = valuePos
	}
	if valueEnd != len(body)-1 || body[valueEnd] != 0 {
		return false
	}
	r.attributes = int8(body[0])
	r.timestampDelta, r.offsetDelta = int64(unzigzag(timestampDelta)), unzigzag(offsetDelta)
	r.key, r.value = nil, nil
	if keyBytes&1 == 0 {
		r.key = body[pos:keyEnd:keyEnd]
	}
	if valueBytes&1 == 0 {
		r.value = body[valuePos:valueEnd:valueEnd]
	}
	r.headers, r.headerCount = nil, 0
	return true
}

// parse splits the body of a record and reports whether its parts fill it exactly.
func (r *rawRecord) parse(body []byte) bool {
	if len(body) == 0 {
		return false
	}
	r.attributes = int8(body[0])
	var pos int
	if r.timestampDelta, pos = readVarlong(body, 1); pos < 0 {
		return false
	}
	if r.offsetDelta, pos = readVarint(body, pos); pos < 0 {
		return false
	}
	if r.key, pos = readBytes(body, pos); pos < 0 {
		return false
	}
	if r.value, pos = readBytes(body, pos); pos < 0 {
		return false
	}
	if r.headerCount, pos = readVarint(body, pos); pos < 0 || r.headerCount < 0 {
		return false
	}
	r.headers = body[pos:]
	if r.headerCount == 0 {
		return pos == len(body)
	}
	return checkHeaders(r.headers, r.headerCount)
}

// readBytes reads a nullable byte string; every negative length means null, as in Kafka.
func readBytes(b []byte, pos int) ([]byte, int) {
	n, pos := readVarint(b, pos)
	if pos < 0 || n < 0 {
		return nil, pos
	}
	if int(n) > len(b)-pos {
		return nil, -1
	}
	end := pos + int(n)
	return b[pos:end:end], end
}

func checkHeaders(b []byte, count int32) bool {
	pos := 0
	for range count {
		n, p := readVarint(b, pos)
		if p < 0 || n < 0 || int(n) > len(b)-p {
			return false
		}
		if _, pos = readBytes(b, p+int(n)); pos < 0 {
			return false
		}
	}
	return pos == len(b)
}

func parseHeaders(b []byte, count int32) ([]Header, error) {
	if count == 0 {
		return nil, nil
	}
	// A header has at least two bytes and checkHeaders has seen all of them, so count is bounded by the record.
	headers := make([]Header, count)
	pos := 0
	for i := range headers {
		var key []byte
		if key, pos = readBytes(b, pos); pos < 0 {
			return nil, corruptf("invalid header %d", i)
		}
		headers[i].Key = string(key)
		if headers[i].Value, pos = readBytes(b, pos); pos < 0 {
			return nil, corruptf("invalid header %d", i)
		}
	}
	return headers, nil
}

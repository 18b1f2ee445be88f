package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression in the lowest three bits of a batch's attributes.
type Codec int16

// The five codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Codecs are all of them.
var Codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// String is the codec's name in Kafka's configuration.
func (c Codec) String() string {
	return [...]string{"none", "gzip", "snappy", "lz4", "zstd"}[c&7%5]
}

// The attributes of a batch.
const (
	LogAppendTime int16 = 1 << 3
	Transactional int16 = 1 << 4
	Control       int16 = 1 << 5
)

// HeaderBytes is the length of a batch before its records.
const HeaderBytes = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record; a nil key or value is null.
type Record struct {
	Timestamp  int64
	Key, Value []byte
	Headers    []Header
}

// Batch is a record batch, with each field of its header at will. Zero-valued overrides mean the right value.
type Batch struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Magic         int8
	Attributes    int16
	BaseTimestamp int64
	MaxTimestamp  int64
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Records       []Record

	// Count, LastOffsetDelta and CRC replace what is right, when set.
	Count, LastOffsetDelta *int32
	CRC                    *uint32
}

// NewBatch makes a batch without a producer of records with consecutive offsets.
func NewBatch(codec Codec, records ...Record) *Batch {
	b := &Batch{Magic: 2, LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Attributes: int16(codec), Records: records}
	if len(records) > 0 {
		b.BaseTimestamp, b.MaxTimestamp = records[0].Timestamp, records[0].Timestamp
	}
	for _, r := range records {
		b.MaxTimestamp = max(b.MaxTimestamp, r.Timestamp)
	}
	return b
}

// From gives the batch a producer.
func (b *Batch) From(producerID int64, epoch int16, sequence int32) *Batch {
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = producerID, epoch, sequence
	return b
}

// Encode is the batch's bytes.
func (b *Batch) Encode() []byte {
	var records []byte
	for i, r := range b.Records {
		records = appendRecord(records, r, r.Timestamp-b.BaseTimestamp, int64(i))
	}
	return b.encodeWith(Compress(Codec(b.Attributes&7), records))
}

// EncodeWith is the batch's bytes around records that are encoded (and compressed) already.
func (b *Batch) EncodeWith(records []byte) []byte { return b.encodeWith(records) }

func (b *Batch) encodeWith(records []byte) []byte {
	count, last := int32(len(b.Records)), int32(len(b.Records)-1)
	if b.Count != nil {
		count = *b.Count
	}
	if b.LastOffsetDelta != nil {
		last = *b.LastOffsetDelta
	}
	be := binary.BigEndian
	tail := be.AppendUint16(nil, uint16(b.Attributes))
	tail = be.AppendUint32(tail, uint32(last))
	tail = be.AppendUint64(tail, uint64(b.BaseTimestamp))
	tail = be.AppendUint64(tail, uint64(b.MaxTimestamp))
	tail = be.AppendUint64(tail, uint64(b.ProducerID))
	tail = be.AppendUint16(tail, uint16(b.ProducerEpoch))
	tail = be.AppendUint32(tail, uint32(b.BaseSequence))
	tail = be.AppendUint32(tail, uint32(count))
	tail = append(tail, records...)
	crc := crc32.Checksum(tail, castagnoli)
	if b.CRC != nil {
		crc = *b.CRC
	}
	out := be.AppendUint64(nil, uint64(b.BaseOffset))
	out = be.AppendUint32(out, uint32(len(tail)+9))
	out = be.AppendUint32(out, uint32(b.LeaderEpoch))
	out = append(out, byte(b.Magic))
	out = be.AppendUint32(out, crc)
	return append(out, tail...)
}

func appendRecord(dst []byte, r Record, timestampDelta, offsetDelta int64) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, timestampDelta)
	body = binary.AppendVarint(body, offsetDelta)
	body = appendBytes(body, r.Key)
	body = appendBytes(body, r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendBytes(body, h.Value)
	}
	return append(binary.AppendVarint(dst, int64(len(body))), body...)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// Compress compresses as Kafka's producers do (snappy in one plain block).
func Compress(c Codec, in []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch c {
	case Gzip:
		w = gzip.NewWriter(&out)
	case Snappy:
		return s2.EncodeSnappy(nil, in)
	case LZ4:
		w = lz4.NewWriter(&out)
	case Zstd:
		z, err := zstd.NewWriter(&out)
		if err != nil {
			panic(err)
		}
		w = z
	default:
		return in
	}
	if _, err := w.Write(in); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// xerial is the header of the framing that Java's snappy uses.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

func decompress(c Codec, in []byte) ([]byte, error) {
	var r io.Reader
	switch c {
	case Gzip:
		z, err := gzip.NewReader(bytes.NewReader(in))
		if err != nil {
			return nil, err
		}
		r = z
	case Snappy:
		if !bytes.HasPrefix(in, xerial) {
			return s2.Decode(nil, in)
		}
		var out []byte
		for in = in[16:]; len(in) >= 4; {
			n := binary.BigEndian.Uint32(in)
			part, err := s2.Decode(nil, in[4:4+n])
			if err != nil {
				return nil, err
			}
			out, in = append(out, part...), in[4+n:]
		}
		return out, nil
	case LZ4:
		r = lz4.NewReader(bytes.NewReader(in))
	case Zstd:
		z, err := zstd.NewReader(bytes.NewReader(in))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	default:
		return in, nil
	}
	return io.ReadAll(r)
}

// ParseBatches decodes what a Fetch returned; a batch that is cut off at the end is left out, as clients do.
func ParseBatches(in []byte) ([]*Batch, error) {
	var out []*Batch
	for len(in) >= HeaderBytes {
		n := int(binary.BigEndian.Uint32(in[8:])) + 12
		if n > len(in) {
			break
		}
		b, err := parseBatch(in[:n])
		if err != nil {
			return out, fmt.Errorf("batch at offset %d: %w", binary.BigEndian.Uint64(in), err)
		}
		out, in = append(out, b), in[n:]
	}
	return out, nil
}

func parseBatch(in []byte) (*Batch, error) {
	be := binary.BigEndian
	crc, last, count := be.Uint32(in[17:]), int32(be.Uint32(in[23:])), int32(be.Uint32(in[57:]))
	b := &Batch{
		BaseOffset: int64(be.Uint64(in)), LeaderEpoch: int32(be.Uint32(in[12:])), Magic: int8(in[16]),
		Attributes: int16(be.Uint16(in[21:])), BaseTimestamp: int64(be.Uint64(in[27:])), MaxTimestamp: int64(be.Uint64(in[35:])),
		ProducerID: int64(be.Uint64(in[43:])), ProducerEpoch: int16(be.Uint16(in[51:])), BaseSequence: int32(be.Uint32(in[53:])),
		CRC: &crc, LastOffsetDelta: &last, Count: &count,
	}
	if got := crc32.Checksum(in[21:], castagnoli); got != crc {
		return b, fmt.Errorf("CRC %08x, but it says %08x", got, crc)
	}
	records, err := decompress(Codec(b.Attributes&7), in[HeaderBytes:])
	if err != nil {
		return b, err
	}
	for range count {
		n, w := binary.Varint(records)
		if w <= 0 || n < 0 || int(n) > len(records)-w {
			return b, io.ErrUnexpectedEOF
		}
		r, err := parseRecord(records[w:w+int(n)], b.BaseTimestamp)
		if err != nil {
			return b, err
		}
		b.Records, records = append(b.Records, r), records[w+int(n):]
	}
	return b, nil
}

func parseRecord(in []byte, base int64) (Record, error) {
	d := &varReader{in: in[1:]}
	r := Record{Timestamp: base + d.varint()}
	d.varint()
	r.Key, r.Value = d.bytes(), d.bytes()
	for range d.varint() {
		r.Headers = append(r.Headers, Header{Key: string(d.bytes()), Value: d.bytes()})
	}
	if d.bad || len(d.in) > 0 {
		return r, io.ErrUnexpectedEOF
	}
	return r, nil
}

type varReader struct {
	in  []byte
	bad bool
}

func (d *varReader) varint() int64 {
	v, n := binary.Varint(d.in)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.in = d.in[n:]
	return v
}

func (d *varReader) bytes() []byte {
	n := d.varint()
	if n < 0 || d.bad {
		return nil
	}
	if int(n) > len(d.in) {
		d.bad = true
		return nil
	}
	b := d.in[:n:n]
	d.in = d.in[n:]
	return b
}

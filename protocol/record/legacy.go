package record

import (
	"encoding/binary"
)

// Message sets of magic 0 and 1, read only:
//
//	pos  field                       pos  field
//	  0  offset int64                 17  attributes int8: 0-2 codec, 3 timestamp type
//	  8  length int32 (after it)      18  timestamp int64 (magic 1 only)
//	 12  crc uint32 (CRC-32 from 16)  then int32 keyLength, key, int32 valueLength, value
//	 16  magic int8
//
// A compressed record is a wrapper: its value is a message set of the same magic. Its offset is that of the last
// record inside; inner offsets are absolute in magic 0 and relative in magic 1. With LogAppendTime the timestamp
// of the wrapper is that of all records inside.
const (
	legacyCRCPos        = 12
	legacyAttributesPos = 17
	legacyTimestampPos  = 18
	// legacyMinLengthBytes is the length of a record of magic 0 with null key and value.
	legacyMinLengthBytes = 14
)

// legacyFields returns the key and the value of the entry.
func (b Batch) legacyFields() (key, value []byte, err error) {
	pos := legacyTimestampPos
	if b.Magic() == 1 {
		pos += 8
	}
	if key, pos = readLegacyBytes(b, pos); pos < 0 {
		return nil, nil, corruptf("invalid key of a record of magic %d", b.Magic())
	}
	if value, pos = readLegacyBytes(b, pos); pos != len(b) {
		return nil, nil, corruptf("invalid value of a record of magic %d", b.Magic())
	}
	return key, value, nil
}

func readLegacyBytes(b []byte, pos int) ([]byte, int) {
	if len(b)-pos < 4 {
		return nil, -1
	}
	n := int32(binary.BigEndian.Uint32(b[pos:]))
	pos += 4
	if n < 0 {
		return nil, pos
	}
	if int(n) > len(b)-pos {
		return nil, -1
	}
	end := pos + int(n)
	return b[pos:end:end], end
}

// legacyRecords yields the record, or the records inside the wrapper.
func (b Batch) legacyRecords(lim Limits, yield func(Record, error) bool) {
	if b.Codec() == CodecNone {
		yield(b.legacyRecord(b.LastOffset(), b.MaxTimestamp()))
		return
	}
	inner, err := b.legacyInner(lim)
	if err != nil {
		yield(Record{}, err)
		return
	}
	shift, err := b.legacyOffsetShift(inner)
	if err != nil {
		yield(Record{}, err)
		return
	}
	for entry, err := range Batches(inner) {
		if err != nil {
			yield(Record{}, corruptf("inside a wrapper of magic %d: %v", b.Magic(), err))
			return
		}
		timestamp := entry.MaxTimestamp()
		if b.TimestampType() == LogAppendTime {
			timestamp = b.MaxTimestamp()
		}
		rec, err := entry.legacyRecord(entry.LastOffset()+shift, timestamp)
		if !yield(rec, err) || err != nil {
			return
		}
	}
}

func (b Batch) legacyRecord(offset, timestamp int64) (Record, error) {
	key, value, err := b.legacyFields()
	if err != nil {
		return Record{}, err
	}
	return Record{Offset: offset, Timestamp: timestamp, Key: key, Value: value, Sequence: NoSequence}, nil
}

// legacyInner returns the decompressed message set of a wrapper.
func (b Batch) legacyInner(lim Limits) ([]byte, error) {
	_, value, err := b.legacyFields()
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, corruptf("wrapper of magic %d without a value", b.Magic())
	}
	switch codec := b.Codec(); codec {
	case CodecLZ4:
		// Producers of magic 0 computed the checksum of the frame header over the wrong bytes.
		return unlz4(nil, value, lim.maxDecompressedBytes(), b.Magic() == 0)
	case CodecGzip, CodecSnappy:
		return Decompress(nil, codec, value, lim)
	default:
		return nil, corruptf("codec %s in a wrapper of magic %d", codec, b.Magic())
	}
}

// legacyOffsetShift checks the entries of a wrapper and returns what to add to their offsets.
func (b Batch) legacyOffsetShift(inner []byte) (int64, error) {
	last := int64(-1)
	for entry, err := range Batches(inner) {
		switch {
		case err != nil:
			return 0, corruptf("inside a wrapper of magic %d: %v", b.Magic(), err)
		case entry.Magic() != b.Magic():
			return 0, corruptf("magic %d inside a wrapper of magic %d", entry.Magic(), b.Magic())
		case entry.Codec() != CodecNone:
			return 0, corruptf("a wrapper inside a wrapper of magic %d", b.Magic())
		case !entry.CRCValid():
			return 0, corruptf("wrong CRC inside a wrapper of magic %d", b.Magic())
		}
		last = entry.LastOffset()
	}
	if last < 0 {
		return 0, corruptf("wrapper of magic %d without records", b.Magic())
	}
	if b.Magic() == 0 {
		return 0, nil
	}
	return b.LastOffset() - last, nil
}

// FirstOffset returns the offset of the first record. For all but compressed wrappers of old formats that is
// BaseOffset; these are decompressed to find it.
func (b Batch) FirstOffset(lim Limits) (int64, error) {
	if !b.legacy() || b.Codec() == CodecNone {
		return b.BaseOffset(), nil
	}
	for rec, err := range b.Records(lim) {
		return rec.Offset, err
	}
	return 0, corruptf("wrapper of magic %d without records", b.Magic())
}

// Package record reads, builds and validates Kafka record batches. It works on bytes first: a [Batch] is a view of the
// bytes that came from a socket or a segment file, and nothing is copied or decompressed until somebody asks for it.
//
// # Record batch, magic 2 (KIP-98)
//
//	pos  field                        pos  field
//	  0  baseOffset int64              27  baseTimestamp int64
//	  8  batchLength int32 (after it)  35  maxTimestamp int64
//	 12  partitionLeaderEpoch int32    43  producerId int64
//	 16  magic int8 = 2                51  producerEpoch int16
//	 17  crc uint32 (CRC-32C from 21)  53  baseSequence int32
//	 21  attributes int16              57  recordCount int32
//	 23  lastOffsetDelta int32         61  records, compressed as one block or plain
//
// attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon (KIP-534).
//
//	record = varint length, int8 attributes, varint timestampDelta, varint offsetDelta,
//	         varint keyLength, key, varint valueLength, value, varint headerCount, header*
//	header = varint keyLength, key, varint valueLength, value       (a length of -1 is null)
//
// Message sets of magic 0 and 1 are readable (see legacy.go) and are never written.
//
// # Errors
//
// [ErrTruncated] means that more bytes may complete the batch, [ErrCorrupt] that no more bytes can, [ErrLimit] that
// the bytes are well formed but would exceed the caller's [Limits]. Nothing in this package panics on bytes of a peer.
package record

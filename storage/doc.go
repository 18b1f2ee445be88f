// Package storage keeps partitions on disk in Kafka's own directory format.
//
// A Log is one partition: its segments, its leader epochs, its producer states and its offsets (log start,
// high watermark, last stable offset, log end). One writer at a time appends; readers take no lock: they work
// on one immutable State. A Manager owns the log directories of a node and the Logs in them.
//
// The package knows record batches, not requests.
package storage

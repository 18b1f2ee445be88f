// Package inspect reads a node's files offline: Dump prints them as Kafka's DumpLogSegments does, so that its output
// can be compared line by line, and knows the checkpoint and property files too.
//
// It opens files for reading only and never writes.
package inspect

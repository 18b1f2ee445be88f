// Package segment keeps one segment of a partition's log in Kafka's files: .log (record batches), .index
// (offset to position), .timeindex (timestamp to offset) and .txnindex (aborted transactions).
//
// A Segment has one writer at a time, which its owner serializes; readers need no lock of the owner: they find
// positions with the published part of the indexes and get a Range, which keeps the file open and notices when
// a truncation takes its bytes away. Positions are byte positions in the .log file, below 2 GiB.
//
// The indexes are kept in memory as Kafka's bytes and written by plain appends, late: a crash loses the last
// entries, and recovery rebuilds them. The index files of the segment that is written to have their full size
// (segment.index.bytes), sparse and zero filled, and are cut to their entries when it is sealed.
package segment

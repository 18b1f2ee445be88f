// Package cleaner compacts logs: of each key it keeps the newest record (cleanup.policy=compact), with the semantics of
// Kafka 4.4's LogCleaner.
//
// A log is a clean head, which an earlier round has been through, followed by a dirty part. Of that, a round takes
// what is certain and settled: nothing of the active segment, nothing at or above the last stable offset (hence the
// high watermark), nothing younger than min.compaction.lag.ms. It reads the dirty part into a map of bounded memory, from
// the hash of each key to its newest offset, and then writes all segments below the end of the map anew, without the
// records that the map knows a newer one of. Groups of small segments become one. A group is written to .cleaned
// files, which take the place of its segments by way of .swap files (see storage.Log.ReplaceSegments), so that a crash at
// any moment leaves the old or the new ones. The end of the map is where the next round starts
// (cleaner-offset-checkpoint).
//
// Which records of the dirty part stay is known when the map is complete: those whose offsets are in it. They are
// noted in a set of bits (liveOffsets). So of a dirty batch of which nothing is left only the header is looked at again, the
// keys of the other dirty records are not hashed again, and most of a log of which most is superseded is read once.
//
// Offsets never change. What goes and what stays, batch by batch (KIP-534 and the comments of Kafka's Cleaner):
//   - Records without a key go; those of aborted transactions too, whatever their key.
//   - A tombstone (null value) stays until its batch's delete horizon: the first round that meets it writes
//     now + delete.retention.ms into the batch header.
//   - Control batches have no key that counts. The marker of a transaction stays until none of the transaction's
//     batches is left and then gets a delete horizon of its own.
//   - The batch with the last sequence of a producer that the log remembers stays, if need be without records, and
//     so does the last batch below the high watermark.
//   - A batch of which everything stays is copied byte by byte. Any other is built anew with its codec, its producer
//     fields and its first and last offset. Records of formats 0 and 1 become format 2.
//
// Pool runs the rounds on several goroutines, the filthiest log first. The package knows a partition by the interface
// Log, which package storage implements.
package cleaner

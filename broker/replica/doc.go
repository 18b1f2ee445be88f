// Package replica holds the replicas of a broker: which partitions it leads or follows, in which epoch, and
// how far they are replicated. It appends and reads on behalf of the API handlers and the coordinators, moves
// the high watermark, and applies the changes of the cluster image to the logs on disk.
//
// # Roles
//
// A Partition has one immutable role behind an atomic pointer: leader or follower, with the leader epoch and
// partition epoch of the image. A handler loads it once, checks the epoch that the client sent (KIP-320)
// against it, and passes it on to the log, which stamps it on the batches.
//
// # High watermark
//
// The high watermark is the smallest log end offset of the in-sync replicas (R6). It moves under the leader's
// mutex, after every append and every fetch of a follower; with an in-sync set of one it follows the log end.
//
// # Waiting
//
// There is no purgatory. A request that waits (acks=all, a long poll) is a goroutine parked on a Waiter that is
// subscribed to its partitions. A subscription fires when its offset is reached or the role changes, and wakes nobody else.
package replica

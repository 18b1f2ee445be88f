// Package image holds the state of the cluster as the metadata log describes it.
//
// An [Image] is immutable. A [Delta] replays records on top of one and yields the next; both share what did not change,
// so that a change costs its own size and not the cluster's. The same Delta serves brokers (committed records) and the
// active controller (records it has just decided), with the semantics of Apache Kafka's metadata image.
//
// Slices and maps reached from an image are shared: never write to them. Lookups do not allocate, and iteration is in
// ascending order of the key.
package image

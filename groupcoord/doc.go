// Package groupcoord is the group coordinator: classic groups, consumer groups
// (KIP-848) and committed offsets on the coordinator runtime.
//
// [Coordinator] has a method per API. It finds the partition of
// __consumer_offsets that a group belongs to and runs the request on that
// partition's machine, the shard. A shard is the table of groups by id, whatever
// their type, and the offsets of all of them; the rules of each type are in the
// packages below (classic, consumer,
// offsets). The API layer has authorized the request
// and resolved topic ids before it comes here.
//
// A group id belongs to one type. Groups of the types that are not served here
// (share, streams) are loaded all the same: they are listed, their id
// is not given away, and not one of their records is touched unless the whole
// group is deleted.
package groupcoord

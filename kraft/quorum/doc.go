// Package quorum keeps the metadata log `__cluster_metadata-0` of KRaft: etcd raft decides, Kafka's files and
// Kafka's record batches are what it decides about. It is the only package that names etcd raft.
//
// # Mapping
//
//	raft index      offset + 1
//	raft term       partition leader epoch
//	raft id         node id + 1
//	raft entry      a batch of one record; base offset and epoch lie outside the batch's CRC and are stamped when
//	                the entry has its index and term
//	empty entry     the LeaderChange control batch of a new leader
//	conf change     a KRaftVoters control batch; the raft bytes are in tagged field 100 of the record
//	HardState       quorum-state: term = leaderEpoch, vote = votedId (commit is not kept: it is learnt again)
//	snapshot        the newest OFFSET-EPOCH.checkpoint: index = OFFSET, term = EPOCH
//
// A directory of Apache Kafka has batches of many records. Raft sees one entry per offset all the same: empty but
// for the last of a batch, which carries the batch. Messages between controllers carry whole batches, so that all
// copies of the log are identical byte for byte.
//
// # Voters
//
// The commit index is not persisted, therefore a starting node takes the newest voter set of its log, committed or
// not, as KRaft does: with the voter set of its newest snapshot, a node that was once the only voter could elect
// itself beside the present quorum. While it runs a node follows etcd raft's rule and changes its voter set when the
// record commits. Both rules may meet in one cluster because voter sets that are in use at the same time differ by
// one voter, so their majorities overlap.
//
// A node that is not a voter is an observer: it holds no raft state machine and copies the log through Kafka's Fetch
// and FetchSnapshot (observer.go). It becomes a voter by the first raft message of a leader that has it among its
// voters. A voter is (node id, directory id): a wiped disk does not vote under its old name.
//
// # Machine and Node
//
// machine is the deterministic part: raft, the log, the snapshots; no goroutine, no clock of its own. Node runs
// one machine on one goroutine and adds proposals, state machines, timers and waiting requests.
package quorum

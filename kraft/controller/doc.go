// Package controller holds the decisions of the active KRaft controller: which metadata records answer a
// request.
//
// Every decision is a pure function of a View (an immutable metadata image, the broker sessions, the time and the
// offset that the next record will get) and a request. It yields a Result: the records to append and the response
// to send once they are committed. Nothing here reads a clock, takes a lock, starts a goroutine or writes; package
// kraft owns the goroutine that applies the records and proposes them to the quorum.
//
// There is one file per concern: topics_create.go (CreateTopics), topics_delete.go (DeleteTopics),
// topics_grow.go (CreatePartitions), configs.go (IncrementalAlterConfigs, AlterConfigs), registration.go,
// heartbeat.go and sessions.go (brokers), isr.go (AlterPartition), election.go (ElectLeaders and the periodic
// elections), reassign.go, dirs.go (AssignReplicasToDirs), features.go, producerids.go, controllers.go, quotas.go,
// scram.go, activation.go (bootstrap records, open transactions). change.go computes the record of one partition
// change, placement.go chooses replicas.
package controller

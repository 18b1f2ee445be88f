// Package broker puts a node together: log directories, metadata quorum, replicas, coordinators, network. It is the
// only package that knows all of them.
//
// # Start
//
// The order is that of the steps in Start: lock the directories, open the quorum, listen on the controller's listeners,
// then, driven by the first image of the cluster, load the logs and take up their roles, register with the
// controller, and serve clients once it has unfenced the broker.
//
// # Stop
//
// Stop goes the other way: controlled shutdown (leadership moves away), no new requests, coordinators, logs (with the
// proof of the clean stop and the broker's epoch in it), and last the quorum, which the broker's part needs until then.
package broker

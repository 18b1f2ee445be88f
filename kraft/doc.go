// Package kraft runs a node's part in the metadata quorum: the active controller, the loader that turns the committed
// log into images, the observer that follows the log on nodes that do not vote, and the format command.
//
// A Node holds them together over one quorum.Node:
//
//   - The controller (server.go) is one goroutine over an image. A request is decided against the newest uncommitted
//     image, its records are applied to it at once, and the answer waits for the commit. When leadership is lost the
//     committed image returns and waiting requests get NOT_CONTROLLER.
//   - The loader (loader.go) applies committed batches, honors metadata transactions, stores each new image and calls
//     the publishers in the order of their registration. It writes snapshots when enough has changed.
//   - The observer (observer.go) brings the log to a node that does not vote, with Kafka's Fetch and FetchSnapshot.
//   - Formatter and its like are kafka-storage.sh.
//
// What the records of a request are is decided in package controller.
package kraft

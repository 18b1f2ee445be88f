// Package harness runs what the compat tests talk to: the gregor binary, a real Apache Kafka, Kafka's tools and kcat.
//
// It knows Gregor only as a program: it builds it, starts it on free loopback ports with a server.properties and a
// temporary directory, reads its log and stops or kills it. A real Kafka gets the same file, so that whatever is asked
// of one can be asked of the other. Nodes that are shared by the tests of a package end with it: see Main.
package harness

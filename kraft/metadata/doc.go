// Package metadata holds the records of the metadata log (`__cluster_metadata`): their Go types, their encoding, the
// control records of KRaft, and the features that decide which records and versions may be written.
//
// The types are generated from messages/*.txt. A value in the log or in a snapshot is a frame:
//
//	uvarint frame version (1), uvarint API key, uvarint message version, message
//
// Nullable fields are nil for null; a nullable array that is empty is not nil. A literal of a generated type has Go's
// zero values; where Kafka's defaults differ (PartitionChangeRecord.Leader is -2 for "no change") start from New*.
package metadata

//go:generate go run gregor/internal/schemagen/cmd/schemagen -package metadata messages

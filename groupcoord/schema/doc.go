// Package schema holds the records of the group coordinator (`__consumer_offsets`), of the share coordinator
// (`__share_group_state`), and the messages inside RPC fields that groups deal with: the consumer protocol's
// subscription and assignment, and the principal of a forwarded request.
//
// The types are generated from messages/*.txt. A key is an int16 record type and the message; a value is an int16
// version and the message; a null value is a tombstone. Nullable fields are nil for null. A literal of a generated type
// has Go's zero values; where Kafka's defaults differ (OffsetCommitValue.LeaderEpoch is -1) start from New*.
package schema

//go:generate go run gregor/internal/schemagen/cmd/schemagen -package schema messages

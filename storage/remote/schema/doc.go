// Package schema holds the records of __remote_log_metadata (KIP-405), which tell what became of the segments in tiered
// storage, generated from messages/*.txt. A value is framed as in the metadata log; keys have no meaning.
package schema

//go:generate go run gregor/internal/schemagen/cmd/schemagen -package schema messages

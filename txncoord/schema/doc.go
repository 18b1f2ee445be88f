// Package schema holds the records of the transaction coordinator (`__transaction_state`), generated from
// messages/*.txt. A key is an int16 version (0) and the message; a value is an int16 version and the message; a null
// value is a tombstone.
package schema

//go:generate go run gregor/internal/schemagen/cmd/schemagen -package schema messages
